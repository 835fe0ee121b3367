//! What is tried again, and what a failure means for the rest.

use std::time::Duration;

use takopi_batch::{BatchReport, Halt, OnCrash, OnFailure};
use takopi_core::{Action, ActionEvent, ActionKind, Phase, Reason, TakopiEvent};

use crate::lab::{Lab, Play, jobs};

#[tokio::test(start_paused = true)]
async fn what_another_try_can_mend_is_tried_again_after_a_growing_wait() {
    let lab = Lab::new();
    let busy = Play::Fail(Reason::Overloaded, "no room");
    lab.runner.when("one", [busy.clone(), busy.clone(), Play::Say("at last")]);
    lab.runner.when("two", [busy]);
    let ran = lab.run(lab.batch(), "one\ntwo\n").await;
    assert_eq!(lab.outline(), ["1 ok 3", "2 overloaded 3"]);
    assert_eq!(ran.outcome().report.failures(), 1);
    let calls: Vec<_> =
        lab.runner.calls().into_iter().filter(|call| call.prompt == "one").collect();
    let waits: Vec<Duration> = calls.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(waits[0] >= Duration::from_secs(1) && waits[1] > waits[0], "{waits:?}");
    // In the conversation that was opened.
    assert!(calls[1].resume.is_some() && calls[1].resume == calls[2].resume);
    assert_eq!(ran.told("job_retry").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_no_try_can_mend_is_not_tried_again() {
    let lab = Lab::new();
    let reasons =
        [Reason::EngineFailed, Reason::ContextTooLong, Reason::TimeoutWall, Reason::SessionBusy];
    for reason in &reasons {
        lab.runner.when(reason.as_str(), [Play::Fail(reason.clone(), "no")]);
    }
    let ran_tool = TakopiEvent::from(ActionEvent::new(
        "demo",
        Action::new("1", ActionKind::Command, "rm -r build"),
        Phase::Started,
    ));
    lab.runner.when("died", [Play::FailAfter(vec![ran_tool], Reason::ProcessDied, "gone")]);
    let words: Vec<&str> = reasons.iter().map(Reason::as_str).chain(["died"]).collect();
    let input = words.join("\n");
    let ran = lab.run(lab.batch(), &input).await;
    assert_eq!(ran.outcome().report.failures(), 5);
    assert_eq!(lab.runner.calls().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_death_before_any_tool_ran_is_tried_again() {
    let lab = Lab::new();
    lab.runner.when("one", [Play::Fail(Reason::ProcessDied, "gone"), Play::Say("back")]);
    lab.run(lab.batch(), "one\n").await;
    assert_eq!(lab.outline(), ["1 ok 2"]);
}

const SESSION: [(&str, &str, &str); 4] =
    [("1", "one", "s"), ("2", "two", "s"), ("3", "three", "s"), ("4", "other", "t")];

#[tokio::test(start_paused = true)]
async fn behind_a_failure_a_session_goes_on_or_is_skipped() {
    let lab = Lab::new();
    lab.runner.when("one", [Play::Fail(Reason::EngineFailed, "no")]);
    lab.run(lab.batch(), &jobs(&SESSION)).await;
    assert_eq!(lab.outline(), ["1 engine_failed 1", "2 ok 1", "3 ok 1", "4 ok 1"]);

    let lab = Lab::new();
    lab.runner.when("one", [Play::Fail(Reason::EngineFailed, "no")]);
    let batch = lab.batch().on_failure(OnFailure::SkipSession);
    let ran = lab.run(batch.clone(), &jobs(&SESSION)).await;
    assert_eq!(lab.outline(), ["1 engine_failed 1", "2 skipped 0", "3 skipped 0", "4 ok 1"]);
    assert_eq!(ran.outcome().report.failures(), 3);

    // What comes later is skipped as well, in this life and in the next.
    let more = jobs(&SESSION) + &jobs(&[("5", "five", "s"), ("6", "six", "t")]);
    lab.run(batch.clone(), &more).await;
    assert_eq!(lab.runner.calls().len(), 3, "{:?}", lab.runner.prompts());
    assert!(lab.outline().contains(&"5 skipped 0".to_owned()));

    // And with its beginning mended, all of it is run.
    lab.runner.when("one", [Play::Say("fine")]);
    lab.run(batch.retry_failed(true), &more).await;
    assert_eq!(lab.runner.prompts()[3..], ["one", "two", "three", "five"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_again_is_counted_by_job_and_a_pause_is_part_of_the_time() {
    let lab = Lab::new();
    let busy = Play::Fail(Reason::Overloaded, "no room");
    lab.runner.when("one", [busy.clone(), busy, Play::Fail(Reason::EngineFailed, "no")]);
    let batch = lab.batch().on_failure(OnFailure::SkipSession);
    let ran = lab.run(batch, &jobs(&SESSION)).await;
    // Two of four jobs were never sent, and one three times.
    for report in [&ran.outcome().report, &BatchReport::read(lab.out()).unwrap()] {
        assert_eq!((report.attempts, report.sent_again), (4, 2));
        let first = lab.results().into_iter().find(|result| result.id == "1").unwrap();
        assert!(first.began.unwrap() < first.started);
        assert!(report.began <= first.began, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn to_stop_at_a_failure_starts_nothing_more_and_finishes_what_runs() {
    let lab = Lab::new();
    lab.runner.when("one", [Play::Fail(Reason::EngineFailed, "no")]);
    lab.runner.when("two", [Play::Take(Duration::from_secs(5))]);
    let batch = lab.batch().jobs(2).on_failure(OnFailure::Stop);
    let ran = lab.run(batch, "one\ntwo\nthree\nfour\n").await;
    assert_eq!(lab.outline(), ["1 engine_failed 1", "2 ok 1"]);
    assert_eq!(ran.outcome().halt, Some(Halt::Failed { job: "1".to_owned() }));
    assert_eq!(ran.outcome().left, 2);
}

#[tokio::test(start_paused = true)]
async fn to_stop_at_a_failure_counts_those_that_were_never_sent() {
    let lab = Lab::new();
    let stops = |lab: &Lab| lab.batch().jobs(1).on_failure(OnFailure::Stop);
    let input = "{\"prompt\":\"a\",\"cwd\":\"/no/such\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n";
    let ran = lab.run(stops(&lab), input).await;
    assert_eq!(lab.outline(), ["1 invalid_request 0"]);
    assert_eq!(ran.outcome().halt, Some(Halt::Failed { job: "1".to_owned() }));
    assert_eq!(ran.outcome().left, 2);

    let lab = Lab::new();
    lab.runner.when("one", [Play::Hang]);
    let batch = stops(&lab).on_crash(OnCrash::Fail);
    lab.crash(batch.clone(), "one\ntwo\n", 1).await;
    let ran = lab.run(batch, "one\ntwo\n").await;
    assert_eq!(lab.outline(), ["1 process_died 1"]);
    assert_eq!(ran.outcome().halt, Some(Halt::Failed { job: "1".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn lines_before_a_failure_are_not_skipped_for_it_in_the_next_life() {
    let lab = Lab::new();
    lab.runner.when("one", [Play::Fail(Reason::EngineFailed, "no")]);
    let batch = lab.batch().on_failure(OnFailure::SkipSession);
    lab.run(batch.clone(), &jobs(&[("1", "one", "s")])).await;
    let more =
        jobs(&[("0", "zero", "s"), ("00", "double", "s"), ("1", "one", "s"), ("2", "two", "s")]);
    lab.run(batch, &more).await;
    assert_eq!(lab.outline(), ["0 ok 1", "00 ok 1", "1 engine_failed 1", "2 skipped 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_engine_or_a_refused_login_stops_the_queue_and_marks_nothing() {
    for reason in [Reason::EngineMissing, Reason::EngineTooOld, Reason::Auth] {
        let lab = Lab::new();
        lab.runner.when("two", [Play::Fail(reason.clone(), "no codex")]);
        let ran = lab.run(lab.batch().jobs(1), "one\ntwo\nthree\n").await;
        assert_eq!(lab.outline(), ["1 ok 1"]);
        let error = "no codex".to_owned();
        assert_eq!(ran.outcome().halt, Some(Halt::Engine { reason, error }));
        // When it is there again, the rest is done.
        lab.runner.when("two", [Play::Say("fine")]);
        lab.run(lab.batch(), "one\ntwo\nthree\n").await;
        assert_eq!(lab.outline(), ["1 ok 1", "2 ok 2", "3 ok 1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_missing_fails_its_job_alone() {
    let lab = Lab::new();
    let input = "{\"prompt\":\"a\",\"cwd\":\"/no/such\"}\n{\"prompt\":\"b\",\"image\":\"/no/such.png\"}\n\
        {\"prompt\":\"c\"}\n";
    lab.run(lab.batch(), input).await;
    assert_eq!(lab.outline(), ["1 invalid_request 0", "2 invalid_request 0", "3 ok 1"]);
    let error = lab.results().into_iter().find(|result| result.id == "1").unwrap().error;
    assert_eq!(error.as_deref(), Some("the directory /no/such does not exist"));
}
