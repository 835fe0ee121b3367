//! A consumer that is slow, and one that does not read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use takopi_core::runner::EmitError;
use takopi_core::{RunRequest, Runner};

use crate::common::engines::{lab, note, started, success};
use crate::common::{TestHost, all, end_of, until_started};

const PATIENCE: Duration = Duration::from_secs(30);

type Emitted = Arc<Mutex<Option<Result<(), EmitError>>>>;

/// Emits far more than the buffer holds, and stores what became of it.
fn floods(test_host: &TestHost, emitted: &Emitted) -> impl Runner + use<> {
    let emitted = emitted.clone();
    let runner = lab(&test_host.host, move |run| {
        let emitted = emitted.clone();
        async move {
            run.emit(started("a")).await.unwrap();
            let notes = (0..1000).map(|number| note(&number.to_string()).into()).collect();
            let result = run.emit_all_while_read(notes, PATIENCE).await;
            *emitted.lock().unwrap() = Some(result);
            let _ = run.emit(success("all")).await;
        }
    });
    runner.buffer(100, 1 << 20)
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_slow_is_waited_for() {
    let (test_host, emitted) = (TestHost::on_test_runtime(), Emitted::default());
    let mut events = floods(&test_host, &emitted).run(RunRequest::new("go"));
    until_started(&mut events).await;
    // There is room again only when the hundred events that it took are read: after five minutes.
    let slowly = events.then(|event| async {
        tokio::time::sleep(PATIENCE / 10).await;
        event
    });
    let events: Vec<_> = slowly.collect().await;
    assert_eq!(events.len(), 1001);
    assert_eq!(end_of(&events).answer, "all");
    assert_eq!(*emitted.lock().unwrap(), Some(Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_does_not_read_is_waited_for_no_longer_than_said() {
    let (test_host, emitted) = (TestHost::on_test_runtime(), Emitted::default());
    let mut events = floods(&test_host, &emitted).run(RunRequest::new("go"));
    until_started(&mut events).await;
    let begun = tokio::time::Instant::now();
    while emitted.lock().unwrap().is_none() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(*emitted.lock().unwrap(), Some(Err(EmitError::Stalled)));
    assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < 3 * PATIENCE, "{:?}", begun.elapsed());
    drop(all(events).await);
}
