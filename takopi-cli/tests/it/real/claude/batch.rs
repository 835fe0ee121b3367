//! Batches on the real Claude Code.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use takopi_tests::model::messages::{Answer, Script};

use super::lab::Lab;
use crate::real::lab::Ran;

fn results(lab: &Lab) -> Vec<Value> {
    let text = std::fs::read_to_string(lab.home.root().join("out.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs these prompts, each with its id and maybe the name of its session.
async fn batch(lab: &Lab, prompts: &[(&str, Option<&str>)], args: &[&str]) -> Ran {
    let lines: Vec<String> = prompts
        .iter()
        .map(|(id, session)| json!({ "id": id, "prompt": id, "session": session }).to_string())
        .collect();
    let (jobs, out) = (lab.home.root().join("jobs.jsonl"), lab.home.root().join("out.jsonl"));
    std::fs::write(&jobs, lines.join("\n")).unwrap();
    let all = ["batch", jobs.to_str().unwrap(), "--out", out.to_str().unwrap()];
    lab.run(&[&all, args].concat()).await
}

fn in_seconds(seconds: u64) -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds
}

#[tokio::test]
async fn prompts_are_answered_once_in_order_and_without_background_work() {
    let Some(lab) = Lab::new() else { return };
    lab.model.otherwise(Script::repeat(Answer::text("fine")));
    let prompts = [
        ("a step 0", Some("a")),
        ("b step 0", Some("b")),
        ("alone", None),
        ("a step 1", Some("a")),
        ("b step 1", Some("b")),
        ("a step 2", Some("a")),
    ];
    let ran = batch(&lab, &prompts, &["--jobs", "2"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let results = results(&lab);
    assert_eq!(results.len(), prompts.len());
    assert!(results.iter().all(|it| it["ok"] == true && it["answer"] == "fine"), "{results:?}");
    assert!(results.iter().all(|it| it["resume"]["engine"] == "claude"), "{results:?}");
    let requests = lab.model.requests();
    assert_eq!(requests.len(), prompts.len(), "each prompt was sent once");
    let last = &lab.model.requests_about("a step 2")[0];
    assert_eq!(last.user_texts(), ["a step 0", "a step 1", "a step 2"]);
    for request in &requests {
        let bash = request.body["tools"].as_array().unwrap();
        let bash = bash.iter().find(|tool| tool["name"] == "Bash").unwrap();
        let inputs = bash["input_schema"]["properties"].as_object().unwrap();
        assert!(!inputs.contains_key("run_in_background"), "{inputs:?}");
    }
    let again = batch(&lab, &prompts, &["--jobs", "2"]).await;
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(lab.model.requests().len(), prompts.len(), "nothing is left to do");
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn an_overload_is_retried_in_the_same_conversation() {
    let Some(lab) = Lab::new() else { return };
    lab.model.otherwise(Answer::status(529, "Overloaded").then(Answer::text("fine")));
    let ran = batch(&lab, &[("alone", None)], &[]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("↻ alone: retry in "), "{}", ran.stderr);
    let result = &results(&lab)[0];
    assert_eq!((&result["ok"], &result["attempts"]), (&true.into(), &2.into()));
    let requests = lab.model.requests();
    assert_eq!(requests[0].session(), requests[1].session());
}

#[tokio::test]
async fn a_refused_login_starts_nothing_more_and_marks_nothing_as_failed() {
    let Some(lab) = Lab::with(|home| home.max_retries(10)) else { return };
    lab.model.otherwise(Script::repeat(Answer::status(401, "invalid x-api-key")));
    let ran = batch(&lab, &[("one", None), ("two", None)], &["--jobs", "1"]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("claude auth login"), "{}", ran.stderr);
    assert_eq!(results(&lab).len(), 0);
    assert!(lab.model.requests_about("two").is_empty());
}

#[tokio::test]
async fn a_usage_limit_pauses_the_batch_until_it_is_reset() {
    // A reset that is past when takopi reads it is none: the first may be too early for a busy machine.
    for reset in [6, 60] {
        let subscription = takopi_tests::claude::home::TestHome::subscription;
        let Some(lab) = Lab::with(subscription) else { return };
        lab.model.when("one", Answer::limit_reached_for(reset).then(Answer::text("fine")));
        lab.model.when("two", "fine");
        let ran = batch(&lab, &[("one", None), ("two", None)], &["--jobs", "1"]).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("! the batch continues"), "{}", ran.stderr);
        assert_eq!(results(&lab).len(), 2);
        let requests = lab.model.requests_about("one");
        let waited = requests.last().unwrap().started.duration_since(requests[0].started);
        assert!(waited >= Duration::from_secs(2), "{waited:?}");
        if ran.stderr.contains("! paused until ") {
            return;
        }
        assert!(ran.stderr.contains("! paused, next try at "), "{}", ran.stderr);
    }
    panic!("no batch was paused until the reset");
}

#[tokio::test]
async fn stopping_at_a_usage_limit_reports_its_end_and_marks_no_prompt() {
    let Some(lab) = Lab::with(takopi_tests::claude::home::TestHome::subscription) else { return };
    lab.model.otherwise(Script::repeat(Answer::limit_reached(in_seconds(7200))));
    let ran = batch(&lab, &[("one", None), ("two", None)], &["--on-limit", "stop"]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("note: the limit ends at "), "{}", ran.stderr);
    assert_eq!(results(&lab).len(), 0);
}
