//! What a person sees who looks at another window: the title, the icon and notifications.

use serde_json::json;
use takopi_tests::browser::Page;

use super::server::{Server, answers, say, visit};
use crate::real::lab::Lab;

/// Another window is in front; what would be shown to the person is kept.
const LOOK_AWAY: &str = "
    window.told = [];
    window.Notification = class {
        static permission = 'granted';
        constructor(title, options) { told.push([title, options.body, options.silent]); }
    };
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => true }); 0";
const LOOK_BACK: &str =
    "delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); 0";

/// Waits until title and icon have this mark.
async fn wait_for_mark(page: &mut Page, sign: &str, state: &str) {
    let sign = json!(sign);
    page.wait_for(&format!(
        "document.title.startsWith({sign}) && document.querySelector('link[rel=icon]').dataset.state === '{state}'"
    ))
    .await;
    // The icon is drawn for it, and is not that of another state.
    let icon = page.eval("document.querySelector('link[rel=icon]').href").await;
    assert!(icon.as_str().unwrap().starts_with("data:image/svg+xml,"), "{icon}");
}

#[tokio::test]
async fn title_icon_and_notifications_tell_that_an_agent_asks_is_done_or_has_failed() {
    let Some(lab) = Lab::new() else { return };
    let args = ["--engine", "demo", "-c", "pace=1ms", "--codex-bin", "/nowhere/codex"];
    let server = Server::start(&lab, &args).await;
    let Some(mut page) = visit(&server).await else { return };
    page.eval(LOOK_AWAY).await;
    say(&mut page, "change it").await;
    wait_for_mark(&mut page, "? change it", "asks").await;
    assert_eq!(page.eval("told").await, json!([["change it", "waits for your approval", true]]));
    page.click(".question [data-press=accept]").await;
    answers(&mut page, 1).await;
    wait_for_mark(&mut page, "✓ ", "done").await;
    assert_eq!(page.eval("told.at(-1)").await, json!(["change it", "is done", true]));

    page.click("#new").await;
    say(&mut page, "/codex fail").await;
    wait_for_mark(&mut page, "✗ ", "failed").await;
    assert_eq!(page.eval("told.at(-1)").await, json!(["/codex fail", "failed", true]));

    // Who is back has seen it, and is told nothing more.
    page.eval(LOOK_BACK).await;
    wait_for_mark(&mut page, "/codex fail", "idle").await;
    page.click("#new").await;
    say(&mut page, "/codex fail again").await;
    answers(&mut page, 1).await;
    page.wait_for("document.querySelector('#now .about').innerText.startsWith('failed')").await;
    assert_eq!(page.eval("told.length").await, 3);
    wait_for_mark(&mut page, "/codex fail again", "idle").await;
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn notifications_are_shown_only_to_those_who_asked_for_them() {
    let Some(lab) = Lab::new() else { return };
    let args = ["--engine", "demo", "-c", "pace=1ms", "--approve", "accept"];
    let server = Server::start(&lab, &args).await;
    let Some(mut page) = visit(&server).await else { return };
    page.eval(LOOK_AWAY).await;
    page.eval("Notification.permission = 'default'; 0").await;
    say(&mut page, "first").await;
    answers(&mut page, 1).await;
    wait_for_mark(&mut page, "✓ ", "done").await;
    assert_eq!(page.eval("told").await, json!([]));
    // The button asks the browser, once.
    page.eval(
        "Notification.requestPermission = async () => { Notification.permission = 'granted'; return 'granted'; };
         document.querySelector('#notify').hidden = false; document.querySelector('#notify').click(); 0",
    )
    .await;
    page.wait_for("document.querySelector('#notify').hidden").await;
    say(&mut page, "second").await;
    answers(&mut page, 2).await;
    page.wait_for("told.length === 1").await;
    assert_eq!(page.eval("told[0]").await, json!(["first", "is done", true]));
    page.assert_content();
    server.stop().await;
}
