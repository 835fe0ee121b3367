//! What a person does on the page, against the real codex.

use takopi_tests::browser::page_or_skip;
use takopi_tests::model::{Answer, Gate};

use super::server::{Server, answers, resume_line, say, text_of, visit};
use crate::real::lab::Lab;

#[tokio::test]
async fn a_message_is_answered_and_the_steps_of_the_agent_are_shown() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    let work = Answer::new().commentary("I will look first.").exec("echo hi; exit 3");
    let answer =
        "It says **hi**.\n\n```sh\necho hi\n```\n<script>document.title = 'hacked'</script>";
    lab.model.when("say hi", [work, Answer::new().wait_for(&gate).message(answer)]);
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };

    page.click("textarea").await;
    page.type_text("say hi").await;
    page.press_enter(true).await;
    page.type_text("<b>please</b>").await;
    page.press_enter(false).await;
    let failed = "document.querySelector('.progress [data-state=failed] .text')?.innerText";
    page.wait_for(&format!("{failed} === 'echo hi; exit 3'")).await;
    assert_eq!(text_of(&mut page, ".user .body").await, "say hi\n<b>please</b>");
    page.wait_for("document.querySelector('#now .about')?.innerText === 'working'").await;

    gate.open();
    answers(&mut page, 1).await;
    let shown = page.eval("document.querySelector('.final .answer').innerHTML").await;
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("<strong>hi</strong>"), "{shown}");
    assert!(shown.contains("<span class=\"k\">echo</span> hi\n</code>"), "{shown}");
    assert!(shown.contains("&lt;script&gt;") && shown.contains("&lt;/script&gt;"), "{shown}");
    // The title is written with the next frame.
    page.wait_for("document.title.startsWith('say hi')").await;

    let line = resume_line(&mut page).await;
    assert!(line.starts_with("codex resume "), "{line}");
    page.click("#resume button").await;
    page.wait_for("document.querySelector('#resume button').innerText.startsWith('Copied')").await;
    assert_eq!(page.eval("navigator.clipboard.readText()").await, line);

    // A page that comes later sees the same.
    page.open(&server.address).await;
    page.click("#now button").await;
    answers(&mut page, 1).await;
    assert_eq!(resume_line(&mut page).await, line);
    page.assert_content();
    assert_eq!(server.stop().await.code, Some(0));
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_second_message_waits_and_either_can_be_cancelled() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.when("first", Answer::new().wait_for(&gate).message("one"));
    lab.model.when("second", "two");
    lab.model.when("fourth", Answer::new().exec("sleep 600"));
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };

    say(&mut page, "first").await;
    gate.reached().await;
    say(&mut page, "second").await;
    page.wait_for("document.querySelector('.queued')?.innerText.includes('queued behind 1')").await;
    say(&mut page, "third").await;
    page.wait_for("document.querySelectorAll('.queued').length === 2").await;
    assert!(lab.model.requests_about("second").is_empty());

    // The one that waits last is cancelled, and never runs.
    page.eval("document.querySelectorAll('.queued')[1].id = 'last'").await;
    page.click("#last [data-press=stop]").await;
    page.wait_for_text("cancelled by browser; it had not started").await;
    gate.open();
    answers(&mut page, 3).await;
    assert!(lab.model.requests_about("third").is_empty());
    assert_eq!(lab.model.requests_about("second")[0].assistant_texts(), ["one"]);

    // One that runs is cancelled, with what it started.
    say(&mut page, "fourth").await;
    page.wait_for("document.querySelector('.progress')?.innerText.includes('sleep 600')").await;
    page.click(".progress [data-press=stop]").await;
    answers(&mut page, 4).await;
    page.wait_for_text("cancelled by browser").await;
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn an_approval_request_is_decided_on_the_page() {
    for (press, said, written) in
        [("accept", "accepted by browser", true), ("decline", "declined by browser", false)]
    {
        let Some(lab) = Lab::asking() else { return };
        lab.model.otherwise([Answer::new().add_file("new.txt", "new"), Answer::text("so be it")]);
        let server = Server::start(&lab, &[]).await;
        let Some(mut page) = visit(&server).await else { return };

        say(&mut page, "add a file").await;
        page.wait_for("document.querySelector('.question footer button')").await;
        let asked = text_of(&mut page, ".question").await;
        assert!(asked.contains("codex wants to change files\nadd new.txt (+1)"), "{asked}");
        page.wait_for("document.querySelector('#now .about').innerText === 'waiting for approval'")
            .await;
        page.click(&format!(".question [data-press={press}]")).await;
        answers(&mut page, 1).await;
        page.wait_for(&format!("document.querySelector('.question').innerText.includes('{said}')"))
            .await;
        assert_eq!(
            page.eval("document.querySelectorAll('.question footer button').length").await,
            0
        );
        assert_eq!(lab.home.workspace().join("new.txt").exists(), written, "{press}");
        page.assert_content();
        server.stop().await;
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn after_a_restart_a_conversation_is_resumed_from_the_open_page_the_list_or_its_line() {
    let Some(lab) = Lab::new() else { return };
    lab.model.when("remember", "I will remember **7**.");
    lab.model.when("which number", "It was 7.");
    lab.model.when("once more", "Still 7.");
    lab.model.when("at last", "And 7 in the end.");
    let server = Server::start_to_return(&lab).await;
    let host = server.host().to_owned();
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "remember a number").await;
    answers(&mut page, 1).await;
    let line = resume_line(&mut page).await;

    // The page that is open sees the server go, and finds its session again when it is back.
    page.click("textarea").await;
    page.type_text("not sent yet").await;
    server.kill().await;
    page.wait_for("document.querySelector('#state').className === 'bad'").await;
    let server = Server::start_at(&lab, &host, &[]).await;
    page.wait_for("document.querySelector('.agent .answer')?.innerText === 'I will remember 7.'")
        .await;
    assert_eq!(resume_line(&mut page).await, line);
    assert_eq!(page.eval("document.querySelector('textarea').value").await, "not sent yet");
    page.eval("compose(''); 0").await;
    say(&mut page, "which number was it?").await;
    answers(&mut page, 1).await;
    let heard = lab.model.requests_about("which number")[0].assistant_texts();
    assert_eq!(heard, ["I will remember **7**."]);

    // A page that knows nothing finds it in the list.
    server.kill().await;
    let server = Server::start_at(&lab, &host, &[]).await;
    page.open("about:blank").await;
    page.open(&server.address).await;
    page.wait_for("document.querySelector('#earlier .name')?.innerText === 'remember a number'")
        .await;
    assert_eq!(page.eval("document.querySelectorAll('#now li').length").await, 0);
    page.click("#earlier button").await;
    page.wait_for("document.querySelectorAll('.agent').length === 2").await;
    say(&mut page, "once more").await;
    answers(&mut page, 1).await;

    // A pasted resume line opens it too.
    server.kill().await;
    let server = Server::start_at(&lab, &host, &[]).await;
    page.open("about:blank").await;
    page.open(&server.address).await;
    page.click("#open input").await;
    page.type_text(&format!("`{line}`")).await;
    page.press_enter(false).await;
    page.wait_for("document.querySelectorAll('.agent').length === 3").await;
    say(&mut page, "at last").await;
    answers(&mut page, 1).await;
    let heard = lab.model.requests_about("at last")[0].assistant_texts();
    assert_eq!(heard, ["I will remember **7**.", "It was 7.", "Still 7."]);
    assert_eq!(resume_line(&mut page).await, line);
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn only_valid_sessions_are_opened_and_an_engine_can_be_named() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--approve", "accept"]).await;
    let Some(mut page) = visit(&server).await else { return };
    page.click("#open input").await;
    page.type_text("yesterday's").await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('#state.bad')?.innerText.includes('not a session')")
        .await;
    // An id that could be one, and is not.
    page.eval("document.querySelector('#open').reset(); 0").await;
    page.click("#open input").await;
    page.type_text("01a1e21b-26e5-7eb0-9d27-459e98f10b74").await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('#state.bad')?.innerText.includes('cannot be opened')")
        .await;
    assert_eq!(page.eval("document.querySelectorAll('#now li').length").await, 0);
    say(&mut page, "/demo hello").await;
    page.wait_for_text("You said: hello").await;
    // The session is the demo's, and codex cannot go on with it.
    say(&mut page, "/codex go on").await;
    page.wait_for("document.querySelector('.notice')?.innerText.includes('names codex')").await;
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn a_token_in_the_address_becomes_a_cookie_and_leaves_the_address() {
    let Some(lab) = Lab::new() else { return };
    let args = ["--engine", "demo", "--approve", "accept", "--token", "correct-horse-battery"];
    let server = Server::start(&lab, &args).await;
    let Some(mut page) = page_or_skip().await else { return };
    page.open(&format!("http://{}/", server.host())).await;
    page.wait_for_text("paste it here").await;
    page.open(&server.address).await;
    say(&mut page, "hello").await;
    answers(&mut page, 1).await;
    let address = page.eval("location.href").await;
    assert!(!address.as_str().unwrap().contains("token"), "{address}");
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn the_token_is_asked_for_in_a_form() {
    let Some(lab) = Lab::new() else { return };
    let args = ["--engine", "demo", "--approve", "accept", "--token", "correct-horse-battery"];
    let server = Server::start(&lab, &args).await;
    let Some(mut page) = page_or_skip().await else { return };
    page.open(&format!("http://{}/", server.host())).await;
    for (token, then) in [
        ("wrong-horse-battery", "This is not the token."),
        ("correct-horse-battery", "New conversation"),
    ] {
        page.click("input").await;
        page.type_text(token).await;
        page.press_enter(false).await;
        // The page may be on its way from one document to the next.
        page.wait_for_text(then).await;
    }
    say(&mut page, "hello").await;
    answers(&mut page, 1).await;
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn the_page_fits_a_phone_and_every_control_has_a_label() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--engine", "demo"]).await;
    let Some(mut page) = page_or_skip().await else { return };
    page.look((360, 640), "dark").await;
    page.open(&server.address).await;
    say(&mut page, &format!("look at {}", "a/very/long/path".repeat(20))).await;
    page.wait_for("document.querySelector('.question footer button')").await;
    page.click(".question [data-press=accept]").await;
    answers(&mut page, 1).await;
    assert_eq!(page.eval("document.documentElement.scrollWidth").await, 360);
    // The list of conversations is a drawer here.
    let hidden = "getComputedStyle(document.querySelector('nav')).visibility";
    assert_eq!(page.eval(hidden).await, "hidden");
    page.click("#menu").await;
    page.wait_for("document.body.classList.contains('menu')").await;
    assert_eq!(page.eval(hidden).await, "visible");
    page.click("#now button").await;
    page.wait_for("!document.body.classList.contains('menu')").await;
    let nameless = page
        .eval(
            "[...document.querySelectorAll('button, input, textarea, [role=log]')]
                .filter(it => !(it.ariaLabel || it.innerText || it.textContent).trim())
                .map(it => it.outerHTML)",
        )
        .await;
    assert_eq!(nameless, serde_json::json!([]));
    page.assert_content();
    server.stop().await;
}
