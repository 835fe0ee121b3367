//! Failures of the model on the real codex: the reason of each, and the text that a person reads.
use std::time::Duration;

use serde_json::json;
use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::{EngineRunner, Host, Runner};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, ModelServer};
use takopi_tests::runs::{request, run};

#[tokio::test]
async fn each_failure_of_the_model_has_its_reason() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let soon = std::time::SystemTime::now() + Duration::from_hours(2);
    let soon = soon.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let limit = json!({ "error": {
        "type": "usage_limit_reached", "message": "limit reached", "plan_type": "plus",
        "resets_at": soon,
    }});
    let json = |status, body: serde_json::Value| {
        Answer::status(status, body.to_string()).header("content-type", "application/json")
    };
    model.when("usage", json(429, limit));
    model.when("rate", Answer::status(429, "slow down"));
    model.when("login", Answer::status(401, "token expired"));
    model.when("overload", json(503, json!({ "error": { "code": "server_is_overloaded" } })));
    let long = "Your input exceeds the context window of this model.";
    model.when("long", Answer::new().failed("context_length_exceeded", long));
    model.when("busy", Answer::new().failed("rate_limit_exceeded", "Rate limit reached for gpt"));
    model.when("odd", Answer::new().failed("server_error", "an odd thing happened"));
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path)).keep_warm(Duration::ZERO);
    let runner = EngineRunner::new(engine).on(host);
    for (prompt, reason, text) in [
        ("usage", "usage_limit", "try again at"),
        ("rate", "rate_limit", "429"),
        ("login", "auth", "codex login"),
        ("overload", "overloaded", ""),
        ("long", "context_too_long", "context window"),
        ("busy", "rate_limit", "Rate limit reached"),
        ("odd", "engine_failed", "an odd thing happened"),
    ] {
        let seen = run(&runner, request(&home, prompt)).await;
        let error = seen.failed(reason).error.clone().unwrap();
        assert!(error.to_lowercase().contains(&text.to_lowercase()), "{prompt}: {error}");
    }
    runner.shutdown().await;
}
