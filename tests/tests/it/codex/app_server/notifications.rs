//! Notifications of app-server beside the items of a turn: rate limits, the progress of MCP tools.
use std::time::Duration;

use serde_json::json;
use takopi_codex::Codex;
use takopi_core::{ActionKind, Host, Phase, Runner, TakopiEvent};
use takopi_tests::codex::fake::app_server::Server;
use takopi_tests::codex::fake::{Step, turn};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::lab::Lab;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, ModelServer};
use takopi_tests::runs::{finish, request, run, until};

fn runner(codex: &real::Codex, home: &TestHome) -> impl Runner + use<> {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    Codex::new().binary(&codex.path).app_server().on(host)
}

#[tokio::test]
async fn rate_limits_are_telemetry_and_the_same_figures_come_once() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let limited = |answer: Answer, used: &str| {
        answer
            .header("x-codex-primary-used-percent", used)
            .header("x-codex-primary-window-minutes", "300")
            .header("x-codex-primary-reset-at", "1900000000")
    };
    model.when(
        "work",
        [
            limited(Answer::new().exec("true"), "12.0"),
            limited(Answer::new().exec("true"), "12.0"),
            limited(Answer::text("done"), "97.0"),
        ],
    );
    let home = TestHome::new(&model);
    let runner = runner(&codex, &home);
    let seen = run(&runner, request(&home, "work")).await;
    assert_eq!(seen.ok().answer, "done");
    let told = seen.actions(&ActionKind::Telemetry);
    let used: Vec<_> =
        told.iter().map(|event| event.action.detail["primary"]["usedPercent"].as_f64()).collect();
    assert_eq!(used, [Some(12.0), Some(97.0)], "{told:#?}");
    assert_eq!(told[0].action.detail["primary"]["resetsAt"], 1_900_000_000);
    assert_eq!(told[0].action.id, told[1].action.id, "one action, told anew");
    let limits = seen.completed().rate_limits.as_ref().unwrap();
    let primary = limits.windows.iter().find(|window| window.name == "primary").unwrap();
    assert_eq!((primary.used_percent, primary.window_minutes), (97.0, Some(300)));
    assert_eq!((primary.resets_at, limits.resets_at), (Some(1_900_000_000), None), "not used up");
    runner.shutdown().await;
}

#[tokio::test]
async fn a_usage_limit_ends_with_the_time_of_the_figures_and_else_of_the_text() {
    let limit = "You've hit your usage limit. Try again at Feb 3rd, 2099 3:04 PM.";
    let figures = |used: u32| {
        let primary =
            json!({"usedPercent": used, "windowDurationMins": 300, "resetsAt": 4_000_000_000_u32});
        Step::notify("account/rateLimits/updated", json!({"rateLimits": {"primary": primary}}))
    };
    for (told, from_figures) in [(Some(100), true), (Some(40), false), (None, false)] {
        let error = json!({"message": limit, "codexErrorInfo": "usageLimitExceeded"});
        let steps = [turn::started()].into_iter().chain(told.map(figures));
        let lab =
            Lab::new(Server::new().turns(steps.chain([turn::ended("failed", &error)])).script());
        let runner = lab.app_server(Duration::ZERO);
        let seen = run(&runner, lab.request("hi")).await;
        let limits = seen.failed("usage_limit").rate_limits.clone().unwrap();
        assert_eq!(limits.windows.len(), usize::from(told.is_some()));
        let resets_at = limits.resets_at.unwrap();
        assert_eq!(resets_at == 4_000_000_000, from_figures, "{told:?} {resets_at}");
        // February 2099, whatever the time zone.
        assert!(from_figures || (4_073_600_000..4_073_900_000).contains(&resets_at), "{resets_at}");
        runner.shutdown().await;
    }
}

#[tokio::test]
async fn a_usage_limit_before_the_turn_comes_with_the_time_of_its_reset() {
    let limit = "You've hit your usage limit. Try again at Feb 3rd, 2099 3:04 PM.";
    for method in ["initialize", "thread/start", "turn/start"] {
        let lab = Lab::new(Server::new().once(method, [Step::fail(-32000, limit)]).script());
        let runner = lab.app_server(Duration::ZERO);
        let seen = run(&runner, lab.request("hi")).await;
        let limits = seen.failed("usage_limit").rate_limits.clone();
        let limits = limits.unwrap_or_else(|| panic!("{method}: {:#?}", seen.events));
        assert!(limits.resets_at.is_some(), "{method}: {limits:?}");
        runner.shutdown().await;
    }
}

#[tokio::test]
async fn a_refused_login_before_the_turn_says_how_to_log_in() {
    for phrase in include_str!("../../../../../takopi-core/src/failure/refused-logins.txt").lines()
    {
        for method in ["thread/start", "turn/start"] {
            let lab = Lab::new(Server::new().once(method, [Step::fail(-32000, phrase)]).script());
            let runner = lab.app_server(Duration::ZERO);
            let seen = run(&runner, lab.request("hi")).await;
            let error = seen.failed("auth").error.as_deref().unwrap_or_default();
            assert!(error.contains("`codex login`"), "{method}: {phrase}: {error}");
            runner.shutdown().await;
        }
    }
}

#[tokio::test]
async fn the_progress_of_an_mcp_tool_is_an_update_of_its_action() {
    // On the fake: 0.166 does not pass on the progress that an MCP server reports.
    let call = |status: &str| {
        json!({"type": "mcpToolCall", "id": "call", "server": "lab", "tool": "echo",
               "status": status, "arguments": {}})
    };
    let progress = json!({"threadId": "$THREAD", "turnId": "$TURN", "itemId": "call",
                          "message": "half done"});
    let steps = [
        turn::item_started(&call("inProgress")),
        Step::notify("item/mcpToolCall/progress", progress),
        Step::gate("half"),
        turn::item_completed(&call("completed")),
    ];
    let lab = Lab::new(Server::new().turn(steps.into_iter().chain(turn::answer("done"))).script());
    let runner = lab.app_server(Duration::ZERO);
    let mut stream = runner.run(lab.request("work"));
    let half = until(
        &mut stream,
        "the update",
        |event| matches!(event, TakopiEvent::Action(event) if event.phase == Phase::Updated),
    );
    let half = half.await;
    lab.control.open("half");
    let seen = finish(stream, half).await;
    let tool = seen.actions(&ActionKind::Tool);
    let phases: Vec<_> = tool.iter().map(|event| event.phase).collect();
    assert_eq!(phases, [Phase::Started, Phase::Updated, Phase::Completed], "{tool:#?}");
    assert_eq!(tool[1].action.detail["progress"], "half done");
}
