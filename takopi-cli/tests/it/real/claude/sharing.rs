//! One session in many processes: no prompt is lost.

use std::time::Duration;

use takopi_claude::Claude;
use takopi_core::{Host, Runner};
use takopi_tests::model::Gate;
use takopi_tests::model::messages::Answer;
use takopi_tests::runs::run;

use super::lab::{Lab, session};
use crate::real::lab::Ran;

/// Claude Code itself would answer all four and keep one.
#[tokio::test]
async fn four_processes_on_one_session_are_all_answered_and_remembered_in_order() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.when("begin", "begun");
    lab.model.when("prompt 0", Answer::new().wait_for(&gate).block("answer 0"));
    for n in 1..4 {
        lab.model.when(&format!("prompt {n}"), Answer::text(format!("answer {n}")));
    }
    lab.model.when("at last", "the end");
    let begun = lab.run(&["run", "begin"]).await;
    let id = session(&begun);

    let prompts: Vec<String> = (0..4).map(|n| format!("prompt {n}")).collect();
    let mut running = vec![lab.start(&["run", "--resume", id, &prompts[0]])];
    gate.reached().await;
    for prompt in &prompts[1..] {
        let mut next = lab.start(&["run", "--resume", id, prompt]);
        next.wait_for("▸ waiting for the session, held by process ").await;
        running.push(next);
    }
    assert_eq!(lab.model.requests().len(), 2, "the others wait");
    gate.open();
    for (n, running) in running.into_iter().enumerate() {
        let Ran { code, stdout, stderr } = running.end().await;
        assert_eq!((code, stdout), (Some(0), format!("answer {n}\n")), "{stderr}");
    }
    let last = lab.run(&["run", "--resume", id, "-q", "at last"]).await;
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    let history = lab.model.requests_about("at last")[0].history();
    let mut expected = vec!["user: begin".to_owned(), "assistant: begun".to_owned()];
    for n in 0..4 {
        expected.extend([format!("user: prompt {n}"), format!("assistant: answer {n}")]);
    }
    expected.push("user: at last".to_owned());
    assert_eq!(history, expected);
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_warm_session_of_a_program_is_used_by_the_command_and_then_by_the_program_again() {
    let Some(lab) = Lab::new() else { return };
    for (prompt, answer) in [("one", "1"), ("two", "2"), ("three", "3")] {
        lab.model.when(prompt, answer);
    }
    let host = Host::builder().state_directory(lab.home.state()).build().unwrap();
    let claude = Claude::new().binary(&lab.claude.path).keep_warm(Duration::from_hours(1));
    let program = claude.runner().on(host);
    let first = run(&program, lab.home.request("one")).await;
    let session = first.session();
    assert_eq!(lab.home.claudes(&lab.claude).len(), 1, "the program keeps it warm");
    let second = lab.run(&["run", "--resume", &session.value, "-q", "two"]).await;
    assert_eq!((second.code, second.stdout.as_str()), (Some(0), "2\n"), "{}", second.stderr);
    let third = run(&program, lab.home.request("three").resume(session)).await;
    assert_eq!(third.ok().answer, "3");
    assert_eq!(lab.model.requests()[2].user_texts(), ["one", "two", "three"]);
    program.shutdown().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn two_programs_that_keep_one_session_warm_take_turns_and_lose_no_prompt() {
    let Some(lab) = Lab::new() else { return };
    lab.model.when("begin", "begun");
    for n in 0..4 {
        lab.model.when(&format!("prompt {n}"), Answer::text(format!("answer {n}")));
    }
    lab.model.when("at last", "the end");
    let program = || {
        let host = Host::builder().state_directory(lab.home.state()).build().unwrap();
        let claude = Claude::new().binary(&lab.claude.path).keep_warm(Duration::from_hours(1));
        claude.runner().on(host)
    };
    let (one, other) = (program(), program());
    let session = run(&one, lab.home.request("begin")).await.session();
    let ask = async |n: usize| {
        let request = lab.home.request(&format!("prompt {n}")).resume(session.clone());
        let seen = run(if n.is_multiple_of(2) { &one } else { &other }, request).await;
        assert_eq!(seen.ok().answer, format!("answer {n}"));
    };
    tokio::join!(ask(0), ask(1), ask(2), ask(3));
    one.shutdown().await;
    other.shutdown().await;
    let last = lab.run(&["run", "--resume", &session.value, "-q", "at last"]).await;
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    let mut history = lab.model.requests_about("at last")[0].history();
    let mut pairs: Vec<Vec<String>> =
        history.drain(2..10).collect::<Vec<_>>().chunks(2).map(Into::into).collect();
    pairs.sort();
    let expected: Vec<Vec<String>> = (0..4)
        .map(|n| vec![format!("user: prompt {n}"), format!("assistant: answer {n}")])
        .collect();
    assert_eq!(pairs, expected);
    assert_eq!(history, ["user: begin", "assistant: begun", "user: at last"]);
    lab.home.assert_no_processes().await;
}
