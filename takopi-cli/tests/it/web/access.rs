//! The page for everyone: what axe-core finds, and the keyboard alone.

use takopi_tests::browser::axe_or_skip;
use takopi_tests::model::{Answer, Gate};

use super::server::{Server, answers, say, visit};
use crate::real::lab::Lab;

#[tokio::test]
async fn axe_finds_nothing_serious_in_light_and_dark() {
    let Some(lab) = Lab::asking() else { return };
    let Some(axe) = tokio::task::spawn_blocking(axe_or_skip).await.unwrap() else { return };
    let gate = Gate::new();
    let rich = "# Title\n\nSome **text** with `code`, https://example.org and:\n\n- [x] done\n- [ ] open\n\n\
        | a | b |\n|---|--:|\n| x | 1 |\n\n```rust\n// A comment\nfn main() { let a: Vec<u8> = f(1, \"s\"); }\n```\n\n\
        ```diff\n@@ -1 +1 @@\n-old\n+new\n```\n\n> quoted";
    let failing = Answer::new().exec("ls /nowhere");
    lab.model.when("rich", [failing, Answer::text(rich)]);
    lab.model.when(
        "change",
        [Answer::new().add_file("new.txt", "new"), Answer::new().wait_for(&gate).message("Done.")],
    );
    lab.model.when("queued", "Done.");
    lab.model.when("fails", Answer::status(400, "no"));
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    let mut found = Vec::new();
    let mut check = async |page: &mut takopi_tests::browser::Page, what: &str| {
        for scheme in ["light", "dark"] {
            for size in [(1100, 720), (375, 740)] {
                page.look(size, scheme).await;
                let violations = page.serious_violations(&axe).await;
                found.extend(
                    violations.into_iter().map(|it| format!("{what}, {scheme}, {size:?}: {it}")),
                );
            }
        }
    };
    check(&mut page, "new").await;
    say(&mut page, "rich").await;
    answers(&mut page, 1).await;
    page.eval("document.querySelector('.final .steps').open = true; 0").await;
    say(&mut page, "change").await;
    page.wait_for("document.querySelector('.question footer button')").await;
    say(&mut page, "queued").await;
    page.wait_for("document.querySelector('.queued')").await;
    check(&mut page, "asking").await;
    page.click(".question [data-press=decline]").await;
    gate.open();
    answers(&mut page, 3).await;
    page.eval("document.querySelector('#new').click(); 0").await;
    say(&mut page, "fails").await;
    answers(&mut page, 1).await;
    check(&mut page, "failed").await;
    page.eval("document.querySelector('#help').showModal(); 0").await;
    check(&mut page, "help").await;
    assert!(found.is_empty(), "{found:#?}");
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn everything_is_reached_and_done_with_the_keyboard() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--engine", "demo", "-c", "pace=1ms"]).await;
    let Some(mut page) = visit(&server).await else { return };
    page.wait_for("document.activeElement.matches('textarea')").await;
    page.type_text("change a file").await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('.question footer button')").await;
    assert_eq!(
        page.eval("document.activeElement.matches('textarea')").await,
        true,
        "the focus stays"
    );
    page.press_key("a", 65, true).await;
    page.wait_for("document.activeElement.closest('.question')").await;
    page.press_enter(false).await;
    answers(&mut page, 1).await;
    // The button is gone; the focus is not.
    page.wait_for("document.activeElement.matches('textarea')").await;
    page.press_key("n", 78, true).await;
    page.wait_for("document.querySelector('#title').innerText === 'New conversation'").await;
    // In the order of the page: from the first button to the field and its button, without a trap.
    let mut stops = Vec::new();
    page.eval("document.querySelector('#new').focus(); 0").await;
    for _ in 0..20 {
        let at = page.eval("document.activeElement.id || document.activeElement.name || document.activeElement.tagName").await;
        stops.push(at.as_str().unwrap().to_owned());
        page.press_key("Tab", 9, false).await;
    }
    let place = |name: &str| {
        stops.iter().position(|stop| stop == name).unwrap_or_else(|| panic!("{name}: {stops:?}"))
    };
    assert!(
        place("new") < place("session")
            && place("session") < place("cwd")
            && place("cwd") < place("text"),
        "{stops:?}"
    );
    page.assert_content();
    server.stop().await;
}
