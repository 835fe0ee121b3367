//! Claude Code on the page, and beside codex: approvals, questions, sessions of both.

use takopi_tests::browser::Page;
use takopi_tests::model::messages::Answer;

use super::server::{Server, answers, resume_line, say, text_of, visit};
use crate::real::claude::approvals::{question, told};
use crate::real::claude::chat::Beside;
use crate::real::claude::lab::Lab;
use crate::real::lab::Running;

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// Waits for a request that can be decided.
async fn asked(page: &mut Page) -> String {
    page.wait_for("document.querySelector('.question footer button')").await;
    text_of(page, ".question:has(footer button)").await
}

#[tokio::test]
async fn approvals_and_questions_of_claude_code_are_answered_on_the_page() {
    let Some(lab) = Lab::new() else { return };
    let touch = Answer::new().bash(&format!("touch {}", lab.path("asked")));
    lab.model.when("touch it", [touch.clone(), touch, Answer::text("Touched.")]);
    let write = Answer::new().write_file(lab.path("new.txt"), "new\n");
    lab.model.when("write it", [write, Answer::text("Not written.")]);
    let ask = Answer::call("AskUserQuestion", question());
    lab.model.when("paint it", [ask, Answer::text("Thanks.")]);
    let server = Server::of(lab.start(&SERVE)).await;
    let Some(mut page) = visit(&server).await else { return };

    say(&mut page, "touch it").await;
    let command = asked(&mut page).await;
    assert!(command.contains("claude wants to run a command\ntouch "), "{command}");
    // The second command is the same.
    page.click(".question [data-press=accept_for_session]").await;
    answers(&mut page, 1).await;
    assert!(lab.home.workspace().join("asked").exists());
    assert_eq!(page.eval("document.querySelectorAll('.question').length").await, 1);
    page.wait_for_text("accepted for the session by browser").await;

    say(&mut page, "write it").await;
    let change = asked(&mut page).await;
    assert!(change.contains("claude wants to change files\n"), "{change}");
    assert!(change.contains("new.txt") && change.contains("+new"), "{change}");
    page.click(".question [data-press=decline]").await;
    answers(&mut page, 2).await;
    assert!(!lab.home.workspace().join("new.txt").exists());

    say(&mut page, "paint it").await;
    let color = asked(&mut page).await;
    for line in [
        "claude has a question\nColor: Which color?\n(1) Red: warm\n(2) Blue: cold\n",
        "answer with your next message: Red, Blue, or your own text",
    ] {
        assert!(color.contains(line), "{line}: {color}");
    }
    let accept = "document.querySelectorAll('.question [data-press=accept]').length";
    assert_eq!(page.eval(accept).await, 0, "it needs an answer");
    say(&mut page, "blue").await;
    answers(&mut page, 3).await;
    assert!(told(&lab).contains("Blue"), "{}", told(&lab));
    page.assert_content();
    assert_eq!(server.stop().await.code, Some(0));
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn conversations_with_both_engines_are_listed_and_resumed_after_a_restart() {
    let (Some(lab), Some(beside)) = (Lab::new(), Beside::new()) else { return };
    lab.model.when("claude, remember", "claude has **7**");
    lab.model.when("claude again", "claude had 7");
    beside.model.when("codex, remember", "codex has 8");
    beside.model.when("codex again", "codex had 8");
    let start = || {
        let mut command = lab.takopi(&SERVE);
        beside.join(&mut command);
        Server::of(Running::new(&mut command))
    };
    let server = start().await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "/claude claude, remember 7").await;
    answers(&mut page, 1).await;
    let line = resume_line(&mut page).await;
    assert!(line.starts_with("claude --resume "), "{line}");
    page.click("#new").await;
    say(&mut page, "/codex codex, remember 8").await;
    answers(&mut page, 1).await;
    let other = resume_line(&mut page).await;
    assert!(other.starts_with("codex resume "), "{other}");
    server.kill().await;

    let server = start().await;
    page.open("about:blank").await;
    page.open(&server.address).await;
    page.wait_for("document.querySelectorAll('#earlier .name').length === 2").await;
    for (line, seen, prompt) in
        [(&line, "claude has 7", "claude again"), (&other, "codex has 8", "codex again")]
    {
        page.click("#open input").await;
        page.type_text(line).await;
        page.press_enter(false).await;
        page.wait_for(&format!("document.querySelector('.agent .answer')?.innerText === '{seen}'"))
            .await;
        say(&mut page, prompt).await;
        answers(&mut page, 1).await;
        assert_eq!(resume_line(&mut page).await, *line);
    }
    assert_eq!(lab.model.requests_about("claude again")[0].assistant_texts(), ["claude has **7**"]);
    assert_eq!(beside.model.requests_about("codex again")[0].assistant_texts(), ["codex has 8"]);
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}
