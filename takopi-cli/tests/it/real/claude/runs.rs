//! Runs, their events, failures, and the sessions that the real Claude Code stores.

use serde_json::Value;
use takopi_core::TakopiEvent;
use takopi_tests::model::messages::Answer;

use super::lab::{Lab, resume_line, session};

#[tokio::test]
async fn a_run_and_its_resumption_by_line_and_by_last() {
    let Some(lab) = Lab::new() else { return };
    lab.model
        .when("say hi", [Answer::new().bash("echo hi; exit 3"), Answer::text("It says **hi**.")]);
    lab.model.when("once more", "hi again\n");
    lab.model.when("and last", "the end");
    let args = ["run", "--engine", "claude", "--permission-mode", "bypassPermissions", "say hi"];
    let first = lab.run(&args).await;
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "It says **hi**.\n"), "{first:?}");
    assert!(first.stderr.contains("✗ echo hi; exit 3 (exit 3)\n"), "{}", first.stderr);

    let line = format!("done\n`{}`", resume_line(&first));
    // The line names the engine.
    let again = ["run", "--resume", &line, "once more"];
    let again = lab.takopi(&again).env_remove("TAKOPI_ENGINE").output().await.unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "hi again\n");

    let last = lab.run(&["run", "--last", "-q", "and last"]).await;
    assert_eq!((last.code, last.stdout.as_str()), (Some(0), "the end\n"), "{last:?}");
    assert_eq!(last.stderr, "");
    let said = lab.model.requests_about("and last")[0].assistant_texts();
    assert_eq!(said, ["It says **hi**.", "hi again"]);

    let id = session(&first);
    let listed = lab.run(&["sessions", "--cd", "."]).await;
    let fields: Vec<&str> = listed.stdout.trim_end().split('\t').collect();
    assert_eq!((listed.code, fields[0], fields[1]), (Some(0), id, "claude"), "{listed:?}");
    assert!(fields.contains(&"say hi"), "{listed:?}");
    let shown = lab.run(&["sessions", "show", "--steps", &id[..13]]).await;
    assert_eq!(
        shown.stdout,
        "> say hi\n\n$ echo hi; exit 3 (exit 3)\n  │ hi\n\nIt says **hi**.\n\n> once more\n\nhi again\n\n> and last\n\nthe end\n\n"
    );
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn json_is_the_stream_of_events() {
    let Some(lab) = Lab::new() else { return };
    lab.model.otherwise("hello");
    let ran = lab.run(&["run", "--json", "hi"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let events: Vec<TakopiEvent> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(matches!(&events[0], TakopiEvent::Started(it) if it.engine.as_str() == "claude"));
    let Some(TakopiEvent::Completed(completed)) = events.last() else { panic!("{events:?}") };
    assert_eq!((completed.ok, completed.answer.as_str()), (true, "hello"));
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert!(last["usage"]["output_tokens"].as_u64().is_some_and(|it| it > 0), "{last}");
}

#[tokio::test]
async fn an_unknown_session_is_1_with_a_hint_and_no_resume_line() {
    let Some(lab) = Lab::new() else { return };
    let session = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";
    let ran = lab.run(&["run", "--resume", session, "hi"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("with `takopi sessions`"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("claude --resume"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_refused_login_has_a_hint_and_is_not_waited_for() {
    // As a user has it: ten retries, three minutes.
    let Some(lab) = Lab::with(|home| home.max_retries(10)) else { return };
    lab.model.otherwise(Answer::status(401, "invalid x-api-key"));
    let ran = lab.run(&["run", "hi"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("claude auth login"), "{}", ran.stderr);
    assert!(lab.model.requests().len() <= 3, "not ten tries");
}

#[tokio::test]
async fn doctor_accepts_the_real_claude_code() {
    let Some(lab) = Lab::new() else { return };
    let ran = lab.run(&["doctor", "--engine", "claude"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    for line in [
        format!("✓ claude   {}\n", lab.claude.path.display()),
        format!("✓ version  {}\n", lab.claude.version),
        "✓ login    API key (ANTHROPIC_API_KEY)\n".to_owned(),
        "✓ strays   none\n".to_owned(),
    ] {
        assert!(ran.stdout.contains(&line), "{line}{}", ran.stdout);
    }
    assert!(lab.model.requests().is_empty(), "no model is called");
    let mut out = lab.takopi(&["doctor", "--engine", "claude"]);
    let out = out.env_remove("ANTHROPIC_API_KEY").output().await.unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    assert!(out.contains("✗ login    not logged in\n"), "{out}");
}
