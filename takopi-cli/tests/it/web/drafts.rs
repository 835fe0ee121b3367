//! Text that is being written: it is not lost, and stays in its conversation.

use serde_json::{Value, json};
use takopi_tests::browser::Page;

use super::server::{Server, answers, post, say, visit};
use crate::real::lab::Lab;

/// The next message is held until `refuse()` or `pass()`.
const HOLD: &str = "
    window.real ??= window.fetch;
    window.refuse = window.pass = null;
    window.fetch = (path, ...more) => path !== 'send' ? real(path, ...more) : new Promise(done => {
        window.pass = () => { window.fetch = real; done(real(path, ...more)); };
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

#[tokio::test]
async fn no_page_loses_what_another_one_writes() {
    let Some(lab) = Lab::new() else { return };
    let server =
        Server::start(&lab, &["--engine", "demo", "--approve", "accept", "-c", "pace=1ms"]).await;
    let Some(mut page) = visit(&server).await else { return };
    let close = |chat: &Value| assert_eq!(post(&server, "/close", &json!({ "chat": chat })).0, 200);
    let draft = |chat: &Value| format!("store.get('draft.' + {chat})");
    let begin = async |page: &mut Page| {
        page.click("#new").await;
        page.eval("compose(''); 0").await;
        say(page, "hello").await;
        answers(page, 1).await;
        page.eval("current").await
    };

    // Another page writes in a conversation that is not shown here, or a message came back to it.
    let other = begin(&mut page).await;
    page.click("#new").await;
    page.eval(&format!("compose('here'); store.set('draft.' + {other}, 'there'); 0")).await;
    close(&other);
    page.wait_for(&format!("!chats.has({other})")).await;
    assert_eq!(page.eval(FIELD).await, "here\nthere");
    let another = begin(&mut page).await;
    page.click("#new").await;
    page.eval(&format!(
        "compose('here'); store.set('draft.new', 'theirs'); store.set('draft.' + {another}, 'there'); 0"
    ))
    .await;
    close(&another);
    page.wait_for(&format!("!chats.has({another})")).await;
    assert_eq!(page.eval(FIELD).await, "theirs\nthere\nhere");
    assert_eq!(page.eval(&draft(&other)).await, Value::Null);

    // Another page was first to see the end of a conversation that is shown here, and has moved its text, or has not.
    for moved in ["", "mine", "theirs\nmine"] {
        let shown = begin(&mut page).await;
        page.click("textarea").await;
        page.type_text("mine").await;
        let moved_by_other = format!(
            "store.set('draft.' + {shown}, ''); store.set('draft.new', {}); 0",
            json!(moved)
        );
        page.eval(&moved_by_other).await;
        close(&shown);
        page.wait_for("document.querySelector('#title').innerText === 'New conversation'").await;
        let expected = if moved.is_empty() { "mine" } else { moved };
        assert_eq!(page.eval(FIELD).await, expected);
    }

    // Another page begins a conversation, too.
    page.eval("compose(''); 0").await;
    page.eval(HOLD).await;
    say(&mut page, "hello").await;
    page.wait_for("window.pass !== null").await;
    page.type_text("mine").await;
    page.eval("store.set('draft.new', 'theirs'); pass(); 0").await;
    page.wait_for("current !== null").await;
    assert_eq!(page.eval(FIELD).await, "mine");
    assert_eq!(page.eval("store.get('draft.new')").await, "theirs");
    page.assert_content();
    server.stop().await;
}
