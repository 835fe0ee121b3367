//! Runs that wait for a place on a server: time limits, reports, cancel.

use std::sync::Arc;
use std::time::Duration;

use crate::common::engines::{lab, started, success};
use crate::common::{TestHost, actions, all, end, end_of, settle_tasks};
use futures::future::BoxFuture;
use takopi_core::keeper::{Keeper, KeeperLimits, Offer, OfferError, Seat, Server};
use takopi_core::locks::SessionKey;
use takopi_core::model::{Phase, Reason, TakopiEvent};
use takopi_core::runner::WAIT_ACTION;
use takopi_core::{Host, RunRequest, Runner};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

struct Fake;

impl Server for Fake {
    type Session = ();

    fn is_closed(&self) -> bool {
        false
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// A pool of one server with room for one run, which has it.
async fn full_pool(host: &Host) -> (Keeper<Fake>, Seat<Fake>) {
    let keeper = Keeper::new(KeeperLimits::shared(1, 10, 1, HOUR));
    let Offer::Start(permit) = keeper.offer(None, |_, _| true).await else {
        panic!("there is no server yet")
    };
    let seat = permit.started(host, Fake);
    (keeper, seat)
}

/// Runs a turn that takes no time when there is room for it.
fn pooled(host: &Host, keeper: &Keeper<Fake>) -> impl Runner + use<> {
    let keeper = keeper.clone();
    lab(host, move |run| {
        let keeper = keeper.clone();
        async move {
            let key = run.resume.as_ref().map(SessionKey::new);
            match keeper.offer_to(&run, key.as_ref(), "a server", |_, _| true).await {
                Ok(Offer::Seat(seat)) => {
                    let _ = run.emit(started("a")).await;
                    seat.vacate();
                    let _ = run.emit(success("done")).await;
                }
                Ok(Offer::Start(_)) => panic!("a second server"),
                Err(error) => assert!(matches!(error, OfferError::Stopped(_)), "{error}"),
            }
        }
    })
}

fn limited() -> RunRequest {
    RunRequest::new("go").idle_timeout(SECOND).wall_timeout(SECOND).wait(Duration::ZERO)
}

fn waits(events: &[TakopiEvent]) -> Vec<(Phase, Option<bool>)> {
    let waits = actions(events).into_iter().filter(|event| event.action.id == WAIT_ACTION);
    waits.map(|event| (event.phase, event.ok)).collect()
}

#[tokio::test(start_paused = true)]
async fn no_limit_of_a_run_counts_while_it_waits_for_a_place_and_the_wait_is_visible() {
    let test_host = TestHost::on_test_runtime();
    let (keeper, busy) = full_pool(&test_host.host).await;
    let waiting = tokio::spawn(all(pooled(&test_host.host, &keeper).run(limited())));
    sleep(HOUR).await;
    busy.vacate();
    let events = waiting.await.unwrap();
    assert!(end_of(&events).ok, "{events:?}");
    assert_eq!(waits(&events), [(Phase::Started, None), (Phase::Completed, Some(true))]);
    assert!(matches!(events[2], TakopiEvent::Started(_)), "closed before it goes on: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_place_is_reported_once_however_often_others_get_one_first() {
    let test_host = TestHost::on_test_runtime();
    let (keeper, busy) = full_pool(&test_host.host).await;
    let waiting = tokio::spawn(all(pooled(&test_host.host, &keeper).run(limited())));
    let mut busy = Some(busy);
    for _ in 0..60 {
        settle_tasks().await;
        // The place goes to another at once.
        busy.take().unwrap().vacate();
        let Offer::Seat(seat) = keeper.offer(None, |_, _| true).await else { panic!("a start") };
        busy = Some(seat);
        sleep(SECOND).await;
    }
    busy.unwrap().vacate();
    let events = waiting.await.unwrap();
    assert!(end_of(&events).ok, "{events:?}");
    assert_eq!(waits(&events), [(Phase::Started, None), (Phase::Completed, Some(true))]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_server_that_starts_or_ends_is_not_reported() {
    let test_host = TestHost::on_test_runtime();
    let (keeper, busy) = full_pool(&test_host.host).await;
    let waiting = tokio::spawn(all(pooled(&test_host.host, &keeper).run(limited())));
    sleep(5 * SECOND).await;
    busy.vacate();
    assert_eq!(waiting.await.unwrap().len(), 2, "an uneventful run has no event of takopi's own");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_place_can_be_cancelled() {
    let test_host = TestHost::on_test_runtime();
    let (keeper, busy) = full_pool(&test_host.host).await;
    let runner = pooled(&test_host.host, &keeper);
    let request = limited();
    let cancel = request.cancel.clone();
    let waiting = tokio::spawn(all(runner.run(request)));
    sleep(HOUR).await;
    cancel.cancel();
    let events = waiting.await.unwrap();
    assert_eq!(end_of(&events).reason, Some(Reason::Interrupted));
    assert_eq!(waits(&events), [(Phase::Started, None), (Phase::Completed, Some(false))]);
    busy.vacate();
    assert!(end(runner.run(limited())).await.ok, "its place is free for the next");
}
