//! Text that is being written: it is not lost, and stays in its conversation.

use serde_json::json;

use super::server::{Server, answers, post, say, visit};
use crate::real::lab::Lab;

/// The next message is held until `refuse()`.
const HOLD: &str = "
    window.real ??= window.fetch;
    window.refuse = null;
    window.fetch = (path, ...more) => path !== 'send' ? real(path, ...more) : new Promise(done => {
        window.refuse = () => { window.fetch = real; done(new Response('not now', { status: 503 })); };
    }); 0";
const FIELD: &str = "document.querySelector('textarea').value";

#[tokio::test]
async fn text_that_cannot_be_sent_comes_back_to_its_conversation() {
    let Some(lab) = Lab::new() else { return };
    let server =
        Server::start(&lab, &["--engine", "demo", "--approve", "accept", "-c", "pace=1ms"]).await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "first").await;
    answers(&mut page, 1).await;
    let refused = "document.querySelector('#state.bad')?.innerText === 'not now'";

    page.eval(HOLD).await;
    say(&mut page, "sent").await;
    page.wait_for("window.refuse !== null").await;
    page.type_text("written meanwhile").await;
    page.eval("refuse(); 0").await;
    page.wait_for(refused).await;
    assert_eq!(page.eval(FIELD).await, "sent\nwritten meanwhile");

    page.eval("compose(''); setStatus(''); 0").await;
    page.eval(HOLD).await;
    say(&mut page, "sent").await;
    page.wait_for("window.refuse !== null").await;
    page.click("#new").await;
    page.type_text("another").await;
    page.eval("refuse(); 0").await;
    page.wait_for(refused).await;
    assert_eq!(page.eval(FIELD).await, "another");
    page.click("#now button").await;
    assert_eq!(page.eval(FIELD).await, "sent");

    // Another page closes the conversation.
    let chat = page.eval("current").await;
    assert_eq!(post(&server, "/close", &json!({ "chat": chat })).0, 200);
    page.wait_for("document.querySelector('#title').innerText === 'New conversation'").await;
    assert_eq!(page.eval(FIELD).await, "another\nsent");
    page.assert_content();
    server.stop().await;
}
