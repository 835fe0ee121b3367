//! A chat on the real codex.

use takopi_tests::model::{Answer, Gate};
use tokio::io::AsyncWriteExt as _;

use super::lab::Lab;

#[tokio::test]
async fn lines_of_a_pipe_are_one_conversation_and_wait_for_each_other() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.when("first", Answer::new().wait_for(&gate).message("one"));
    lab.model.when("second", [Answer::new().exec("echo hi"), Answer::text("two")]);
    let (mut chat, mut input) = lab.start_with_input(&["chat"]);
    input.write_all(b"first\nsecond\n").await.unwrap();
    gate.reached().await;
    chat.wait_for("queued behind 1").await;
    assert!(lab.model.requests_about("second").is_empty());
    drop(input);
    gate.open();
    let ran = chat.end().await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "one\ntwo\n"), "{}", ran.stderr);
    assert_eq!(lab.model.requests_about("second")[0].assistant_texts(), ["one"]);
    ran.resume_line();
    lab.home.assert_no_processes().await;
}
