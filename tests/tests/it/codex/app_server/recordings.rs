//! What recorded turns of the real app-server are translated to, by the whole runner.
//!
//! The fake plays what was received in a turn of `fixtures/*/app-server/*.txt`; whatever it asked is
//! accepted. One snapshot a recording, one event a line; what is streamed is left out, since how much
//! of it is gathered depends on the reader. (Those of exec are in takopi-codex.)
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use takopi_core::{ApprovalHandler, ApprovalRequest, Decision, Runner};
use takopi_tests::codex::fake::{Server, Step};
use takopi_tests::codex::lab::Lab;
use takopi_tests::dirs;
use takopi_tests::runs::{Seen, run};

/// Where the recordings were made.
const WORKSPACE: &str = "/workspace";

struct AcceptAll;

impl ApprovalHandler for AcceptAll {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        Box::pin(std::future::ready(Decision::Accept))
    }
}

/// The release, the name and the file of every recording.
fn recordings() -> Vec<(String, String, PathBuf)> {
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut recordings = Vec::new();
    for release in std::fs::read_dir(dirs::workspace().join("fixtures")).unwrap() {
        let release = release.unwrap().path();
        for file in std::fs::read_dir(release.join("app-server")).into_iter().flatten() {
            let file = file.unwrap().path();
            let of = release.file_name().unwrap().to_string_lossy().into_owned();
            recordings.push((of, name(&file), file));
        }
    }
    recordings.sort();
    assert!(recordings.len() >= 40, "only {} recordings", recordings.len());
    recordings
}

/// What was received in the first turn of a recording, from behind the reply to its end.
fn first_turn(text: &str) -> Vec<Step> {
    let received = text.lines().filter_map(|line| line.strip_prefix("< "));
    let messages: Vec<Value> =
        received.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let turn = messages.iter().find_map(|message| {
        message["result"]["turn"]["id"].as_str().or(message["params"]["turn"]["id"].as_str())
    });
    let turn = turn.expect("a turn").to_owned();
    let thread = messages.iter().find_map(|message| message["result"]["thread"]["id"].as_str());
    let thread = thread.expect("a thread").to_owned();
    let mut steps = vec![Step::Reply];
    for message in &messages {
        let Some(method) = message["method"].as_str() else { continue };
        let params =
            message["params"].to_string().replace(&turn, "$TURN").replace(&thread, "$THREAD");
        let params: Value = serde_json::from_str(&params.replace(WORKSPACE, "$CWD")).unwrap();
        let over = method == "turn/completed" && params["turn"]["id"] == "$TURN";
        if message.get("id").is_some() {
            steps.push(Step::ask("recorded", method, params));
        } else if method != "thread/started" && method != "serverRequest/resolved" {
            steps.push(Step::notify(method, params));
        }
        if over {
            break;
        }
    }
    steps
}

/// The events of a run as lines, the same whenever and wherever it was run.
fn neutral(lab: &Lab, seen: &Seen) -> String {
    let lines: Vec<String> =
        seen.steady().map(|event| serde_json::to_string(event).unwrap()).collect();
    let workspace = lab.home.workspace();
    lines
        .join("\n")
        .replace(&seen.session().value, "THREAD")
        .replace(workspace.to_str().unwrap(), WORKSPACE)
}

#[tokio::test]
async fn every_recording_is_translated_as_it_was() {
    for (release, name, file) in recordings() {
        let steps = first_turn(&std::fs::read_to_string(&file).unwrap());
        let lab = Lab::new(Server::new().always("turn/start", steps).script());
        let runner = lab.app_server(Duration::ZERO);
        let request = lab.request("hi").approvals(Arc::new(AcceptAll));
        let seen = run(&runner, request).await;
        runner.shutdown().await;
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(format!("{release}-{name}"), neutral(&lab, &seen));
        });
    }
}
