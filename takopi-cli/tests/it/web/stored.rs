//! Stored sessions on the page: found by what was said in them, opened with what was done; and projects.

use std::process::Command;

use serde_json::{Value, json};
use takopi_tests::model::Answer;

use super::server::{Server, answers, post, say, text_of, visit};
use crate::real::lab::Lab;

#[tokio::test]
async fn a_session_is_found_by_what_was_said_in_it_and_opens_with_its_steps() {
    let Some(lab) = Lab::new() else { return };
    let failing = Answer::new().commentary("I will look.").exec("echo wrong; exit 3");
    lab.model.when(
        "octopus",
        [failing, Answer::new().exec("echo fine"), Answer::text("It has **three** hearts.")],
    );
    lab.model.when("squid", "Also three, of a kind.");
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "describe an octopus").await;
    answers(&mut page, 1).await;
    page.click("#new").await;
    say(&mut page, "and a squid").await;
    answers(&mut page, 1).await;
    server.stop().await;

    let server = Server::start(&lab, &[]).await;
    page.open("about:blank").await;
    page.open(&server.address).await;
    page.wait_for("document.querySelectorAll('#earlier li').length === 2").await;
    // Words of the answer, in another order and case.
    page.click("#open input").await;
    page.type_text("HEARTS three").await;
    page.wait_for("document.querySelectorAll('#earlier li').length === 1").await;
    assert_eq!(text_of(&mut page, "#earlier .name").await, "describe an octopus");
    let about = text_of(&mut page, "#earlier .about").await;
    assert!(about.contains("It has **three** hearts."), "{about}");
    page.press_enter(false).await;
    page.wait_for("document.querySelector('.agent .answer strong')?.innerText === 'three'").await;
    let line = text_of(&mut page, ".agent .steps summary").await;
    assert!(line.contains("3 steps") && line.contains("1 failed"), "{line}");
    assert_eq!(page.eval("document.querySelector('.agent .steps').open").await, false);
    page.click(".agent .steps > summary").await;
    let failed = text_of(&mut page, ".agent [data-state=failed]").await;
    assert!(failed.contains("exit 3") && failed.contains("echo wrong"), "{failed}");
    assert!(text_of(&mut page, ".agent .steps").await.contains("I will look."));
    page.click(".agent .tools button").await;
    page.wait_for("document.querySelector('.agent .tools button').innerText.startsWith('Copied')")
        .await;
    assert_eq!(page.eval("navigator.clipboard.readText()").await, "It has **three** hearts.");

    page.click("#open input").await;
    page.type_text("no such words").await;
    page.wait_for("document.querySelector('#none:not([hidden])')").await;
    assert_eq!(text_of(&mut page, "#none").await, "No session has these words.");
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_conversation_runs_in_the_project_and_branch_that_were_chosen() {
    let Some(lab) = Lab::new() else { return };
    lab.model.when(
        "where",
        [Answer::new().exec("pwd; git branch --show-current"), Answer::text("Here.")],
    );
    lab.model
        .when("still", [Answer::new().exec("git branch --show-current"), Answer::text("Yes.")]);
    let repository = lab.home.workspace().join("web");
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        let ran = Command::new("git").arg("-C").arg(&repository).args(identity).args(args).output();
        assert!(ran.unwrap().status.success(), "{args:?}");
    };
    std::fs::create_dir(&repository).unwrap();
    git(&["init", "--quiet", "-b", "main"]);
    git(&["commit", "--quiet", "--allow-empty", "-m", "first"]);
    let config = lab.home.workspace().join("config.toml");
    std::fs::write(
        &config,
        format!("[projects.web]\npath = {}\nmodel = 'of-the-project'\n", json!(repository)),
    )
    .unwrap();
    let server = Server::start(&lab, &["--config", config.to_str().unwrap()]).await;
    let Some(mut page) = visit(&server).await else { return };
    page.wait_for("document.querySelector('#choice [name=project]').options.length === 2").await;
    assert_eq!(page.eval("document.querySelector('[name=branch]').parentNode.hidden").await, true);
    page.eval(
        "(() => { const field = document.querySelector('#choice [name=project]');
            field.value = 'web'; field.dispatchEvent(new Event('change')); })()",
    )
    .await;
    assert_eq!(page.eval("document.querySelector('#choice [name=cwd]').disabled").await, true);
    assert_eq!(
        page.eval("document.querySelector('#choice [name=cwd]').value").await,
        json!(repository)
    );
    page.click("#choice [name=branch]").await;
    page.type_text("fix/tabs").await;
    say(&mut page, "where are you").await;
    answers(&mut page, 1).await;
    page.eval("for (const it of document.querySelectorAll('.final details')) it.open = true; 0")
        .await;
    let steps = text_of(&mut page, ".final .steps").await;
    assert!(steps.contains("fix/tabs"), "{steps}");
    assert_eq!(text_of(&mut page, ".user .body").await, "where are you");
    let about = text_of(&mut page, "#about").await;
    assert!(about.starts_with("web · @fix/tabs"), "{about}");
    // Later messages run there too.
    say(&mut page, "still there?").await;
    answers(&mut page, 2).await;
    page.eval("for (const it of document.querySelectorAll('.final details')) it.open = true; 0")
        .await;
    let steps = page.eval("[...document.querySelectorAll('.final .steps')].at(-1).innerText").await;
    assert!(steps.as_str().unwrap().contains("fix/tabs"), "{steps}");
    let models: Vec<Value> =
        lab.model.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert!(models.iter().all(|model| model == "of-the-project"), "{models:?}");

    let wrong = post(&server, "/send", &json!({ "text": "x", "choice": { "project": "nope" } }));
    assert!(wrong.0 == 400 && wrong.1.contains("nope"), "{wrong:?}");
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_message_that_would_run_in_the_wrong_place_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let (web, clone) = (lab.home.workspace().join("web"), lab.home.workspace().join("clone"));
    for path in [&web, &clone] {
        std::fs::create_dir(path).unwrap();
    }
    let config = lab.home.workspace().join("config.toml");
    let table = |name: &str, path| format!("[projects.{name}]\npath = {}\n", json!(path));
    std::fs::write(&config, table("web", &web) + &table("clone", &clone)).unwrap();
    let args = ["--engine", "demo", "--approve", "deny"];
    let with: Vec<&str> = ["--config", config.to_str().unwrap()].into_iter().chain(args).collect();
    let server = Server::start(&lab, &with).await;
    let send = |body: Value| post(&server, "/send", &body);
    let (code, body) = send(json!({ "text": "/web hello" }));
    assert_eq!(code, 200, "{body}");
    let chat = serde_json::from_str::<Value>(&body).unwrap()["chat"].clone();
    let (code, said) = send(json!({ "chat": chat, "text": "/clone hello" }));
    assert_eq!(code, 400);
    assert!(said.contains("this conversation runs in ") && said.contains("`ctx: clone`"), "{said}");
    assert_eq!(send(json!({ "chat": chat, "text": "/web and on" })).0, 200, "the same place");
    let (code, said) = send(json!({ "text": "/web" }));
    assert!(code == 400 && said.contains("says nothing"), "{said}");
    server.stop().await;

    // Names are read without projects too.
    let server = Server::start(&lab, &args).await;
    let (code, said) = post(&server, "/send", &json!({ "text": "/nope hello" }));
    assert!(code == 400 && said.contains("/nope is no engine, project or command"), "{said}");
    assert_eq!(post(&server, "/send", &json!({ "text": "/usr/bin is there" })).0, 200);
    server.stop().await;
    lab.home.assert_no_processes().await;
}
