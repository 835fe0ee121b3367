//! The note about a wait is closed however the run ends.

use futures::StreamExt as _;
use takopi_core::model::{Phase, Reason, TakopiEvent};
use takopi_core::runner::WAIT_ACTION;
use takopi_core::{RunRequest, Runner as _};
use tokio::time::Instant;

use crate::common::engines::{lab, started};
use crate::common::{TestHost, actions, all, end, end_of, settle_tasks, token, until_started};
use crate::waiting::{SECOND, on, ten_seconds};

pub(crate) fn assert_wait_is_closed(events: &[TakopiEvent]) {
    let waits = actions(events).into_iter().filter(|event| event.action.id == WAIT_ACTION);
    let waits: Vec<_> = waits.map(|event| (event.phase, event.ok)).collect();
    assert_eq!(waits, [(Phase::Started, None), (Phase::Completed, Some(false))], "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_while_it_waits_closes_its_wait() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let request = on("a");
    let cancel = request.cancel.clone();
    let waiting = all(runner.run(request));
    let cancelling = async {
        tokio::time::sleep(2 * SECOND).await;
        cancel.cancel();
    };
    let (events, ()) = tokio::join!(waiting, cancelling);
    assert_eq!(end_of(&events).reason, Some(Reason::Interrupted));
    assert_wait_is_closed(&events);
}

#[test]
fn a_run_whose_runtime_shuts_down_while_it_waits_closes_its_wait() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let (_test_host, mut events, waiting) = runtime.block_on(async {
        let test_host = TestHost::on_test_runtime();
        let runner = ten_seconds(&test_host.host);
        let mut first = runner.run(on("a"));
        until_started(&mut first).await;
        let mut waiting = runner.run(on("a"));
        let reported = waiting.next().await.unwrap();
        (test_host, vec![reported], waiting)
    });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    events.extend(other.block_on(all(waiting)));
    assert_eq!(end_of(&events).reason, Some(Reason::Interrupted));
    assert_wait_is_closed(&events);
}

#[tokio::test(start_paused = true)]
async fn wait_bounds_the_waiting() {
    let test_host = TestHost::on_test_runtime();
    let runner = ten_seconds(&test_host.host);
    for request in [
        RunRequest::new("go").resume(token("a")).wait(3 * SECOND),
        RunRequest::new("a").wait(3 * SECOND),
    ] {
        let mut first = runner.run(on("a"));
        until_started(&mut first).await;
        let begun = Instant::now();
        let events = all(runner.run(request)).await;
        assert_eq!(begun.elapsed(), 3 * SECOND);
        let end = end_of(&events).clone();
        assert_eq!((end.reason, end.resume), (Some(Reason::SessionBusy), Some(token("a"))));
        assert_wait_is_closed(&events);
        drop(first);
    }
    // Enough patience is enough.
    let mut first = runner.run(on("a"));
    until_started(&mut first).await;
    let request = RunRequest::new("go").resume(token("a")).wait(11 * SECOND);
    assert!(end(runner.run(request)).await.ok);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_before_there_is_room_for_the_end_of_its_wait_closes_it() {
    let test_host = TestHost::on_test_runtime();
    let mut first = ten_seconds(&test_host.host).run(on("a"));
    until_started(&mut first).await;
    // The note about the wait takes all the room.
    let runner = lab(&test_host.host, |run| async move {
        let _ = run.emit(started("a")).await;
    });
    let request = on("a");
    let cancel = request.cancel.clone();
    let waiting = runner.buffer(1, 1 << 20).run(request);
    assert!(end(first).await.ok);
    settle_tasks().await;
    cancel.cancel();
    settle_tasks().await;
    let events = all(waiting).await;
    assert_eq!(end_of(&events).reason, Some(Reason::Interrupted));
    assert_wait_is_closed(&events);
}
