//! Failures of all versions, by their recordings.

use super::replay::{self, end, run};
use super::*;

#[track_caller]
fn failed(name: &str, reason: Reason) -> Completed {
    let events = run(name);
    let end = end(&events).clone();
    assert!(!end.ok, "{name}");
    assert_eq!(end.reason, Some(reason), "{name}: {:?}", end.error);
    assert_eq!(end.answer, "", "{name}: an error is not an answer");
    end
}

#[test]
fn every_failure_of_every_version_has_its_reason() {
    for version in replay::VERSIONS {
        for (name, reason) in [
            ("not_logged_in", Reason::Auth),
            ("http401", Reason::Auth),
            ("http403", Reason::Auth),
            ("http404", Reason::EngineFailed),
            ("http429", Reason::RateLimit),
            ("http500", Reason::EngineFailed),
            ("http529", Reason::Overloaded),
            ("context", Reason::ContextTooLong),
            ("credit", Reason::UsageLimit),
            ("limit_reached", Reason::UsageLimit),
            ("max_turns", Reason::EngineFailed),
        ] {
            failed(&format!("{version}/print/{name}"), reason);
        }
    }
    let refusal = run("2.1.325/print/refusal");
    assert_eq!(end(&refusal).reason, Some(Reason::EngineFailed));
    assert!(end(&refusal).error.as_deref().unwrap().contains("safeguards"));
    assert_eq!(end(&run("2.1.325/print/max_tokens")).reason, Some(Reason::EngineFailed));
    assert_eq!(end(&run("2.1.325/print/max_tokens")).answer, "cut off he".repeat(4));
    let budget = failed("2.1.325/print/max_budget", Reason::EngineFailed);
    assert_eq!(
        budget.error.as_deref(),
        Some("Reached maximum budget ($0.0005) (resume the session to continue)")
    );
}

#[test]
fn a_login_that_fails_says_what_to_run() {
    for version in replay::VERSIONS {
        for name in ["not_logged_in", "http401", "http403"] {
            let end = failed(&format!("{version}/print/{name}"), Reason::Auth);
            let error = end.error.unwrap();
            assert!(error.contains("`claude auth login`"), "{error}");
            assert!(!error.contains("/login"), "{error}");
        }
    }
}

#[test]
fn the_first_refused_login_is_reported_and_is_the_reason_of_the_interrupted_run() {
    let recording = Recording::named("2.1.325/duplex/named_401");
    let mut translator = replay::translator(replay::SESSION, replay::MESSAGE);
    let mut events = Vec::new();
    for line in recording.lines.iter().filter_map(|line| line.strip_prefix("< ")) {
        let message = Message::parse(line).unwrap();
        let retried = matches!(message, Message::ApiRetry(_));
        translator.message(&message, &mut events);
        assert!(!retried || translator.authentication_failed());
    }
    let end = recording.replayed().remove(0).pop().unwrap();
    let TakopiEvent::Completed(end) = end else { panic!("no end") };
    assert_eq!(end.reason, Some(Reason::Auth));
    assert_eq!(
        end.error.as_deref(),
        Some("the login was refused with status 401 (run `claude auth login`)")
    );
    // Also if the driver could not wait for the result.
    let completed = translator
        .finish(Completed::failure(CLAUDE, Reason::Interrupted, "interrupted"), &mut events);
    assert_eq!(completed.reason, Some(Reason::Auth));
}

#[test]
fn a_login_that_works_again_is_not_refused() {
    let retry = r#"{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"error_status":401,"error":"authentication_failed"}"#;
    let text =
        r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"x"}]}}"#;
    let mut translator = replay::translator(replay::SESSION, replay::MESSAGE);
    translator.message(&Message::parse(retry).unwrap(), &mut Vec::new());
    assert!(translator.authentication_failed());
    translator.message(&Message::parse(text).unwrap(), &mut Vec::new());
    assert!(!translator.authentication_failed());
}

#[test]
fn retries_are_one_note_that_changes_and_is_closed() {
    for (name, ok) in [("2.1.325/print/retry_ok", true), ("2.1.325/print/http529", false)] {
        let events = run(name);
        let notes = replay::actions(&events, "note");
        let phases: Vec<Phase> = notes.iter().map(|note| note.phase).collect();
        assert_eq!(phases, [Phase::Started, Phase::Updated, Phase::Completed], "{name}");
        assert!(notes.iter().all(|note| note.action.id == notes[0].action.id));
        assert_eq!(notes[2].ok, Some(ok), "{name}");
    }
    // A delay is a float in 2.1.210.
    let events = run("2.1.210/print/http500");
    let notes = replay::actions(&events, "note");
    assert_eq!(notes[0].action.title, "Retrying... 1/2");
    assert_eq!(notes[0].action.detail["delay_ms"], 575);
    assert_eq!(notes[0].action.detail["reason"], "server_error, status 500");
}

#[test]
fn a_spent_subscription_names_its_reset_and_a_warning_the_window() {
    for version in ["2.1.210", "2.1.325"] {
        let end = failed(&format!("{version}/print/limit_reached"), Reason::UsageLimit);
        let limits = end.rate_limits.unwrap();
        assert_eq!(limits.resets_at, Some(1_900_000_000), "{version}");
        let events = run(&format!("{version}/print/limit_warning"));
        let limits = replay::end(&events).rate_limits.clone().unwrap();
        assert_eq!(limits.windows[0].name, "five_hour");
        assert!((limits.windows[0].used_percent - 93.0).abs() < 1e-9);
        assert_eq!(limits.resets_at, None, "it is not used up");
        assert_eq!(replay::actions(&events, "telemetry").len(), 1);
    }
    // The text alone names no time zone.
    let end = failed("2.0.45/print/limit_reached", Reason::UsageLimit);
    assert_eq!(end.rate_limits, None);
}

#[test]
fn success_with_an_error_and_an_error_that_is_not_marked_are_both_failures() {
    // API errors have the subtype `success`; max_turns of 2.0.45 is not marked as an error.
    failed("2.1.325/print/http500", Reason::EngineFailed);
    let turns = failed("2.0.45/print/max_turns", Reason::EngineFailed);
    assert!(turns.error.unwrap().starts_with("reached the maximum number of turns"));
}
