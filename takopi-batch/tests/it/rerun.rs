//! Lives of a batch: what is done stays done, what was in flight is not lost.

use takopi_batch::{BatchReport, Journal, JournalError, OnChange, OnCrash, Source};
use takopi_core::Reason;

use crate::lab::{Lab, Play, jobs, run};

#[tokio::test(start_paused = true)]
async fn a_second_run_does_only_what_is_missing() {
    let lab = Lab::new();
    lab.runner.when("two", [Play::Fail(Reason::EngineFailed, "no"), Play::Say("fine")]);
    lab.run(lab.batch(), "one\ntwo\n").await;
    let ran = lab.run(lab.batch(), "one\ntwo\nthree\n").await;
    assert_eq!(lab.runner.prompts().len(), 3);
    assert_eq!((ran.outcome().report.ok, ran.outcome().failed_before), (1, 1));
    lab.run(lab.batch().retry_failed(true), "one\ntwo\nthree\n").await;
    assert_eq!(lab.outline(), ["1 ok 1", "2 engine_failed 1", "2 ok 2", "3 ok 1"]);
    let report = BatchReport::read(lab.out()).unwrap();
    assert_eq!((report.ok, report.failures(), report.attempts), (3, 0, 4), "the last line counts");
    lab.run(lab.batch().retry_failed(true), "one\ntwo\nthree\n").await;
    assert_eq!(lab.runner.prompts().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_in_flight_is_sent_again_in_the_same_conversation() {
    let named = jobs(&[("a", "one", "s"), ("b", "two", "s"), ("c", "three", "s")]);
    let alone = jobs(&[("b", "two", ""), ("c", "three", "")]);
    for (input, before) in [(named, 1), (alone, 0)] {
        let lab = Lab::new();
        lab.runner.when("two", [Play::Hang, Play::Hang, Play::Say("fine")]);
        lab.crash(lab.batch().jobs(1), &input, before + 1).await;
        assert_eq!(lab.results().len(), before);
        // Twice, for a crash can come again.
        lab.crash(lab.batch().jobs(1), &input, 1).await;
        lab.run(lab.batch().jobs(1), &input).await;
        assert_eq!(lab.outline()[before..], ["b ok 3", "c ok 1"]);
        let calls = lab.runner.calls();
        let resumed: Vec<_> = calls.iter().map(|call| call.resume.as_deref()).collect();
        let one = Some("demo-1");
        match before {
            0 => assert_eq!(resumed, [None, one, one, None]),
            _ => assert_eq!(resumed, [None, one, one, one, one]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_in_flight_is_sent_again_under_its_key_and_a_retry_gets_another() {
    let lab = Lab::new();
    let busy = Play::Fail(Reason::Overloaded, "busy");
    lab.runner.when("two", [busy, Play::Hang, Play::Hang, Play::Say("fine")]);
    let input = jobs(&[("a", "one", ""), ("b", "two", "")]);
    lab.crash(lab.batch().jobs(1), &input, 3).await;
    lab.crash(lab.batch().jobs(1), &input, 1).await;
    lab.run(lab.batch().jobs(1), &input).await;
    let keys: Vec<String> = lab.runner.calls().into_iter().map(|call| call.key).collect();
    let batch = keys[0].strip_suffix("/a/1").unwrap();
    let ends: Vec<&str> = keys.iter().map(|key| key.strip_prefix(batch).unwrap()).collect();
    assert_eq!(ends, ["/a/1", "/b/1", "/b/2", "/b/2", "/b/2"], "one run, however often asked for");

    let other = Lab::new();
    let long = "x".repeat(1000);
    other.run(other.batch().jobs(1), &jobs(&[("a", "one", ""), (&long, "two", "")])).await;
    let keys: Vec<String> = other.runner.calls().into_iter().map(|call| call.key).collect();
    assert!(!keys[0].starts_with(batch), "another batch has another name");
    assert!(keys[1].len() < 100 && keys[1].ends_with("/1"), "{}", keys[1]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_a_journal_has_keys_of_its_own_too() {
    let lab = Lab::new();
    for _ in 0..2 {
        run(lab.batch(), Source::new(&b"one\n"[..]), Journal::none()).await;
    }
    let keys: Vec<String> = lab.runner.calls().into_iter().map(|call| call.key).collect();
    assert!(keys.iter().all(|key| key.ends_with("/1/1")), "{keys:?}");
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_in_flight_fails_if_asked_for() {
    let lab = Lab::new();
    lab.runner.when("two", [Play::Hang]);
    let input = jobs(&[("a", "one", "s"), ("b", "two", "s"), ("c", "three", "s")]);
    let batch = lab.batch().on_crash(OnCrash::Fail);
    lab.crash(batch.clone(), &input, 2).await;
    lab.run(batch, &input).await;
    assert_eq!(lab.outline(), ["a ok 1", "b process_died 1", "c ok 1"]);
    assert_eq!(lab.runner.prompts(), ["one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_was_never_stored_is_begun_anew() {
    let lab = Lab::new();
    let lost = Play::Fail(Reason::SessionNotFound, "no such session");
    lab.runner.when("one", [Play::Hang, lost, Play::Say("fine")]);
    let input = jobs(&[("a", "one", "s"), ("b", "two", "s")]);
    lab.crash(lab.batch(), &input, 1).await;
    lab.run(lab.batch().retries(0), &input).await;
    assert_eq!(lab.outline(), ["a ok 3", "b ok 1"]);
    let calls = lab.runner.calls();
    let resumed: Vec<_> = calls.iter().map(|call| call.resume.as_deref()).collect();
    assert_eq!(resumed, [None, Some("demo-1"), None, Some("demo-2")]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_was_proven_or_given_is_never_replaced() {
    let lab = Lab::new();
    let lost = Play::Fail(Reason::SessionNotFound, "no such session");
    lab.runner.when("two", [lost.clone()]).when("three", [lost]);
    let input = "{\"prompt\":\"one\",\"session\":\"s\"}\n{\"prompt\":\"two\",\"session\":\"s\"}\n\
        {\"prompt\":\"three\",\"resume\":\"demo-9\"}\n";
    lab.run(lab.batch(), input).await;
    assert_eq!(lab.outline(), ["1 ok 1", "2 session_not_found 1", "3 session_not_found 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_prompt_under_an_old_id_is_refused_by_default() {
    let lab = Lab::new();
    lab.run(lab.batch(), "one\ntwo\n").await;
    let changed = "one\nTWO\n";
    let refused = lab.batch().check(changed.as_bytes(), None, &lab.journal()).unwrap_err();
    let expected =
        "line 2: the prompt of `2` differs from the one that was sent under this id before";
    assert_eq!(refused.to_string(), expected);
    let ran = lab.run(lab.batch(), changed).await;
    assert!(ran.outcome().halt.is_some());
    assert_eq!(lab.runner.prompts().len(), 2);

    lab.run(lab.batch().on_change(OnChange::Keep), changed).await;
    assert_eq!(lab.runner.prompts().len(), 2);
    lab.run(lab.batch().on_change(OnChange::Rerun), changed).await;
    assert_eq!(lab.runner.prompts()[2..], ["TWO"]);
    assert_eq!(lab.outline(), ["1 ok 1", "2 ok 1", "2 ok 2"]);
    lab.run(lab.batch(), changed).await;
    assert_eq!(lab.runner.prompts().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_torn_last_line_is_repaired_and_its_job_run_again() {
    let lab = Lab::new();
    lab.run(lab.batch().jobs(1), "one\ntwo\n").await;
    let whole = std::fs::read(lab.out()).unwrap();
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in [second + 1, second + 9, second + 20, whole.len() - 2] {
        std::fs::write(lab.out(), &whole[..cut]).unwrap();
        let before = lab.runner.prompts().len();
        lab.run(lab.batch(), "one\ntwo\n").await;
        assert_eq!(lab.runner.prompts()[before..], ["two"], "cut at {cut}");
        assert_eq!(lab.results().len(), 2);
    }
    // What a loss of power leaves.
    let mut zeroes = whole[..second].to_vec();
    zeroes.extend([0; 100]);
    std::fs::write(lab.out(), zeroes).unwrap();
    drop(lab.journal());
    assert_eq!(lab.results().len(), 1);
    // Also of the first line there is, for the state shows that a batch wrote it.
    std::fs::write(lab.out(), &whole[..9]).unwrap();
    drop(lab.journal());
    assert_eq!(lab.results().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_last_result_that_lacks_only_its_end_is_kept() {
    let lab = Lab::new();
    lab.run(lab.batch().jobs(1), "one\ntwo\n").await;
    let whole = std::fs::read(lab.out()).unwrap();
    std::fs::write(lab.out(), &whole[..whole.len() - 1]).unwrap();
    lab.run(lab.batch(), "one\ntwo\nthree\n").await;
    assert_eq!(lab.runner.prompts(), ["one", "two", "three"]);
    assert_eq!(lab.outline(), ["1 ok 1", "2 ok 1", "3 ok 1"]);
}

#[tokio::test]
async fn a_file_that_is_something_else_is_refused_and_left_alone() {
    for (text, line) in [
        ("my notes", 1),
        ("{\"id\":\"a\",\"prompt\":\"b\"}\n", 1),
        ("\n\n{}\n", 3),
        ("x\n{\"id\":", 1),
        // Without an end, too: it is not what was being written when a batch died.
        ("{\"id\":\"a\",\"prompt\":\"b\"}", 1),
        ("{\"type\":\"event\"", 1),
        ("{\"id\":\"a", 1),
        ("{", 1),
        ("\0\0\0", 1),
    ] {
        let lab = Lab::new();
        std::fs::write(lab.out(), text).unwrap();
        let refused = Journal::open(lab.out()).unwrap_err();
        assert!(matches!(refused, JournalError::NotAResult(_, at) if at == line), "{refused}");
        assert_eq!(std::fs::read_to_string(lab.out()).unwrap(), text);
    }
    // Behind results and beside a state only a result can have been begun.
    let lab = Lab::new();
    lab.run(lab.batch(), "one\n").await;
    let results = std::fs::read_to_string(lab.out()).unwrap();
    for more in
        ["{\"id\":\"a\",\"prompt\":\"b\"}", "{\"type\":\"sent\"", "notes", "{\"id\":\"\\\"\",\"no"]
    {
        let text = format!("{results}{more}");
        std::fs::write(lab.out(), &text).unwrap();
        let refused = Journal::open(lab.out()).unwrap_err();
        assert!(matches!(refused, JournalError::NotAResult(_, 2)), "{more}: {refused}");
        assert_eq!(std::fs::read_to_string(lab.out()).unwrap(), text);
    }
    assert!(matches!(Journal::open("/dev/null"), Err(JournalError::NotAFile(_))));
    assert!(matches!(Journal::open("/no/such/out"), Err(JournalError::Io { .. })));
}

#[tokio::test]
async fn a_state_that_is_something_else_is_refused_and_left_alone() {
    let lab = Lab::new();
    let state = lab.out().with_extension("jsonl.state");
    for text in ["my notes\n", "{\"state\":"] {
        std::fs::write(&state, text).unwrap();
        let refused = Journal::open(lab.out()).unwrap_err();
        assert!(matches!(refused, JournalError::NotAState(_, 1)), "{refused}");
        assert_eq!(std::fs::read_to_string(&state).unwrap(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn results_have_one_state_whatever_they_are_called() {
    let lab = Lab::new();
    let link = lab.out().with_file_name("link.jsonl");
    let input = jobs(&[("a", "one", "s"), ("b", "two", "s")]);
    lab.run(lab.batch(), &jobs(&[("a", "one", "s")])).await;
    std::os::unix::fs::symlink(lab.out(), &link).unwrap();
    let source = Source::new(std::io::Cursor::new(input));
    run(lab.batch(), source, Journal::open(&link).unwrap()).await.outcome.unwrap();
    assert_eq!(lab.runner.calls()[1].resume.as_deref(), Some("demo-1"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_prompt_that_was_stopped_is_not_answered_by_the_old_result() {
    // However often the state is made short before it is gone on with.
    for opened in 0..3 {
        let lab = Lab::new();
        lab.run(lab.batch(), "one\n").await;
        lab.runner.when("ONE", [Play::Hang, Play::Say("loud")]);
        let rerun = lab.batch().on_change(OnChange::Rerun);
        lab.stop(rerun.clone(), "ONE\n", 1).await;
        (0..opened).for_each(|_| drop(lab.journal()));
        lab.run(rerun, "ONE\n").await;
        assert_eq!(lab.runner.prompts(), ["one", "ONE", "ONE"]);
        assert_eq!(lab.outline(), ["1 ok 1", "1 ok 3"]);
        lab.run(lab.batch(), "ONE\n").await;
        assert_eq!(lab.runner.prompts().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_was_stopped_is_not_in_flight_in_any_later_life() {
    let lab = Lab::new();
    lab.runner.when("one", [Play::Fail(Reason::EngineFailed, "no"), Play::Hang]);
    lab.run(lab.batch(), "one\n").await;
    lab.stop(lab.batch().retry_failed(true), "one\n", 1).await;
    for _ in 0..3 {
        lab.run(lab.batch().on_crash(OnCrash::Fail), "one\n").await;
        assert_eq!(lab.outline(), ["1 engine_failed 1"]);
    }
    lab.run(lab.batch(), "one\n").await;
    assert_eq!(lab.runner.prompts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_taken_out_by_hand_is_run_again_and_not_called_a_crash() {
    let lab = Lab::new();
    let batch = lab.batch().on_crash(OnCrash::Fail);
    for opened in [0, 2] {
        lab.run(batch.clone(), "one\ntwo\n").await;
        (0..opened).for_each(|_| drop(lab.journal()));
        let text = std::fs::read_to_string(lab.out()).unwrap();
        let kept: String =
            text.split_inclusive('\n').filter(|line| !line.contains("\"id\":\"2\"")).collect();
        std::fs::write(lab.out(), kept).unwrap();
    }
    lab.run(batch, "one\ntwo\n").await;
    assert_eq!(lab.outline(), ["1 ok 1", "2 ok 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_prompt_is_not_sent_into_the_conversation_of_the_old_one() {
    let lab = Lab::new();
    lab.runner.when("one", [Play::Hang]);
    lab.crash(lab.batch(), "one\n", 1).await;
    // It dies again before the new prompt has opened a conversation.
    lab.runner.when("ONE", [Play::HangUnopened, Play::Say("fine")]);
    let rerun = lab.batch().on_change(OnChange::Rerun);
    lab.crash(rerun.clone(), "ONE\n", 1).await;
    lab.run(rerun, "ONE\n").await;
    let resumed: Vec<_> = lab.runner.calls().into_iter().map(|call| call.resume).collect();
    assert_eq!(resumed, [None, None, None]);
}

#[tokio::test(start_paused = true)]
async fn two_batches_on_one_file_at_once_are_refused() {
    let lab = Lab::new();
    let journal = lab.journal();
    let refused = Journal::open(lab.out()).unwrap_err();
    assert!(matches!(refused, JournalError::Busy(_)), "{refused}");
    drop(journal);
    lab.run(lab.batch(), "one\n").await;
    assert!(Journal::open(lab.out()).is_ok(), "free as soon as a batch is over");
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_its_results_starts_over() {
    let lab = Lab::new();
    let input = jobs(&[("a", "one", "s")]);
    lab.run(lab.batch(), &input).await;
    std::fs::remove_file(lab.out()).unwrap();
    lab.run(lab.batch(), &input).await;
    assert_eq!(lab.runner.calls()[1].resume, None);
    assert_eq!(lab.outline(), ["a ok 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_its_state_goes_on_in_the_conversations_of_its_results() {
    for rest in [None, Some("")] {
        let lab = Lab::new();
        lab.runner.when("two", [Play::Fail(Reason::EngineFailed, "no")]);
        let first = jobs(&[("a", "one", "s"), ("b", "two", "s"), ("c", "three", "t")]);
        lab.run(lab.batch().jobs(1), &first).await;
        let state = lab.out().with_extension("jsonl.state");
        match rest {
            None => std::fs::remove_file(&state).unwrap(),
            Some(rest) => std::fs::write(&state, rest).unwrap(),
        }
        // Also without the lines that are done, and however often it is opened first.
        drop(lab.journal());
        let more = jobs(&[("d", "four", "s"), ("e", "five", "t"), ("f", "six", "u")]);
        lab.run(lab.batch().jobs(1), &more).await;
        let calls = lab.runner.calls();
        let resumed = |prompt| {
            calls.iter().find(|call| call.prompt == prompt).and_then(|call| call.resume.as_deref())
        };
        let one = resumed("two").expect("the conversation of the first prompt");
        assert_eq!(resumed("four"), Some(one));
        assert!(resumed("five").is_some_and(|other| other != one));
        assert_eq!((resumed("three"), resumed("six")), (None, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_a_turn_proved_is_not_replaced_when_the_state_is_lost() {
    let lab = Lab::new();
    lab.runner.when("two", [Play::Fail(Reason::EngineFailed, "no")]);
    lab.runner.when("three", [Play::Fail(Reason::SessionNotFound, "no such session")]);
    lab.run(lab.batch(), &jobs(&[("a", "one", "s"), ("b", "two", "s")])).await;
    std::fs::remove_file(lab.out().with_extension("jsonl.state")).unwrap();
    lab.run(lab.batch(), &jobs(&[("c", "three", "s")])).await;
    assert_eq!(lab.outline(), ["a ok 1", "b engine_failed 1", "c session_not_found 1"]);
}

#[tokio::test(start_paused = true)]
async fn without_the_record_of_what_was_sent_a_batch_that_sends_once_refuses_what_has_no_result() {
    let lab = Lab::new();
    lab.runner.when("two", [Play::Hang, Play::Say("fine")]);
    let once = lab.batch().jobs(1).on_crash(OnCrash::Fail);
    lab.crash(once.clone(), "one\ntwo\n", 2).await;
    std::fs::remove_file(lab.out().with_extension("jsonl.state")).unwrap();
    // A plan opens the files too: they still know it then.
    for _ in 0..2 {
        let refused = once.check("one\ntwo\n".as_bytes(), None, &lab.journal()).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.starts_with("line 2: the prompt of `2` may have been sent"), "{refused}");
    }
    let ran = lab.run(once.clone(), "one\ntwo\n").await;
    assert!(ran.outcome().halt.is_some());
    assert_eq!(lab.runner.prompts(), ["one", "two"]);
    // What has its result is done, and the rest is sent if the user wants that.
    once.check("one\n".as_bytes(), None, &lab.journal()).unwrap();
    lab.run(lab.batch(), "one\ntwo\n").await;
    assert_eq!(lab.outline(), ["1 ok 1", "2 ok 1"]);
    lab.run(once, "one\ntwo\n").await;
    assert_eq!(lab.runner.prompts().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_state_stays_short_over_many_lives() {
    let lab = Lab::new();
    let input = jobs(&[("a", "one", "s"), ("b", "two", ""), ("c", "three", "s")]);
    lab.run(lab.batch(), &input).await;
    let state = || {
        drop(lab.journal());
        let path = lab.out().with_extension("jsonl.state");
        std::fs::read_to_string(path).unwrap().lines().count()
    };
    let first = state();
    for _ in 0..5 {
        lab.run(lab.batch().on_change(OnChange::Rerun), &input.replace("two", "again")).await;
        lab.run(lab.batch().on_change(OnChange::Rerun), &input).await;
    }
    assert_eq!(state(), first);
}

/// A batch of two prompts, of which the first is done when this happens to its results; nothing is
/// written any more, so that it is seen at the end. It must fail with a copy of what was done.
async fn fails_with_a_copy(lab: &Lab, happens: impl FnOnce()) {
    lab.runner.when("two", [Play::Hang]);
    let stop = tokio_util::sync::CancellationToken::new();
    let meanwhile = async {
        lab.runner.begun(2).await;
        happens();
        stop.cancel();
    };
    let batch = lab.batch().jobs(1).stop(stop.clone()).grace(std::time::Duration::ZERO);
    let (ran, ()) = tokio::join!(lab.run(batch, "one\ntwo\n"), meanwhile);
    let error = ran.outcome.unwrap_err().to_string();
    assert!(error.contains("was deleted or moved while the batch ran"), "{error}");
    let mut rescued = lab.out().into_os_string();
    rescued.push(".rescued-1");
    assert!(error.ends_with(&rescued.to_string_lossy().into_owned()), "{error}");
    let text = std::fs::read_to_string(rescued).unwrap();
    assert_eq!(text.lines().count(), 1, "what was done is kept: {text}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_results_are_deleted_fails_and_reports_where_they_are() {
    let lab = Lab::new();
    fails_with_a_copy(&lab, || std::fs::remove_file(lab.out()).unwrap()).await;
    // The file lives on under its other name.
    let lab = Lab::new();
    fails_with_a_copy(&lab, || {
        std::fs::hard_link(lab.out(), lab.out().with_extension("old")).unwrap();
        std::fs::remove_file(lab.out()).unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_results_are_moved_or_replaced_fails_and_reports_where_they_are() {
    let lab = Lab::new();
    let old = lab.out().with_extension("old");
    fails_with_a_copy(&lab, || std::fs::rename(lab.out(), &old).unwrap()).await;
    assert!(!lab.out().exists());

    let lab = Lab::new();
    let other = lab.out().with_extension("new");
    std::fs::write(&other, "notes\n").unwrap();
    fails_with_a_copy(&lab, || std::fs::rename(&other, lab.out()).unwrap()).await;
    assert_eq!(std::fs::read_to_string(lab.out()).unwrap(), "notes\n", "left alone");
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_state_is_deleted_fails_and_goes_on_when_it_is_moved_back() {
    // Seen at the next result, or else at the end.
    for play in [Play::Say("fine"), Play::Hang] {
        let lab = Lab::new();
        let state = lab.out().with_extension("jsonl.state");
        let ends = matches!(play, Play::Hang);
        lab.runner.when("two", [play, Play::Say("fine")]);
        let stop = tokio_util::sync::CancellationToken::new();
        let meanwhile = async {
            lab.runner.begun(2).await;
            std::fs::remove_file(&state).unwrap();
            if ends {
                stop.cancel();
            }
        };
        let batch = lab.batch().jobs(1).stop(stop.clone()).grace(std::time::Duration::ZERO);
        let input = jobs(&[("a", "one", "s"), ("b", "two", "s"), ("c", "three", "s")]);
        let (ran, ()) = tokio::join!(lab.run(batch, &input), meanwhile);
        let error = ran.outcome.unwrap_err().to_string();
        assert!(error.contains(".state was deleted or moved while the batch ran"), "{error}");
        let results = lab.results().len();
        assert_eq!(results, if ends { 1 } else { 2 }, "what was done is kept");

        let rescued = lab.out().with_extension("jsonl.state.rescued-1");
        assert!(error.contains(&*rescued.to_string_lossy()), "{error}");
        std::fs::rename(rescued, &state).unwrap();
        lab.run(lab.batch().on_crash(OnCrash::Fail), &input).await;
        assert_eq!(lab.results().len(), 3);
        let calls = lab.runner.calls();
        assert!(calls[1..].iter().all(|call| call.resume.as_deref() == Some("demo-1")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_results_are_moved_stops_at_the_next_result() {
    let lab = Lab::new();
    // It would never end by itself.
    lab.runner.when("two", [Play::Hang]);
    let journal = lab.journal();
    std::fs::rename(lab.out(), lab.out().with_extension("old")).unwrap();
    let source = Source::new(std::io::Cursor::new("one\ntwo\n"));
    let ran = run(lab.batch().jobs(1), source, journal);
    let ran = tokio::time::timeout(std::time::Duration::from_hours(1), ran).await.expect("an end");
    let error = ran.outcome.unwrap_err().to_string();
    assert!(error.contains("was deleted or moved"), "{error}");
}
