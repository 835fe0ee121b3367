//! The example of a third-party engine keeps the promises that engines get for nothing.

#[path = "../../examples/third_party_engine.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's main")]
mod third_party_engine;

use crate::common::{TestHost, all, end_of, is_started, token};
use takopi_core::jsonl::Jsonl;
use takopi_core::model::Reason;
use takopi_core::{RunRequest, Runner};

#[tokio::test]
async fn a_third_party_engine_runs_resumes_and_refuses() {
    let test_host = TestHost::on_own_thread();
    let runner = Jsonl::runner(third_party_engine::Tally).on(test_host.host.clone());
    let events = all(runner.run(RunRequest::new("one two\nthree"))).await;
    assert_eq!(events.len(), 4);
    assert!(is_started(&events[0]));
    let first = end_of(&events);
    assert_eq!(first.answer, "3 words");

    let line = runner.format_resume(first.resume.as_ref().unwrap());
    let resume = runner.extract_resume(&format!("an answer\n\n{line}"));
    assert_eq!(resume, first.resume);
    let events = all(runner.run(RunRequest::new("four").resume(resume))).await;
    assert_eq!(end_of(&events).resume, first.resume);
    assert_eq!(end_of(&events).answer, "1 words");

    let events = all(runner.run(RunRequest::new("five").resume(token("tally-1")))).await;
    assert_eq!(end_of(&events).reason, Some(Reason::InvalidRequest), "a token of another engine");
    runner.shutdown().await;
    assert!(test_host.is_unlocked());
}
