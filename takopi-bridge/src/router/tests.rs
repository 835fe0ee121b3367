//! The promises of the router.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{CONTINUE, Route, RouteError, Router};
use proptest::prelude::*;
use proptest::sample::select;
use takopi_core::demo::{DEMO, Demo};
use takopi_core::runner::ResumeCodec;
use takopi_core::{
    Action, ActionEvent, ActionKind, Completed, EngineId, EngineRunner, EventStream, Phase,
    ResumeToken, RunRequest, Runner,
};

use crate::present::{Chat, Moment};
use crate::progress::Progress;

/// A runner of any name, whose sessions are `<name> resume <letters and digits>`.
struct Lab {
    codec: ResumeCodec,
    engine: EngineId,
    demo: EngineRunner<Demo>,
}

fn lab(engine: &'static str, command: &'static str) -> Arc<dyn Runner> {
    let engine = EngineId::from_static(engine);
    let codec = ResumeCodec::new(engine.clone(), command, |id| {
        id.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| id.to_owned())
    });
    Arc::new(Lab { codec, engine, demo: Demo::new().runner() })
}

impl Runner for Lab {
    fn engine(&self) -> EngineId {
        self.engine.clone()
    }

    fn run(&self, request: RunRequest) -> EventStream {
        self.demo.run(request)
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.codec.clone()
    }

    fn shutdown(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.demo.shutdown()
    }
}

/// Squid, the default, and octopus.
fn router() -> Router {
    Router::new(lab("squid", "squid resume")).with(lab("octopus", "octopus resume"))
}

/// The engine, the session and the prompt.
fn parts_of(route: Route) -> (String, Option<String>, String) {
    (route.runner.engine().to_string(), route.resume.map(|token| token.value), route.prompt)
}

#[test]
fn a_message_is_routed_by_its_directive_and_resume_line() {
    let long = "`octopus resume a1`\n\nmake it so";
    for (text, replied_to, engine, session, prompt) in [
        // No directive and no resume line: the default, a new session.
        ("fix this", None, "squid", None, "fix this"),
        ("fix this", Some("no resume line here"), "squid", None, "fix this"),
        // A resume line, wherever it stands.
        ("octopus resume a1", None, "octopus", Some("a1"), CONTINUE),
        (long, None, "octopus", Some("a1"), "make it so"),
        ("make\r\n`squid resume b2`\r\nit so", None, "squid", Some("b2"), "make\nit so"),
        // The last one counts, whatever its engine, and all are removed.
        ("squid resume b2\ngo\noctopus resume a1", None, "octopus", Some("a1"), "go"),
        ("octopus resume a1\ngo\nsquid resume b2", None, "squid", Some("b2"), "go"),
        // One in the message goes before one in the message replied to.
        ("go", Some(long), "octopus", Some("a1"), "go"),
        ("squid resume b2\ngo", Some(long), "squid", Some("b2"), "go"),
        ("", Some(long), "octopus", Some("a1"), CONTINUE),
        // A directive, in front or above; as a phone writes it.
        ("/octopus fix this", None, "octopus", None, "fix this"),
        ("/octopus\nfix this", None, "octopus", None, "fix this"),
        (" \n/Octopus   fix\n  this", None, "octopus", None, "fix\n  this"),
        ("/octopus", None, "octopus", None, CONTINUE),
        ("/octopus@my_bot fix this", None, "octopus", None, "fix this"),
        ("/squids@my_bot swim", None, "squid", None, "/squids@my_bot swim"),
        ("/octopus /octopus go", None, "octopus", None, "go"),
        ("/octopus go", Some("nothing"), "octopus", None, "go"),
        // One that agrees with the session.
        ("/octopus go", Some(long), "octopus", Some("a1"), "go"),
        ("octopus resume a1\n/octopus go", None, "octopus", Some("a1"), "go"),
        ("/octopus octopus resume a1", None, "octopus", Some("a1"), CONTINUE),
        ("/octopus octopus resume a1\n/octopus go", None, "octopus", Some("a1"), "go"),
        ("/octopus octopus resume a1\noctopus resume c3", None, "octopus", Some("c3"), CONTINUE),
        // What is no directive stays.
        ("/etc/hosts is wrong", None, "squid", None, "/etc/hosts is wrong"),
        ("/octopuses are many", None, "squid", None, "/octopuses are many"),
        ("/octopus/src", None, "squid", None, "/octopus/src"),
        ("/ octopus", None, "squid", None, "/ octopus"),
        ("go\n/octopus", None, "squid", None, "go\n/octopus"),
        ("see octopus resume a1", None, "squid", None, "see octopus resume a1"),
        // Nothing at all.
        (" \n", None, "squid", None, CONTINUE),
    ] {
        let route = router().route(text, replied_to).unwrap();
        let expected = (engine.to_owned(), session.map(str::to_owned), prompt.to_owned());
        assert_eq!(parts_of(route), expected, "{text:?} in reply to {replied_to:?}");
    }
}

#[test]
fn a_directive_that_contradicts_the_session_is_refused() {
    let [squid, octopus] = ["squid", "octopus"].map(EngineId::from);
    let other = RouteError::OtherEngine { directive: squid.clone(), session: octopus.clone() };
    let line = "octopus resume a1";
    for (text, replied_to) in [
        ("/squid go", Some(line)),
        ("/squid go\noctopus resume a1", None),
        ("octopus resume a1\n/squid go", Some("squid resume b2")),
    ] {
        assert_eq!(router().route(text, replied_to).unwrap_err(), other, "{text:?}");
    }
    assert_eq!(
        other.to_string(),
        "the message names squid, but its session belongs to octopus; remove /squid, or send a \
         new message without a resume line"
    );
    let two = router().route("/squid /octopus go", None).unwrap_err();
    assert_eq!(two, RouteError::TwoEngines(squid, octopus));
    assert_eq!(two.to_string(), "the message names two engines, squid and octopus; name one");
}

#[test]
fn there_is_one_runner_for_each_engine_and_the_last_one_counts() {
    let router = router().with(lab("squid", "squid continue")).with(lab("nautilus", "n resume"));
    let engines: Vec<String> = router.runners().map(|it| it.engine().to_string()).collect();
    assert_eq!(engines, ["squid", "octopus", "nautilus"]);
    let squid = router.runner(&EngineId::from("squid")).unwrap();
    assert_eq!(squid.format_resume(&ResumeToken::new("squid", "b2")), "`squid continue b2`");
    assert!(router.runner(&EngineId::from("whale")).is_none());
    let route = router.route("squid continue b2", None).unwrap();
    assert_eq!(parts_of(route), ("squid".to_owned(), Some("b2".to_owned()), CONTINUE.to_owned()));
}

#[test]
fn the_prompt_is_not_for_logs() {
    let route = router().route("my secret", None).unwrap();
    assert_eq!(format!("{route:?}"), r#"Route { engine: EngineId("squid"), resume: None, .. }"#);
    assert_eq!(format!("{:?}", router()), r#"[EngineId("squid"), EngineId("octopus")]"#);
}

fn any_message() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "/squid",
        "/octopus",
        "/Squid",
        "/",
        "/etc/hosts",
        "squid resume a1",
        "`octopus resume b2`",
        "octopus resume",
        "go on",
        " ",
        "\n",
        "\r\n",
        "\t",
        "`",
        "🐙",
        "\u{a0}",
    ];
    proptest::collection::vec(select(PIECES), 0..12).prop_map(|pieces| pieces.concat())
}

#[test]
fn a_reply_to_a_message_resumes_its_session() {
    let runner = Demo::new().runner();
    let token = ResumeToken::new(DEMO, "demo-1");
    let line = runner.format_resume(&token);
    let moment = Moment::default().resume_line(line.as_str());
    // A resume line in an action or in the answer does not count.
    let other = line.replace("demo-1", "demo-2");
    let act = |id: &str, kind, title: &str| {
        ActionEvent::new(DEMO, Action::new(id, kind, title), Phase::Started).into()
    };
    let mut progress = Progress::default();
    progress.apply(&act("a", ActionKind::Command, other.trim_matches('`')), Duration::ZERO);
    progress.apply(&act("b", ActionKind::Note, &other), Duration::ZERO);
    let mut messages = vec![Chat::default().progress(&progress, &moment)];
    progress.apply(&Completed::success("demo", other).into(), Duration::ZERO);
    messages.extend(Chat::default().finished(&progress, &moment));
    let router = Router::new(Arc::new(runner));
    for message in messages {
        let route = router.route("go on", Some(&message)).unwrap();
        assert_eq!(route.resume.as_ref(), Some(&token), "{message}");
    }
}

proptest! {
    #[test]
    fn a_prompt_is_never_empty_and_routes_nowhere_by_itself(
        text in any_message(),
        replied_to in proptest::option::of(any_message()),
    ) {
        if let Ok(route) = router().route(&text, replied_to.as_deref()) {
            prop_assert!(!route.prompt.trim().is_empty());
            let again = router().route(&route.prompt, None).unwrap();
            let expected = ("squid".to_owned(), None, route.prompt);
            prop_assert_eq!(parts_of(again), expected);
        }
    }

    #[test]
    fn a_message_without_marks_is_its_own_prompt(text in "[a-z🐙/][a-z /\n]{0,30}[a-z]") {
        let route = router().route(&text, None).unwrap();
        prop_assert_eq!(parts_of(route), ("squid".to_owned(), None, text));
    }
}
