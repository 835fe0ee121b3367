//! What a healthy claude does with a call of its client, modelled on recordings of 2.1.325.

use serde_json::{Value, json};
use takopi_tests::claude::fake::{Step, turn};

/// What `claude auth status` prints.
pub(crate) const AUTH: &str =
    r#"{"loggedIn":true,"authMethod":"api_key","apiKeySource":"ANTHROPIC_API_KEY"}"#;

/// How a control request is answered: with a response, if there is one, or an error and its code.
pub(crate) type Outcome = Result<Option<Value>, (String, String)>;

/// The answer to a control request.
pub(crate) fn outcome(request: &Value, version: &str, running: bool) -> Outcome {
    let response = match request["subtype"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "commands": [],
            "agents": [],
            "output_style": "default",
            "available_output_styles": ["default"],
            "models": [{"value": "default", "displayName": "Default (recommended)"}],
            "account": {"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY"},
            "pid": std::process::id(),
            "claude_code_version": version,
            "current_permission_mode": "default",
            "session_state": if running { "running" } else { "idle" },
            "capabilities": [],
        }),
        "interrupt" => json!({"still_queued": []}),
        "end_session" => return Ok(None),
        "set_model" => json!({"model": request["model"]}),
        "set_permission_mode" => json!({"mode": request["mode"]}),
        "stop_task"
        | "background_tasks"
        | "mcp_status"
        | "get_session_cost"
        | "get_context_usage"
        | "get_settings"
        | "rename_session"
        | "set_max_thinking_tokens" => {
            json!({})
        }
        "get_binary_version" => json!({"version": version}),
        other => {
            let text = format!("Unsupported control request subtype: {other}");
            return Err((text, "unsupported_request".to_owned()));
        }
    };
    Ok(Some(response))
}

/// Everything that happens with a call; `code` is what the process would exit with.
pub(crate) fn steps(call: &str, code: i32) -> Vec<Step> {
    match call {
        "user" => turn::opened(turn::answer("Hello from the fake.")),
        "steer" => vec![turn::lifecycle("queued"), turn::lifecycle("started")],
        "interrupt" => vec![Step::Withdraw("*".to_owned()), Step::Reply, Step::Interrupt],
        "end_session" => vec![Step::Reply, Step::Interrupt, Step::Exit(code)],
        _ => vec![Step::Reply],
    }
}

/// What comes at the end of an interrupted turn, in which these tools were running.
pub(crate) fn interrupted(tools: &[String]) -> Vec<Step> {
    let rejected = |id: &String| turn::tool_failed(id, "The user doesn't want to proceed");
    let end =
        [turn::note("[Request interrupted by user for tool use]"), turn::aborted("aborted_tools")];
    tools.iter().map(rejected).chain(end).collect()
}
