//! The keeper on a paused clock, with servers that only count.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::{advance, sleep};

mod one_server;

use std::future::{pending, ready};

use super::*;
use crate::locks::{HeldLock, Holder, LocalLocks, SessionGuard};
use crate::model::{EngineId, ResumeToken};

const MINUTE: Duration = Duration::from_mins(1);
const LONG: Duration = Duration::from_hours(1);

/// What a test sees of its servers.
#[derive(Clone)]
struct Yard {
    closed: Arc<AtomicUsize>,
    /// Servers take a permit to close.
    may_close: Arc<Semaphore>,
    host: Host,
}

struct Fake {
    yard: Yard,
    name: &'static str,
    dead: AtomicBool,
}

impl Server for Fake {
    type Session = &'static str;

    fn is_closed(&self) -> bool {
        self.dead.load(SeqCst)
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.yard.may_close.acquire().await.unwrap().forget();
            self.dead.store(true, SeqCst);
            self.yard.closed.fetch_add(1, SeqCst);
        })
    }
}

impl Yard {
    fn new() -> Self {
        let host = Host::builder().runtime(tokio::runtime::Handle::current());
        let host = host.state_directory("/nowhere").build().unwrap();
        Self { closed: Arc::default(), may_close: Arc::new(Semaphore::new(1000)), host }
    }

    fn closed(&self) -> usize {
        self.closed.load(SeqCst)
    }

    fn start(&self, permit: StartPermit<Fake>, name: &'static str) -> Seat<Fake> {
        let server = Fake { yard: self.clone(), name, dead: AtomicBool::new(false) };
        permit.started(&self.host, server)
    }
}

fn key(name: &str) -> SessionKey {
    SessionKey::new(&ResumeToken::new("fake", name))
}

/// The outside of a lock that a test looks at.
#[derive(Clone, Default)]
struct Outside {
    wanted: Arc<AtomicBool>,
    given_up: Arc<AtomicBool>,
}

struct Held(Outside);

impl HeldLock for Held {
    fn wanted(&self) -> BoxFuture<'_, ()> {
        let wanted = self.0.wanted.load(SeqCst);
        if wanted { Box::pin(ready(())) } else { Box::pin(pending()) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.given_up.store(true, SeqCst);
    }
}

impl Outside {
    fn lease(&self) -> Option<SessionLease> {
        let locks = LocalLocks::new();
        let inside =
            locks.try_acquire(&key("any"), &Holder::here(EngineId::from_static("fake"))).unwrap();
        SessionGuard::new(inside, Some(SessionLease::new(Box::new(Held(self.clone())))))
            .split_lease()
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(SeqCst)
    }
}

fn any(_: &Fake, _: Option<&&'static str>) -> bool {
    true
}

async fn seat(keeper: &Keeper<Fake>, session: Option<&str>) -> Seat<Fake> {
    match keeper.offer(session.map(key).as_ref(), any).await {
        Offer::Seat(seat) => seat,
        Offer::Start(_) => panic!("a seat was expected"),
    }
}

async fn permit(keeper: &Keeper<Fake>, session: Option<&str>) -> StartPermit<Fake> {
    match keeper.offer(session.map(key).as_ref(), any).await {
        Offer::Start(permit) => permit,
        Offer::Seat(seat) => panic!("a permit was expected, not a seat on {}", seat.server().name),
    }
}

/// A keeper with one server that has this session loaded, and the outside of its lease.
async fn with_session(yard: &Yard, limits: KeeperLimits) -> (Keeper<Fake>, Outside) {
    let keeper = Keeper::new(limits);
    let outside = Outside::default();
    let first = yard.start(permit(&keeper, None).await, "first");
    first.release(key("a"), "a", outside.lease());
    (keeper, outside)
}

/// Lets every task do what it can without time passing.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Time passes, and every server is looked at.
async fn pass(time: Duration) {
    sleep(time).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_is_found_again_on_its_server_and_another_gets_its_own() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::one_session(MINUTE)).await;
    let other = permit(&keeper, Some("b")).await;
    let mut again = seat(&keeper, Some("a")).await;
    assert_eq!((again.server().name, again.take_session()), ("first", Some("a")));
    drop(other);
    again.release(key("a"), "a", None);
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_closed_when_its_time_is_over_and_then_gives_up_its_lease() {
    let yard = Yard::new();
    yard.may_close.forget_permits(1000);
    let (keeper, outside) = with_session(&yard, KeeperLimits::one_session(MINUTE)).await;
    pass(299 * LOOK).await;
    assert_eq!(keeper.state().slots[0].phase, Phase::Open);
    pass(2 * LOOK).await;
    assert!(!outside.is_given_up(), "its server is still closing");
    yard.may_close.add_permits(1);
    pass(LOOK).await;
    assert_eq!(yard.closed(), 1);
    assert!(outside.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_to_be_kept_is_closed_at_once() {
    let yard = Yard::new();
    let (_keeper, outside) = with_session(&yard, KeeperLimits::one_session(Duration::ZERO)).await;
    settle().await;
    assert_eq!((yard.closed(), outside.is_given_up()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn a_server_full_of_sessions_that_nobody_can_ask_for_is_closed_when_its_last_run_is_over() {
    let yard = Yard::new();
    let keeper = Keeper::new(KeeperLimits::shared(2, 3, 2, LONG));
    let first = yard.start(permit(&keeper, None).await, "first");
    seat(&keeper, None).await.spend();
    seat(&keeper, None).await.spend();
    settle().await;
    assert_eq!(yard.closed(), 0, "a run is on it");
    drop(permit(&keeper, None).await);
    first.spend();
    settle().await;
    assert_eq!(yard.closed(), 1);
    // One session that is worth keeping keeps its server.
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(2, 3, 2, LONG)).await;
    seat(&keeper, None).await.spend();
    seat(&keeper, None).await.spend();
    pass(MINUTE).await;
    assert_eq!(yard.closed(), 1);
    assert_eq!(seat(&keeper, Some("a")).await.take_session(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_wanted_elsewhere_is_given_up_within_a_second() {
    let yard = Yard::new();
    let (keeper, outside) = with_session(&yard, KeeperLimits::one_session(LONG)).await;
    pass(MINUTE).await;
    assert!(!outside.is_given_up());
    outside.wanted.store(true, SeqCst);
    pass(Duration::from_secs(1)).await;
    assert_eq!((yard.closed(), outside.is_given_up()), (1, true));
    assert!(keeper.take_lease(&key("a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_wanted_is_not_handed_over() {
    let yard = Yard::new();
    let (keeper, outside) = with_session(&yard, KeeperLimits::one_session(LONG)).await;
    outside.wanted.store(true, SeqCst);
    assert!(keeper.take_lease(&key("a")).is_none());
    settle().await;
    assert!(outside.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_server_is_never_closed_under_a_run_however_long_it_takes() {
    let yard = Yard::new();
    let limits = KeeperLimits::shared(4, 10, 1, MINUTE);
    let (keeper, outside) = with_session(&yard, limits).await;
    let neighbour = seat(&keeper, None).await;
    let broken = seat(&keeper, None).await;
    let orphan = Outside::default();
    broken.abandon(orphan.lease());
    pass(LONG).await;
    assert_eq!(yard.closed(), 0);
    assert!(!orphan.is_given_up() && !outside.is_given_up(), "the server may still write to them");
    assert!(keeper.offer(None, any).now_or_never().is_none(), "it gets no further run");
    neighbour.vacate();
    settle().await;
    assert_eq!(yard.closed(), 1);
    assert!(orphan.is_given_up() && outside.is_given_up());
    drop(permit(&keeper, None).await);
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_is_dropped_drains_its_server() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(4, 10, 1, LONG)).await;
    let neighbour = seat(&keeper, None).await;
    drop(seat(&keeper, Some("a")).await);
    assert!(keeper.offer(None, any).now_or_never().is_none());
    neighbour.vacate();
    settle().await;
    assert_eq!(yard.closed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_gets_no_run_and_its_session_goes_on_elsewhere() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(4, 10, 1, LONG)).await;
    seat(&keeper, None).await.server().dead.store(true, SeqCst);
    drop(permit(&keeper, Some("a")).await);
    assert_eq!(yard.closed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_fit_is_offered_a_start_only_when_its_server_is_gone() {
    let yard = Yard::new();
    yard.may_close.forget_permits(1000);
    let (keeper, _) = with_session(&yard, KeeperLimits::one_session(LONG)).await;
    assert!(keeper.take_lease(&key("a")).is_some());
    let session = key("a");
    let mut offer = Box::pin(keeper.offer(Some(&session), |_, session| session.is_none()));
    assert!((&mut offer).now_or_never().is_none());
    pass(MINUTE).await;
    assert!((&mut offer).now_or_never().is_none(), "the server is still there");
    yard.may_close.add_permits(1);
    assert!(matches!(offer.await, Offer::Start(_)));
    assert_eq!(yard.closed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_run_does_not_come_for_it_is_not_kept_without_a_lease() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::one_session(LONG)).await;
    let lease = keeper.take_lease(&key("a"));
    assert!(lease.is_some());
    assert!(keeper.take_lease(&key("a")).is_none(), "there is only one");
    pass(24 * LOOK).await;
    assert_eq!(yard.closed(), 0);
    pass(2 * LOOK).await;
    assert_eq!(yard.closed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_run_waits_for_a_seat_is_kept_until_the_run_goes_away() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(1, 10, 1, MINUTE)).await;
    let busy = seat(&keeper, None).await;
    let _lease = keeper.take_lease(&key("a")).unwrap();
    let session = key("a");
    let mut waiting = Box::pin(keeper.offer(Some(&session), any));
    assert!((&mut waiting).now_or_never().is_none());
    pass(LONG).await;
    assert_eq!(keeper.state().slots[0].phase, Phase::Open);
    drop(waiting);
    pass(LOOK).await;
    assert_eq!(keeper.state().slots[0].phase, Phase::Draining);
    busy.vacate();
    settle().await;
    assert_eq!(yard.closed(), 1);
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_servers_than_the_limit_and_an_idle_one_makes_room() {
    let yard = Yard::new();
    yard.may_close.forget_permits(1000);
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(1, 1, 1, LONG)).await;
    let mut waiting = Box::pin(keeper.offer(None, any));
    assert!((&mut waiting).now_or_never().is_none(), "the first is full, and closing");
    pass(MINUTE).await;
    assert!((&mut waiting).now_or_never().is_none(), "one that is closing counts");
    yard.may_close.add_permits(1);
    let Offer::Start(permit) = waiting.await else { panic!("there is no server left") };
    let busy = yard.start(permit, "second");
    assert!(keeper.offer(None, any).now_or_never().is_none(), "one that runs stays");
    busy.vacate();
    assert_eq!(seat(&keeper, None).await.server().name, "second");
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_session_is_about_to_run_does_not_make_room_for_others() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(1, 1, 1, LONG)).await;
    let _lease = keeper.take_lease(&key("a")).unwrap();
    assert!(keeper.offer(None, any).now_or_never().is_none());
    let session = seat(&keeper, Some("a")).await.take_session();
    assert_eq!((session, yard.closed()), (Some("a"), 0));
}

#[tokio::test(start_paused = true)]
async fn shared_servers_start_one_at_a_time_and_a_failed_start_is_the_next_ones_turn() {
    let yard = Yard::new();
    let keeper = Keeper::new(KeeperLimits::shared(2, 10, 4, LONG));
    let failing = permit(&keeper, None).await;
    let mut waiting = Box::pin(keeper.offer(None, any));
    assert!((&mut waiting).now_or_never().is_none());
    drop(failing);
    let Offer::Start(permit) = waiting.await else { panic!("nothing was started") };
    let one = yard.start(permit, "first");
    let two = seat(&keeper, None).await;
    assert_eq!(two.server().name, "first");
    one.vacate();
    two.vacate();
}

#[tokio::test(start_paused = true)]
async fn the_server_with_the_fewest_runs_is_chosen() {
    let yard = Yard::new();
    let keeper = Keeper::new(KeeperLimits::shared(2, 10, 2, LONG));
    let one = yard.start(permit(&keeper, None).await, "first");
    let two = seat(&keeper, None).await;
    let three = yard.start(permit(&keeper, None).await, "second");
    one.vacate();
    two.vacate();
    assert_eq!(seat(&keeper, None).await.server().name, "first");
    three.vacate();
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_what_is_idle_and_leaves_what_runs_until_it_is_over() {
    let yard = Yard::new();
    let keeper = Keeper::new(KeeperLimits::one_session(LONG));
    let idle = yard.start(permit(&keeper, None).await, "idle");
    let busy = yard.start(permit(&keeper, None).await, "busy");
    let outside = Outside::default();
    idle.release(key("a"), "a", outside.lease());
    keeper.shutdown().await;
    assert_eq!((yard.closed(), outside.is_given_up()), (1, true));
    busy.release(key("b"), "b", None);
    keeper.shutdown().await;
    assert_eq!(yard.closed(), 2, "nothing is kept any more");
}

#[tokio::test(start_paused = true)]
async fn closing_goes_on_without_a_waiter() {
    let yard = Yard::new();
    yard.may_close.forget_permits(1000);
    let (keeper, outside) = with_session(&yard, KeeperLimits::one_session(LONG)).await;
    assert!(keeper.shutdown().now_or_never().is_none());
    yard.may_close.add_permits(1);
    advance(LOOK).await;
    settle().await;
    assert_eq!((yard.closed(), outside.is_given_up()), (1, true));
}
