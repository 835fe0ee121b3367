//! A session is on one server at a time, whatever the order of handover, drain and close.

use std::collections::HashMap;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_run_that_comes_late_for_its_lease_waits_until_the_server_is_gone() {
    let yard = Yard::new();
    yard.may_close.forget_permits(1000);
    let (keeper, outside) = with_session(&yard, KeeperLimits::shared(4, 10, 4, LONG)).await;
    let lease = keeper.take_lease(&key("a"));
    pass(HANDOVER_LIMIT + LOOK).await;
    assert_eq!(keeper.state().slots[0].phase, Phase::Closing);
    let session = key("a");
    let mut offer = Box::pin(keeper.offer(Some(&session), any));
    pass(MINUTE).await;
    assert!((&mut offer).now_or_never().is_none(), "its server is closing, and not gone");
    yard.may_close.add_permits(1);
    assert!(matches!(offer.await, Offer::Start(_)));
    assert!(!outside.is_given_up(), "the run has it");
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_chosen_to_make_room_gives_its_session_to_no_other_until_it_is_gone() {
    let yard = Yard::new();
    yard.may_close.forget_permits(1000);
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(1, 1, 2, LONG)).await;
    let busy = yard.start(permit(&keeper, None).await, "second");
    // Chosen: it is idle, and somebody needs room.
    assert!(keeper.offer(None, any).now_or_never().is_none());
    assert_eq!(keeper.state().slots[0].phase, Phase::Closing);
    assert!(keeper.take_lease(&key("a")).is_none(), "its lease goes with the server");
    busy.vacate();
    let session = key("a");
    let mut offer = Box::pin(keeper.offer(Some(&session), any));
    assert!((&mut offer).now_or_never().is_none(), "the other server has room, but must not");
    yard.may_close.add_permits(1);
    assert!(matches!(offer.await, Offer::Seat(seat) if seat.server().name == "second"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_left_in_an_unknown_state_waits_for_its_server_to_be_gone() {
    for dropped in [true, false] {
        let yard = Yard::new();
        let (keeper, _) = with_session(&yard, KeeperLimits::shared(4, 10, 4, LONG)).await;
        let neighbour = seat(&keeper, None).await;
        let run = seat(&keeper, Some("a")).await;
        if dropped {
            drop(run);
        } else {
            run.abandon(None);
        }
        let session = key("a");
        let mut waiter = keeper.waiter(Some(&session));
        assert_eq!(waiter.try_offer(any).err(), Some(Blocked::Session));
        neighbour.vacate();
        assert_eq!(waiter.try_offer(any).err(), Some(Blocked::Room), "only the close is left");
        waiter.changed().await;
        assert!(matches!(waiter.try_offer(any), Ok(Offer::Start(_))));
        assert_eq!(yard.closed(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_session_that_was_left_in_an_unknown_state_is_known_too() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(4, 10, 4, LONG)).await;
    let _neighbour = seat(&keeper, None).await;
    let mut run = seat(&keeper, None).await;
    run.begun(key("new"));
    drop(run);
    let session = key("new");
    assert_eq!(keeper.waiter(Some(&session)).try_offer(any).err(), Some(Blocked::Session));
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_is_dropped_leaves_its_lease_with_the_server() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(4, 10, 4, LONG)).await;
    let neighbour = seat(&keeper, None).await;
    let outside = Outside::default();
    let mut run = seat(&keeper, None).await;
    let lease = outside.lease();
    run.lease_from(move || lease);
    drop(run);
    pass(MINUTE).await;
    assert!(!outside.is_given_up(), "the server may still write to the session");
    neighbour.vacate();
    settle().await;
    assert!(outside.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_before_it_has_a_seat_leaves_the_session_kept_and_the_server_open() {
    let yard = Yard::new();
    let (keeper, outside) = with_session(&yard, KeeperLimits::shared(1, 10, 1, LONG)).await;
    let _busy = seat(&keeper, None).await;
    let lease = keeper.take_lease(&key("a"));
    let session = key("a");
    let mut waiter = keeper.waiter(Some(&session));
    assert_eq!(waiter.try_offer(any).err(), Some(Blocked::Room));
    drop(waiter);
    drop(lease);
    pass(MINUTE).await;
    assert!(!outside.is_given_up());
    assert_eq!(keeper.state().slots[0].phase, Phase::Open);
    assert!(keeper.take_lease(&session).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_run_that_has_no_seat_stays_with_a_server_until_that_is_gone() {
    let yard = Yard::new();
    yard.may_close.forget_permits(1000);
    let (keeper, outside) = with_session(&yard, KeeperLimits::shared(4, 10, 4, LONG)).await;
    let lease = keeper.take_lease(&key("a"));
    pass(HANDOVER_LIMIT + LOOK).await;
    assert_eq!(keeper.state().slots[0].phase, Phase::Closing);
    drop(lease);
    assert!(!outside.is_given_up(), "the server may still write to the session");
    yard.may_close.add_permits(1);
    settle().await;
    assert!(outside.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_run_whose_server_is_gone_is_given_up_with_the_run() {
    let yard = Yard::new();
    let (keeper, outside) = with_session(&yard, KeeperLimits::shared(4, 10, 4, LONG)).await;
    let lease = keeper.take_lease(&key("a"));
    seat(&keeper, Some("a")).await.abandon(None);
    settle().await;
    assert_eq!((yard.closed(), outside.is_given_up()), (1, false));
    drop(lease);
    assert!(outside.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_back_lets_its_server_make_room_for_others() {
    let yard = Yard::new();
    let (keeper, _) = with_session(&yard, KeeperLimits::shared(1, 1, 1, LONG)).await;
    let lease = keeper.take_lease(&key("a"));
    let mut waiting = Box::pin(keeper.offer(None, any));
    assert!((&mut waiting).now_or_never().is_none(), "a run is on its way to the session");
    drop(lease);
    assert!((&mut waiting).now_or_never().is_none(), "it is closed first");
    settle().await;
    assert_eq!(yard.closed(), 1);
    assert!(matches!(waiting.now_or_never(), Some(Offer::Start(_))));
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// What a run of the random test has got so far.
enum Run {
    Lease(Option<SessionLease>),
    Permit(StartPermit<Fake>, Option<SessionLease>),
    Seat(Seat<Fake>, Option<SessionLease>),
}

/// Runs on few sessions and servers take steps in random order, while servers close in random order
/// and time passes. Each session has one run at a time, as its lock ensures.
#[tokio::test(start_paused = true)]
async fn in_any_order_of_steps_a_session_is_never_loaded_on_two_servers() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut waited = 0;
    for seed in 0..150 {
        let mut numbers = Numbers(seed);
        let yard = Yard::new();
        yard.may_close.forget_permits(1000);
        let limits = KeeperLimits::shared(2, 3, 2, Duration::from_secs(2));
        let keeper = Keeper::new(limits);
        let mut runs: HashMap<&str, Run> = HashMap::new();
        // The server that has a session loaded, until that server is gone.
        let mut loaded: HashMap<&str, Arc<Fake>> = HashMap::new();
        for _ in 0..200 {
            let name = NAMES[usize::try_from(numbers.below(3)).unwrap()];
            let session = key(name);
            match (runs.remove(name), numbers.below(8)) {
                (None, 0..=5) => {
                    runs.insert(name, Run::Lease(keeper.take_lease(&session)));
                }
                // It ends before it asks for a seat.
                (Some(Run::Lease(lease)), 0..=1) => drop(lease),
                (Some(Run::Lease(lease)), 2..=5) => {
                    let odd = numbers.below(6) == 0;
                    let fits = |_: &Fake, session: Option<&&str>| !(odd && session.is_some());
                    let offer = keeper.waiter(Some(&session)).try_offer(fits);
                    let run = match offer {
                        Ok(Offer::Seat(seat)) => Run::Seat(seat, lease),
                        Ok(Offer::Start(permit)) => Run::Permit(permit, lease),
                        Err(_) => {
                            waited += 1;
                            Run::Lease(lease)
                        }
                    };
                    if let Run::Seat(seat, _) = &run {
                        load(&mut loaded, name, seat, seed);
                    }
                    runs.insert(name, run);
                }
                (Some(Run::Permit(permit, lease)), 1..=5) => {
                    let seat = yard.start(permit, "server");
                    load(&mut loaded, name, &seat, seed);
                    runs.insert(name, Run::Seat(seat, lease));
                }
                (Some(Run::Seat(seat, lease)), 0..=3) => seat.release(session, name, lease),
                (Some(Run::Seat(seat, _)), 4) => seat.abandon(None),
                (run, 6) => {
                    yard.may_close.add_permits(1);
                    settle().await;
                    runs.extend(run.map(|run| (name, run)));
                }
                (run, _) => {
                    pass(Duration::from_millis(100 * numbers.below(30))).await;
                    runs.extend(run.map(|run| (name, run)));
                }
            }
        }
    }
    assert!(waited > 1000, "only {waited} offers had to wait");
}

fn load(
    loaded: &mut HashMap<&'static str, Arc<Fake>>,
    name: &'static str,
    seat: &Seat<Fake>,
    seed: u64,
) {
    let before = loaded.insert(name, seat.server().clone());
    let elsewhere = before
        .is_some_and(|before| !before.dead.load(SeqCst) && !Arc::ptr_eq(&before, seat.server()));
    assert!(!elsewhere, "seed {seed}: {name} is loaded on two servers");
}
