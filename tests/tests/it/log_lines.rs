//! Text of an agent that takopi logs has no credentials, wherever in a message they stand.

use std::time::Duration;

use serde_json::json;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::{EngineRunner, Runner};
use takopi_tests::logs::Logs;
use takopi_tests::runs::run;
use takopi_tests::{acp, claude, codex, pi};

const LONG: Duration = Duration::from_mins(10);

/// What an agent says, as a name, an id or a text.
const SAID: &str = "Bearer sk-SECRET-123";

/// Each of these was logged, without the credential.
fn are_clean(logs: &Logs, expected: &[&str]) {
    let text = logs.text();
    for expected in expected {
        let mut lines = text.lines().filter(|line| line.contains(expected));
        assert!(lines.any(|line| line.contains("[redacted]")), "{expected}: {text}");
    }
    assert!(!text.contains("SECRET"), "{text}");
}

#[tokio::test]
async fn no_credential_that_codex_prints_over_exec_is_logged() {
    use codex::fake::{Script, Step, exec};
    let logs = Logs::collect();
    let odd = Step::line(json!({ "type": SAID }).to_string());
    let steps = [Step::ReadStdin, exec::thread_started(), exec::turn_started(), odd];
    let end = [Step::line(SAID), exec::message("Hello."), exec::turn_completed()];
    let lab = codex::lab::Lab::new(Script::exec(steps.into_iter().chain(end))).on_this_runtime();
    run(&lab.exec(), lab.request("hi")).await.ok();
    are_clean(&logs, &["printed an unknown event"]);
}

#[tokio::test]
async fn no_credential_that_codex_sends_over_app_server_is_logged() {
    use codex::fake::{Server, Step, turn};
    let logs = Logs::collect();
    let odd = [
        Step::notify(SAID, json!({ "threadId": 7 })),
        Step::line(SAID),
        Step::line(json!({ "error": { "code": 1, "message": SAID } }).to_string()),
    ];
    let late = [Step::gate("later"), Step::ask("late", SAID, json!({ "threadId": "$THREAD" }))];
    let server =
        Server::new().turns_when("odd", odd.into_iter().chain(turn::answer("Hello.")).chain(late));
    let lab = codex::lab::Lab::new(server.script()).on_this_runtime();
    let engine = CodexAppServer::new(lab.codex()).shared(PoolLimits::default()).keep_warm(LONG);
    let runner = EngineRunner::new(engine).on(lab.host.clone());
    run(&runner, lab.request("odd")).await.ok();
    lab.control.open("later");
    lab.control.answer("late").await;
    runner.shutdown().await;
    are_clean(
        &logs,
        &[
            "names no thread or turn that can be read",
            "a request of the app-server belongs to no run here",
        ],
    );
}

#[tokio::test]
async fn no_credential_that_claude_code_prints_is_logged() {
    use claude::fake::{Process, Step, turn};
    let logs = Logs::collect();
    let response = json!({ "subtype": "success", "request_id": SAID, "response": {} });
    let odd = [
        Step::line(json!({ "type": SAID }).to_string()),
        Step::line(json!({ "type": "system", "subtype": SAID }).to_string()),
        Step::line(json!({ "type": "control_response", "response": response }).to_string()),
        Step::line(SAID),
    ];
    let late = [Step::gate("later"), Step::ask("late", SAID, json!({}))];
    let steps = odd.into_iter().chain(turn::answer("Hello.")).chain(late);
    let lab = claude::lab::Lab::new(Process::new().turns(steps)).on_this_runtime();
    let runner = lab.runner(LONG);
    run(&runner, lab.request("hi")).await.ok();
    lab.control.open("later");
    lab.control.answer("late").await;
    runner.shutdown().await;
    are_clean(&logs, &["skipped a line", "a late response", "no run has the process"]);
}

#[tokio::test]
async fn no_credential_that_an_acp_agent_sends_is_logged() {
    use acp::fake::{Lab, Process, Step, answer, update};
    let logs = Logs::collect();
    let odd = [
        Step::notify(SAID, json!({})),
        update(&json!({ "sessionUpdate": SAID })),
        Step::ask("odd", SAID, json!({ "sessionId": "$SESSION" })),
        Step::line(SAID),
    ];
    let process = Process::new()
        .turns(odd.into_iter().chain(answer("Hello.")))
        .always("session/close", [Step::fail(-32603, SAID)]);
    let lab = Lab::new(process).on_this_runtime();
    let runner = lab.runner(Duration::ZERO);
    run(&runner, lab.request("hi")).await.ok();
    runner.shutdown().await;
    are_clean(
        &logs,
        &[
            "a notification of the agent",
            "an update without an event",
            "asks for what takopi does not have",
            "the session was not closed",
        ],
    );
}

#[tokio::test]
async fn no_credential_that_pi_prints_is_logged() {
    use pi::fake::{Process, Step, line, message, run as begun, settled};
    let logs = Logs::collect();
    let steps = [
        line(&json!({ "type": SAID })),
        line(&json!({ "type": "response", "id": SAID, "success": true })),
        Step::line(SAID),
        message("Hello.", "stop"),
        settled(false),
    ];
    let lab = pi::lab::Lab::new(Process::new().always("prompt", begun(steps))).on_this_runtime();
    let runner = lab.runner(Duration::ZERO);
    run(&runner, lab.request("hi")).await.ok();
    runner.shutdown().await;
    are_clean(&logs, &["an event of pi that is not known", "that nobody waits for"]);
}
