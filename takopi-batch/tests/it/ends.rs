//! Files that fail.

use takopi_batch::{Batch, BatchError, BatchEvent, Journal, OnCrash, Source};

use crate::lab::{Lab, run};

#[tokio::test]
async fn a_full_disk_ends_the_batch_with_an_error() {
    // Linux has a device that is always full; elsewhere there is nothing to test with.
    if !std::path::Path::new("/dev/full").exists() {
        return;
    }
    let lab = Lab::new();
    lab.run(lab.batch(), "one\n").await;
    let state = lab.out().with_extension("jsonl.state.new");
    std::os::unix::fs::symlink("/dev/full", state).unwrap();
    let refused = Journal::open(lab.out()).unwrap_err();
    assert!(refused.to_string().contains("No space left"), "{refused}");
}

#[tokio::test]
async fn a_batch_runs_without_a_consumer_of_its_events() {
    let lab = Lab::new();
    let (events, told) = tokio::sync::mpsc::channel(1);
    drop(told);
    let batch: Batch = lab.batch();
    let outcome = batch.run(Source::new(&b"one\ntwo\n"[..]), lab.journal(), events).await.unwrap();
    assert_eq!(outcome.report.ok, 2);
}

#[tokio::test]
async fn an_input_that_breaks_ends_the_reading() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let lab = Lab::new();
    let ran = run(lab.batch(), Source::new(Broken), lab.journal()).await;
    let outcome: Result<_, BatchError> = ran.outcome;
    assert!(format!("{:?}", outcome.unwrap().halt).contains("the disk is gone"));
}

#[test]
fn a_prompt_that_is_to_be_sent_once_is_on_disk_before_it_is_sent() {
    // One thread for what blocks, so that nothing gets to the disk while the test keeps it.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().max_blocking_threads(1).build().unwrap().block_on(async {
        // By default it is sent at once, which also shows that it has had its turn by then.
        for (on_crash, sent) in [(OnCrash::Resend, 1), (OnCrash::Fail, 0)] {
            let lab = Lab::new();
            let (release, kept) = std::sync::mpsc::channel::<()>();
            let keeper = tokio::task::spawn_blocking(move || kept.recv());
            let (events, mut told) = tokio::sync::mpsc::channel(16);
            let batch = lab.batch().on_crash(on_crash);
            let running =
                tokio::spawn(batch.run(Source::new(&b"one\n"[..]), lab.journal(), events));
            while !matches!(told.recv().await.unwrap(), BatchEvent::Started { .. }) {}
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(lab.runner.calls().len(), sent, "{on_crash:?}");
            release.send(()).unwrap();
            keeper.await.unwrap().unwrap();
            let outcome = running.await.unwrap().unwrap();
            assert_eq!((outcome.report.ok, lab.runner.calls().len()), (1, 1));
        }
    });
}
