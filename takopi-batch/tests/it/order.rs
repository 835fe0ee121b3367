//! The order in which jobs run.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use takopi_batch::{Batch, BatchEvent, Halt, Journal, Source};
use takopi_core::Reason;
use takopi_core::demo::Demo;

use crate::lab::{Lab, Play, jobs, run};

#[tokio::test(start_paused = true)]
async fn prompts_of_a_session_run_in_order_in_one_conversation_and_the_rest_side_by_side() {
    let lab = Lab::new();
    let mut input = String::new();
    for n in 0..60 {
        let session = ["a", "b", "c"][n % 3];
        let prompt = format!("{session} {n:02}");
        lab.runner.when(&prompt, [Play::Take(Duration::from_millis((n as u64 * 7) % 13 + 1))]);
        input += &jobs(&[(&n.to_string(), &prompt, session)]);
        let alone = format!("alone {n}");
        lab.runner.when(&alone, [Play::Take(Duration::from_millis(5))]);
        input += &jobs(&[(&alone, &alone, "")]);
    }
    let ran = lab.run(lab.batch().jobs(5), &input).await;
    assert_eq!(ran.outcome().report.ok, 120);
    assert_eq!(lab.runner.most(), 5);
    for session in ["a", "b", "c"] {
        let calls: Vec<_> = lab
            .runner
            .calls()
            .into_iter()
            .filter(|it| it.prompt.starts_with(&format!("{session} ")))
            .collect();
        assert!(calls.is_sorted_by_key(|call| call.prompt.clone()), "{calls:?}");
        assert_eq!(calls[0].resume, None);
        let token = calls[1].resume.clone();
        assert!(token.is_some() && calls[1..].iter().all(|call| call.resume == token));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_journal_too_a_session_goes_on_when_nothing_else_runs() {
    let lab = Lab::new();
    let input = jobs(&[("1", "one", "s"), ("2", "two", "s"), ("3", "three", "s")]);
    let batch = run(lab.batch(), Source::new(std::io::Cursor::new(input)), Journal::none());
    // Of the paused clock: it fires when nothing else can happen.
    let ran = tokio::time::timeout(Duration::from_secs(1), batch).await.expect("the batch ends");
    assert_eq!(ran.outcome().report.ok, 3);
    assert_eq!(lab.runner.prompts(), ["one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn prompts_that_resume_one_token_run_in_order_whatever_its_spelling() {
    let lab = Lab::new();
    lab.runner.when("one", [Play::Take(Duration::from_secs(9))]);
    let input = "{\"prompt\":\"one\",\"resume\":\"demo-abc\"}\n\
        {\"prompt\":\"two\",\"resume\":\"DEMO-ABC\"}\n\
        {\"prompt\":\"three\",\"resume\":\"takopi run --resume demo-abc\"}\n";
    let ran = lab.run(lab.batch(), input).await;
    assert_eq!(ran.outcome().report.ok, 3);
    assert_eq!(lab.runner.prompts(), ["one", "two", "three"]);
    assert!(lab.runner.calls().iter().all(|call| call.resume.as_deref() == Some("demo-abc")));
}

#[tokio::test(start_paused = true)]
async fn a_producer_can_keep_adding_and_is_answered_meanwhile() {
    let lab = Lab::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let batch = lab.batch();
    let runner = lab.runner.clone();
    let producer = async {
        writer.write_all(b"first\nsec").unwrap();
        runner.begun(1).await;
        assert_eq!(runner.prompts(), ["first"]);
        writer.write_all(b"ond\n").unwrap();
        runner.begun(2).await;
        drop(writer);
    };
    let (ran, ()) = tokio::join!(run(batch, Source::new(reader), lab.journal()), producer);
    assert_eq!(ran.outcome().report.ok, 2);
}

#[tokio::test(start_paused = true)]
async fn a_bad_line_in_a_stream_ends_the_reading_but_not_what_came_before() {
    let lab = Lab::new();
    // Also what has to be tried again.
    lab.runner.when("one", [Play::Fail(Reason::Overloaded, "no room"), Play::Say("fine")]);
    let input =
        jobs(&[("a", "one", ""), ("b", "two", "")]) + "{\"prompt\":3}\n{\"prompt\":\"x\"}\n";
    let ran = lab.run(lab.batch().jobs(1), &input).await;
    assert_eq!(lab.outline(), ["a ok 2", "b ok 1"]);
    let Some(Halt::Input { error }) = &ran.outcome().halt else {
        panic!("{ran:?}", ran = ran.events)
    };
    assert!(error.starts_with("line 3: invalid type"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_id_that_comes_twice_is_refused_in_a_stream_and_in_a_file() {
    let lab = Lab::new();
    let input = jobs(&[("a", "one", ""), ("2b", "two", ""), ("a", "three", "")]);
    let refused = lab.batch().check(input.as_bytes(), None, &Journal::none()).unwrap_err();
    assert_eq!(refused.to_string(), "line 3: the id `a` is already used on line 1");
    let ran = lab.run(lab.batch(), &input).await;
    let error = "line 3: the id `a` is already used on line 1".to_owned();
    assert_eq!(ran.outcome().halt, Some(Halt::Input { error }));
    // A line's number is an id too.
    let input = "{\"prompt\":\"x\",\"id\":2}\n{\"prompt\":\"y\"}\n";
    assert!(lab.batch().check(input.as_bytes(), None, &Journal::none()).is_err());
}

#[tokio::test]
async fn a_file_is_checked_before_anything_runs() {
    let lab = Lab::new();
    let check = |input: &str| lab.batch().check(input.as_bytes(), None, &Journal::none());
    assert_eq!(check("one\n\ntwo\n").unwrap(), 2);
    let bad = "{\"prompt\":\"a\",\"resume\":\"nobody\"}\n{\"prompt\":\"\"}\n";
    assert_eq!(
        check(bad).unwrap_err().to_string(),
        "line 1: `nobody` is not a session of demo\nline 2: the prompt is empty"
    );
    let others = "{\"prompt\":\"a\",\"resume\":{\"engine\":\"codex\",\"value\":\"demo-1\"}}\n";
    let refused = check(others).unwrap_err().to_string();
    assert_eq!(refused, "line 1: `demo-1` is a session of codex; this batch runs on demo");
    assert!(check(&others.replace("codex", "demo")).is_ok());
    let many = check(&"{\"prompt\":\"\"}\n".repeat(50)).unwrap_err().to_string();
    assert!(many.ends_with("line 20: the prompt is empty\nand 30 more"), "{many}");
}

/// Counts the lines that were taken from an endless input.
struct Endless(Arc<AtomicUsize>);

impl std::io::Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let line = b"hello there\n";
        let lines = buffer.len().min(1200) / line.len();
        for n in 0..lines {
            buffer[n * line.len()..][..line.len()].copy_from_slice(line);
        }
        self.0.fetch_add(lines, Ordering::SeqCst);
        Ok(lines * line.len())
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_read_ahead_of_an_endless_input_is_bounded() {
    let lab = Lab::new();
    lab.runner.when("hello there", [Play::Hang]);
    let taken = Arc::new(AtomicUsize::new(0));
    let stop = tokio_util::sync::CancellationToken::new();
    let batch = lab.batch().jobs(2).stop(stop.clone()).grace(Duration::ZERO);
    let source = Source::new(Endless(taken.clone()));
    let watch = async {
        // Not a sleep: the clock, which is paused, would run ahead of the thread that reads.
        while taken.load(Ordering::SeqCst) < 4096 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(run(batch, source, lab.journal()), watch);
    assert_eq!(ran.outcome().halt, Some(Halt::Interrupted));
    let taken = taken.load(Ordering::SeqCst);
    assert!((4096..16_000).contains(&taken), "{taken} lines were read");
}

#[tokio::test(start_paused = true)]
async fn a_result_event_uses_the_same_job_key_as_other_events() {
    let lab = Lab::new();
    let ran = lab.run(lab.batch(), "one\n").await;
    let mut told = ran.told("job_completed").remove(0);
    let mut written = serde_json::to_value(&lab.results()[0]).unwrap();
    let job = told.as_object_mut().unwrap().remove("job");
    told.as_object_mut().unwrap().remove("type");
    assert_eq!(job, written.as_object_mut().unwrap().remove("id"));
    assert_eq!(told, written);
}

#[tokio::test]
async fn every_event_of_a_run_is_reported_with_its_job_if_requested() {
    let batch = Batch::new(Arc::new(Demo::new().runner())).report_runs(true);
    let ran = run(batch, Source::new(&b"hi\n"[..]), Journal::none()).await;
    let told: Vec<_> =
        ran.events.iter().filter(|it| matches!(it, BatchEvent::Run { .. })).collect();
    let first = serde_json::to_value(told[0]).unwrap();
    assert_eq!((&first["job"], &first["type"]), (&"1".into(), &"started".into()));
    let last = serde_json::to_value(told.last().unwrap()).unwrap();
    assert_eq!((&last["job"], &last["type"]), (&"1".into(), &"completed".into()));
}
