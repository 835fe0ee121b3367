//! The app-server client on the real codex with a scripted model: threads, turns, routing.
use serde_json::{Value, json};
use takopi_codex::app_server::{
    Client, ClientError, ModelOptions, ServerLaunch, Thread, ThreadOptions, TurnEvent, TurnOptions,
    TurnStatus, TurnStream,
};
use takopi_core::Host;
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};

async fn start(codex: &real::Codex, home: &TestHome) -> Client {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let mut launch = ServerLaunch::default();
    launch.binary.clone_from(&codex.path);
    launch.env = home.env().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Client::start(&host, &launch).await.unwrap()
}

async fn thread(client: &Client, home: &TestHome) -> Thread {
    let mut options = ThreadOptions::default();
    options.cwd = Some(home.workspace());
    client.start_thread(&options).await.unwrap()
}

fn plain() -> TurnOptions {
    TurnOptions::default()
}

/// The deltas and the texts of completed messages, in order.
async fn texts(mut stream: TurnStream) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        let TurnEvent::Notification(told) = event else { continue };
        let params: Value = told.parse().unwrap();
        match told.method.as_str() {
            "item/agentMessage/delta" => texts.push(params["delta"].as_str().unwrap().to_owned()),
            "item/completed" if params["item"]["type"] == "agentMessage" => {
                texts.push(format!("message {}", params["item"]["text"].as_str().unwrap()));
            }
            "turn/completed" => texts.push(params["turn"]["status"].as_str().unwrap().to_owned()),
            _ => {}
        }
    }
    texts
}

#[tokio::test]
async fn initialize_keeps_the_version() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    assert_eq!(client.info().version.unwrap().to_string(), codex.version.to_string());
    client.close().await;
    assert!(client.is_closed());
    let error = client.models(&ModelOptions::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn a_turn_stream_yields_every_delta_and_run_returns_the_turn() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("stream", Answer::new().deltas(["hel", "lo"]));
    model.when("run", "done");
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    let thread = thread(&client, &home).await;
    let stream = thread.start_turn("stream", &plain()).await.unwrap();
    assert_eq!(texts(stream).await, ["hel", "lo", "message hello", "completed"]);
    let report = thread.run("run", &plain()).await.unwrap();
    assert_eq!(report.status, TurnStatus::Completed);
    assert_eq!(report.answer.as_deref(), Some("done"));
    assert!(!report.id.is_empty());
    let request = model.requests_about("run").remove(0);
    assert_eq!(request.model(), "gpt-5.5");
    assert!(request.stream());
    assert_eq!(request.user_texts(), ["stream", "run"]);
    client.close().await;
}

#[tokio::test]
async fn answers_are_chosen_by_phase() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("two", Answer::new().message("First message").message("Second message"));
    model.when("empty", Answer::new().message("First message").message(""));
    model.when("comment", Answer::new().commentary("Commentary"));
    model.when("final", Answer::new().commentary("Commentary").final_answer("Final answer"));
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    let thread = thread(&client, &home).await;
    for (prompt, expected) in [
        ("two", Some("Second message")),
        ("empty", Some("")),
        ("comment", None),
        ("final", Some("Final answer")),
    ] {
        let report = thread.run(prompt, &plain()).await.unwrap();
        assert_eq!(report.answer.as_deref(), expected, "{prompt}");
        if prompt == "final" {
            let phases: Vec<_> = report
                .items
                .iter()
                .filter(|item| item["type"] == "agentMessage")
                .map(|item| item["phase"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(phases, ["commentary", "final_answer"]);
        }
    }
    client.close().await;
}

#[tokio::test]
async fn a_stream_that_is_not_read_stalls_no_other() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("open", Answer::new().delta("one-").wait_for(&gate).delta("done"));
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    let thread = thread(&client, &home).await;
    let stream = thread.start_turn("open", &plain()).await.unwrap();
    gate.reached().await;
    assert!(!client.models(&ModelOptions::default()).await.unwrap().is_empty());
    gate.open();
    assert_eq!(texts(stream).await, ["one-", "done", "message one-done", "completed"]);
    client.close().await;
}

#[tokio::test]
async fn two_threads_on_one_client_get_only_their_own() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let (one, two) = (Gate::new(), Gate::new());
    model.when("first", Answer::new().delta("one-").wait_for(&one).delta("done"));
    model.when("second", Answer::new().delta("two-").wait_for(&two).delta("done"));
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    let (first, second) = (thread(&client, &home).await, thread(&client, &home).await);
    let first = first.start_turn("first", &plain()).await.unwrap();
    let second = second.start_turn("second", &plain()).await.unwrap();
    one.reached().await;
    two.reached().await;
    two.open();
    assert_eq!(texts(second).await, ["two-", "done", "message two-done", "completed"]);
    one.open();
    assert_eq!(texts(first).await, ["one-", "done", "message one-done", "completed"]);
    client.close().await;
}

#[tokio::test]
async fn a_second_turn_on_a_busy_thread_is_refused() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("one", Answer::new().wait_for(&gate).message("done"));
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    let thread = thread(&client, &home).await;
    let stream = thread.start_turn("one", &plain()).await.unwrap();
    let error = thread.start_turn("two", &plain()).await.unwrap_err();
    assert!(matches!(error, ClientError::TurnRunning { .. }), "{error}");
    gate.open();
    assert_eq!(stream.finish().await.unwrap().answer.as_deref(), Some("done"));
    client.close().await;
}

#[tokio::test]
async fn steer_adds_to_the_running_turn_and_interrupt_ends_it() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let gate = Gate::new();
    model.when("begin", [Answer::new().wait_for(&gate).exec("true")]);
    model.when("and also this", Answer::text("steered"));
    model.when("hang", Answer::new().hang());
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    let thread = thread(&client, &home).await;
    let stream = thread.start_turn("begin", &plain()).await.unwrap();
    gate.reached().await;
    stream.steer("and also this").await.unwrap();
    gate.open();
    assert_eq!(stream.finish().await.unwrap().answer.as_deref(), Some("steered"));

    let stream = thread.start_turn("hang", &plain()).await.unwrap();
    model.wait_for_requests(3).await;
    stream.interrupt().await.unwrap();
    assert_eq!(stream.finish().await.unwrap().status, TurnStatus::Interrupted);
    client.close().await;
}

#[tokio::test]
async fn the_approval_policy_is_inherited_until_it_is_changed() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.otherwise(takopi_tests::model::Script::repeat(Answer::text("fine")));
    let home = TestHome::builder(&model).approval_policy("on-request").build();
    let client = start(&codex, &home).await;
    let mut never = ThreadOptions::default();
    never.cwd = Some(home.workspace());
    never.approval_policy = Some("never".to_owned());
    let policy = |thread: &Thread| thread.opened()["approvalPolicy"].as_str().unwrap().to_owned();

    let begun = client.start_thread(&never).await.unwrap();
    assert_eq!(policy(&begun), "never");
    begun.run("one", &plain()).await.unwrap();
    let silent = ThreadOptions::default();
    let resumed = client.resume_thread(begun.id(), &silent).await.unwrap();
    assert_eq!(policy(&resumed), "never", "resume inherits it");
    let forked = client.fork_thread(begun.id(), &silent).await.unwrap();
    assert_eq!(policy(&forked), "never", "fork inherits it");
    assert_ne!(forked.id(), begun.id());
    let mut asking = ThreadOptions::default();
    asking.approval_policy = Some("on-request".to_owned());
    let forked = client.fork_thread(begun.id(), &asking).await.unwrap();
    assert_eq!(policy(&forked), "on-request", "an explicit override");

    let mut turn = plain();
    turn.approval_policy = Some("on-request".to_owned());
    begun.run("two", &turn).await.unwrap();
    begun.run("three", &plain()).await.unwrap();
    let resumed = client.resume_thread(begun.id(), &silent).await.unwrap();
    assert_eq!(
        policy(&resumed),
        "on-request",
        "a turn's override persists, an omitted one changes nothing"
    );
    client.close().await;
}

#[tokio::test]
async fn names_reading_forks_models_and_compaction() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.otherwise(takopi_tests::model::Script::repeat(Answer::text("fine")));
    let home = TestHome::new(&model);
    let client = start(&codex, &home).await;
    let thread = thread(&client, &home).await;
    thread.run("one", &plain()).await.unwrap();
    client.set_thread_name(thread.id(), "my thread").await.unwrap();
    let read = client.read_thread(thread.id(), true).await.unwrap();
    assert_eq!(read["thread"]["name"], "my thread");
    assert_eq!(read["thread"]["turns"].as_array().unwrap().len(), 1);
    let listed = client.list_threads(json!({ "cwd": home.workspace() })).await.unwrap();
    assert!(listed["data"].as_array().unwrap().iter().any(|entry| entry["id"] == thread.id()));
    assert!(!client.models(&ModelOptions::default()).await.unwrap().is_empty());
    let before = model.requests().len();
    let report = thread.compact().await.unwrap();
    assert_eq!(report.status, TurnStatus::Completed);
    assert_eq!(model.requests().len(), before + 1, "compaction asks the model");
    client.archive_thread(thread.id()).await.unwrap();
    client.unarchive_thread(thread.id()).await.unwrap();
    let error = client.call("no/such/method", json!({})).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error}");
    client.close().await;
}
