//! Conversations on the real codex with a scripted model.
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use takopi_codex::Codex;
use takopi_codex::app_server::{
    CodexAppServer, Conversation, ConversationReport, Message, TurnOptions,
};
use takopi_core::{Host, Reason, RunRequest, TakopiEvent, UsageScope};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::limits::with_enough_time;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::request;

const LONG: Duration = Duration::from_mins(10);

fn conversation(
    codex: &real::Codex,
    home: &TestHome,
    settings: impl FnOnce(RunRequest) -> RunRequest,
) -> Conversation {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let server = CodexAppServer::new(Codex::new().binary(&codex.path)).keep_warm(LONG);
    let settings: RunRequest = settings(request(home, ""));
    Conversation::on(host, server, settings)
}

async fn turn(conversation: &Conversation, input: &str) -> ConversationReport {
    conversation.run_turn(input, TurnOptions::default()).await
}

fn assistant(messages: &[Message]) -> Vec<&str> {
    messages
        .iter()
        .filter_map(|message| match message {
            Message::Assistant { content, tool_calls, .. } if tool_calls.is_empty() => {
                Some(content.as_str())
            }
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn turns_share_a_thread_and_each_reports_what_was_its_own() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let work = Answer::new().reasoning("Look first").commentary("looking").exec("echo here");
    model.when("first", [work, Answer::new().final_answer("found")]);
    model.when("second", "");
    model.when("third", Answer::new().commentary("only words"));
    let home = TestHome::new(&model);
    let conversation = conversation(&codex, &home, |settings| settings);
    assert_eq!(conversation.session(), None, "nothing is begun before the first turn");
    assert_eq!(home.processes(), []);
    let first = turn(&conversation, "first").await;
    assert!(first.ok() && !first.retired, "{first:#?}");
    assert_eq!(first.final_text.as_deref(), Some("found"));
    assert_eq!(first.tool_iterations, 1);
    let [remark, call, result, last] = &first.messages[..] else { panic!("{first:#?}") };
    assert!(
        matches!(remark, Message::Assistant { content, reasoning, .. }
            if content == "looking" && reasoning.as_deref() == Some("Look first")),
        "{remark:?}"
    );
    assert!(
        matches!((call, result), (Message::Assistant { tool_calls, .. }, Message::Tool { tool_call_id, content })
            if tool_calls[0].id == *tool_call_id && content == "here\n"),
        "{call:?} {result:?}"
    );
    assert!(matches!(last, Message::Assistant { content, .. } if content == "found"), "{last:?}");
    let usage = first.usage.clone().unwrap();
    assert_eq!((usage.input_tokens, usage.scope), (22, UsageScope::Turn));
    assert_eq!(first.thread_id, conversation.session().map(|token| token.value));

    let servers = home.servers();
    let second = turn(&conversation, "second").await;
    assert_eq!(second.final_text.as_deref(), Some(""), "an empty answer is an answer");
    assert_eq!(home.servers(), servers, "the same process ran both");
    assert_ne!(second.turn_id, first.turn_id);
    let third = turn(&conversation, "third").await;
    assert_eq!(third.final_text, None, "commentary is none");
    assert_eq!(assistant(&third.messages), ["only words"]);
    assert_eq!(model.requests_about("third")[0].user_texts(), ["first", "second", "third"]);
    conversation.close().await;
    assert_eq!(home.processes(), []);
    let after = turn(&conversation, "late").await;
    assert_eq!(after.error.as_deref(), Some("the conversation is closed"));
}

#[tokio::test]
async fn what_is_steered_appears_and_the_input_does_not() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("walk", Answer::new().wait_for(&gate).message("walked"));
    model.when("faster", "ran");
    let home = TestHome::new(&model);
    let conversation = conversation(&codex, &home, |settings| settings);
    assert!(!conversation.steer("nobody hears").await);
    let beside = async {
        gate.reached().await;
        assert!(conversation.steer("faster").await);
        gate.open();
    };
    let (report, ()) = tokio::join!(turn(&conversation, "walk"), beside);
    assert_eq!(report.final_text.as_deref(), Some("ran"), "{report:#?}");
    let mut users: Vec<&Message> =
        report.messages.iter().filter(|message| matches!(message, Message::User { .. })).collect();
    // codex may end the turn without asking the model again: the message is in the history then, and is sent again.
    users.dedup();
    let [Message::User { content }] = users[..] else { panic!("{report:#?}") };
    assert_eq!(content, "faster");
    conversation.close().await;
}

#[tokio::test]
async fn an_interrupt_ends_a_command_and_the_next_turn_has_the_history() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("work", Answer::new().commentary("on it").exec("sleep 613"));
    model.when("again", "going on");
    let home = TestHome::new(&model);
    let conversation = conversation(&codex, &home, |settings| settings);
    assert!(!conversation.interrupt(), "there is nothing to interrupt");
    let other = conversation.clone();
    let report = conversation
        .watch_turn("work", TurnOptions::default(), |event| {
            // Codex reports the start of a command a moment after it.
            if matches!(event, TakopiEvent::Action(event) if event.action.title == "sleep 613") {
                assert!(other.interrupt());
            }
        })
        .await;
    assert!(report.interrupted && report.retired, "{report:#?}");
    assert_eq!(report.tool_iterations, 1);
    assert_eq!(assistant(&report.messages), ["on it"]);
    assert_eq!(home.processes(), []);
    let again = turn(&conversation, "again").await;
    assert_eq!(again.final_text.as_deref(), Some("going on"));
    assert_eq!(again.thread_id, report.thread_id);
    let request = &model.requests_about("again")[0];
    assert_eq!(request.user_texts(), ["work", "again"]);
    assert!(request.assistant_texts().contains(&"on it".to_owned()));
    conversation.close().await;
}

#[tokio::test]
async fn a_conversation_that_is_interrupted_at_its_start_goes_on() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("work", Answer::new().hang());
    model.when("again", "going on");
    let home = TestHome::new(&model);
    let conversation = conversation(&codex, &home, |settings| settings);
    let other = conversation.clone();
    let report = conversation
        .watch_turn("work", TurnOptions::default(), |event| {
            if matches!(event, TakopiEvent::Started(_)) {
                assert!(other.interrupt());
            }
        })
        .await;
    assert!(report.interrupted, "{report:#?}");
    let again = turn(&conversation, "again").await;
    assert_eq!(again.final_text.as_deref(), Some("going on"), "{again:#?}");
    conversation.close().await;
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn a_turn_that_timed_out_retires_its_process_and_the_next_has_the_history() {
    let Some(codex) = real::codex_or_skip() else { return };
    with_enough_time(async |idle| {
        let model = ModelServer::start();
        model.when("begin", "begun");
        model.when("hang", Answer::new().hang());
        model.when("after", "all there");
        let home = TestHome::new(&model);
        let conversation = conversation(&codex, &home, |settings| settings.idle_timeout(idle));
        let begun = turn(&conversation, "begin").await;
        let before = home.servers();
        let hung = turn(&conversation, "hang").await;
        let after = turn(&conversation, "after").await;
        let fresh = home.servers();
        conversation.close().await;
        if !begun.ok() || !after.ok() || model.requests_about("hang").is_empty() {
            return false;
        }
        assert_eq!(hung.reason, Some(Reason::TimeoutIdle), "{hung:#?}");
        assert!(hung.error.as_deref().unwrap().contains(&format!("{idle:?}")), "{hung:#?}");
        assert!(hung.retired && !hung.interrupted);
        assert_eq!(after.final_text.as_deref(), Some("all there"));
        assert_ne!(fresh, before, "in a fresh process");
        assert_eq!(model.requests_about("after")[0].user_texts(), ["begin", "hang", "after"]);
        assert_eq!(model.requests_about("hang").len(), 1, "a turn is never sent twice");
        true
    })
    .await;
}

#[tokio::test]
async fn a_process_that_dies_is_retired_and_the_next_turn_has_the_history() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("begin", "begun");
    model.when(
        "die",
        [Answer::new().exec("echo done"), Answer::new().wait_for(&gate).message("never remark")],
    );
    model.when("after", "all there");
    let home = TestHome::new(&model);
    let conversation = conversation(&codex, &home, |settings| settings);
    assert!(turn(&conversation, "begin").await.ok());
    let servers = home.servers();
    let beside = async {
        gate.reached().await;
        for server in &servers {
            kill(Pid::from_raw(*server), Signal::SIGKILL).unwrap();
        }
    };
    let (died, ()) = tokio::join!(turn(&conversation, "die"), beside);
    assert_eq!(died.reason, Some(Reason::ProcessDied), "{died:#?}");
    assert!(died.retired);
    assert_eq!(died.tool_iterations, 1, "what was done is reported");
    let after = turn(&conversation, "after").await;
    assert_eq!(after.final_text.as_deref(), Some("all there"), "{after:#?}");
    assert_eq!(model.requests_about("after")[0].user_texts(), ["begin", "die", "after"]);
    assert_eq!(model.requests_about("die").len(), 2, "a turn is never sent twice");
    conversation.close().await;
    home.assert_no_processes().await;
}

#[tokio::test]
async fn options_hold_for_a_turn_and_events_can_be_watched() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("structured", r#"{"a":1}"#);
    model.when("free", "words");
    let home = TestHome::new(&model);
    let conversation = conversation(&codex, &home, |settings| settings);
    let mut options = TurnOptions::default();
    options.output_schema = Some(serde_json::json!({
        "type": "object",
        "properties": { "a": { "type": "integer" } },
        "required": ["a"],
        "additionalProperties": false,
    }));
    let mut started = 0;
    let report = conversation
        .watch_turn("structured", options, |event| {
            started += usize::from(matches!(event, TakopiEvent::Started(_)));
        })
        .await;
    assert_eq!((report.final_text.as_deref(), started), (Some(r#"{"a":1}"#), 1));
    assert!(turn(&conversation, "free").await.ok());
    let formats = |prompt| model.requests_about(prompt)[0].body["text"]["format"].clone();
    assert_eq!(formats("structured")["type"], "json_schema");
    assert!(formats("free").is_null());
    drop(conversation);
    home.assert_no_processes().await;
}
