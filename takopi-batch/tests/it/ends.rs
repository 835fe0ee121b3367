//! Files that fail.

use takopi_batch::{Batch, BatchError, Journal, Source};

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
