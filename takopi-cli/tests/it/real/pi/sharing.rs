//! One session in many processes: no prompt is lost.

use takopi_tests::model::Gate;
use takopi_tests::model::chat::Answer;

use super::lab::{Lab, session};
use crate::real::lab::Ran;

/// pi itself would answer all four and keep one.
#[tokio::test]
async fn four_processes_on_one_session_are_all_answered_and_remembered_in_order() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.when("begin", "begun");
    lab.model.when("prompt 0", Answer::new().wait_for(&gate).delta("answer 0"));
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
