//! Runs, resumed runs, runs cut short, runs that wait for each other.

use nix::sys::signal::Signal;
use takopi_core::TakopiEvent;
use takopi_tests::model::{Answer, Gate};

use super::lab::{Lab, TRANSPORTS};

#[tokio::test]
async fn a_run_and_its_resumption_by_line_and_by_last() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        let script = [Answer::new().exec("echo hi; exit 3"), Answer::text("It says **hi**.")];
        lab.model.when("say hi", script);
        lab.model.when("once more", "hi again\n");
        lab.model.when("and last", "the end");

        let first = lab.run(&["run", "--transport", transport, "say hi"]).await;
        assert_eq!((first.code, first.stdout.as_str()), (Some(0), "It says **hi**.\n"));
        assert!(first.stderr.contains("✗ echo hi; exit 3 (exit 3)\n"), "{}", first.stderr);

        let line = format!("done\n`{}`", first.resume_line());
        let again = ["run", "--transport", transport, "--resume", &line, "once more"];
        let again = lab.run(&again).await;
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), "hi again\n"));
        assert_eq!(again.resume_line(), first.resume_line());

        let last = lab.run(&["run", "--transport", transport, "--last", "-q", "and last"]).await;
        assert_eq!((last.code, last.stdout.as_str()), (Some(0), "the end\n"));
        assert_eq!(last.stderr, "");
        let said = lab.model.requests_about("and last")[0].assistant_texts();
        assert_eq!(said, ["It says **hi**.", "hi again\n"]);
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn json_is_the_stream_of_events() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        lab.model.otherwise("hello");
        let ran = lab.run(&["run", "--transport", transport, "--json", "hi"]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        let events: Vec<TakopiEvent> =
            ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let Some(TakopiEvent::Completed(completed)) = events.last() else { panic!("{events:?}") };
        assert_eq!((completed.ok, completed.answer.as_str()), (true, "hello"));
    }
}

#[tokio::test]
async fn control_c_in_the_middle_of_a_command_leaves_nothing_running() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        lab.model.otherwise(Answer::new().exec("sleep 600"));
        let mut running = lab.start(&["run", "--transport", transport, "sleep"]);
        running.wait_for("▸ sleep 600").await;
        running.signal(Signal::SIGINT);
        let ran = running.end().await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(130), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("✗ Codex · interrupted · "), "{}", ran.stderr);
        ran.resume_line();
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn two_prompts_for_one_session_are_answered_one_after_the_other() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        let gate = Gate::new();
        lab.model.when("begin", "begun");
        lab.model.when("first", Answer::new().wait_for(&gate).message("one"));
        lab.model.when("second", "two");
        let begun = lab.run(&["run", "--transport", transport, "begin"]).await;
        let session = begun.resume_line();

        let run = |prompt| ["run", "--transport", transport, "--resume", session, prompt];
        let first = lab.start(&run("first"));
        gate.reached().await;
        let mut second = lab.start(&run("second"));
        second.wait_for("▸ waiting for the session, held by process ").await;
        assert!(lab.model.requests_about("second").is_empty());
        gate.open();
        let (first, second) = tokio::join!(first.end(), second.end());
        assert_eq!((first.code, first.stdout.as_str()), (Some(0), "one\n"), "{}", first.stderr);
        assert_eq!((second.code, second.stdout.as_str()), (Some(0), "two\n"), "{}", second.stderr);
        let heard = lab.model.requests_about("second")[0].assistant_texts();
        assert_eq!(heard, ["begun", "one"]);
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn an_unknown_session_is_1_with_a_hint_and_no_resume_line() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        let session = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
        let ran = lab.run(&["run", "--transport", transport, "--resume", session, "hi"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("with `takopi sessions`"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("codex resume"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn a_refused_login_has_a_hint() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        lab.model.otherwise(Answer::status(401, "unauthorized"));
        let ran = lab.run(&["run", "--transport", transport, "hi"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("codex login"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn the_token_of_the_web_chat_does_not_reach_the_agent() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        let look = Answer::new().exec("test -z \"$TAKOPI_TOKEN\"");
        lab.model.otherwise([look, Answer::text("done")]);
        let mut takopi = lab.takopi(&["run", "--transport", transport, "look around"]);
        let output = takopi.env("TAKOPI_TOKEN", "correct-horse-battery").output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("✓ test -z"), "{said}");
    }
}
