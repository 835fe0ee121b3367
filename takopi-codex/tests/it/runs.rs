//! Whole runs over exec, with a fake codex: what its end means, and what it is given.
//!
//! The fake is a shell script that plays a given script. What the real codex does is tested in
//! the workspace's cross-crate tests.
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{
    DONE, SESSION, STARTED, TURN, actions, completed, item_line, message, outline, session,
};
use futures::StreamExt;
use serde_json::json;
use takopi_codex::Codex;
use takopi_core::{Host, Reason, RunRequest, Runner, TakopiEvent};
use tempfile::TempDir;

/// A codex that plays a script, with a state directory of its own.
struct Fake {
    directory: TempDir,
    codex: Codex,
}

impl Fake {
    fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/codex");
        Self { directory: TempDir::new().unwrap(), codex: Codex::new().binary(script) }
    }

    /// Under a name of its own, so that its version is not known yet.
    fn unknown(version: &str) -> Self {
        let mut fake = Self::new().with("version", version);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/codex");
        let link = fake.directory.path().join("codex");
        std::os::unix::fs::symlink(script, &link).unwrap();
        fake.codex = Codex::new().binary(link);
        fake
    }

    fn with(self, what: &str, text: &str) -> Self {
        std::fs::write(self.file(what), text).unwrap();
        self
    }

    /// Prints these lines.
    fn prints(self, lines: &[&str]) -> Self {
        let text: String = lines.iter().flat_map(|line| [*line, "\n"]).collect();
        self.with("out", &text)
    }

    fn codex(mut self, change: impl FnOnce(Codex) -> Codex) -> Self {
        self.codex = change(self.codex);
        self
    }

    fn file(&self, what: &str) -> PathBuf {
        self.directory.path().join(format!("play.{what}"))
    }

    fn kept(&self, what: &str) -> String {
        std::fs::read_to_string(self.file(what)).unwrap()
    }

    fn was_run(&self) -> bool {
        self.file("runs").exists()
    }

    async fn run(&self, request: RunRequest) -> Vec<TakopiEvent> {
        let state = self.directory.path().join("state");
        let host = Host::builder().state_directory(state).build().unwrap();
        let runner = self.codex.clone().exec().on(host);
        let request = request.env("FAKE", self.directory.path().join("play"));
        let events = runner.run(request).collect().await;
        runner.shutdown().await;
        events
    }
}

fn prompt() -> RunRequest {
    RunRequest::new("the prompt")
}

#[tokio::test]
async fn a_run_gives_started_and_the_answer() {
    let fake = Fake::new().prints(&[STARTED, TURN, &message("Hello.", None), DONE]);
    let events = fake.run(prompt()).await;
    assert_eq!(
        outline(&events),
        ["started", r#"turn started "turn started""#, r#"completed "Hello.""#]
    );
    assert_eq!(fake.kept("stdin"), "the prompt");
    assert_eq!(fake.kept("args"), "exec\n--json\n--skip-git-repo-check\n--color=never\n-\n");
    let here = std::env::current_dir().unwrap().canonicalize().unwrap();
    assert_eq!(Path::new(fake.kept("cwd").trim_end()), here);
}

#[tokio::test]
async fn codex_runs_where_and_as_it_is_asked_to() {
    let fake = Fake::new()
        .prints(&[STARTED, TURN, DONE])
        .codex(|codex| codex.profile("work").args(["-c", "notify=[]"]).home("/nowhere/codex-home"));
    let directory = fake.directory.path().canonicalize().unwrap();
    let events = fake.run(prompt().cwd(&directory).resume(session())).await;
    let TakopiEvent::Started(started) = &events[0] else { panic!("{events:?}") };
    assert_eq!(started.title.as_deref(), Some("work"));
    assert_eq!(started.resume, session());
    let args = fake.kept("args");
    let expected = format!(
        "--profile work -c notify=[] exec --json --skip-git-repo-check --color=never --cd {} resume {SESSION} -",
        directory.display()
    );
    assert_eq!(args.lines().collect::<Vec<_>>().join(" "), expected);
    assert_eq!(Path::new(fake.kept("cwd").trim_end()), directory);
    assert!(fake.kept("env").lines().any(|line| line == "CODEX_HOME=/nowhere/codex-home"));
}

#[tokio::test]
async fn a_failed_exit_keeps_stderr_in_the_warning() {
    let fake = Fake::new().with("err", "secret of stderr\n").with("rc", "1");
    let events = fake.run(prompt()).await;
    assert_eq!(
        outline(&events),
        [r#"warning completed failed "codex exec failed (rc=1).""#, "failed engine_failed"]
    );
    assert_eq!(actions(&events)[0].action.detail["stderr_tail"], "secret of stderr\n");
    let error = completed(&events).error.as_deref().unwrap();
    assert!(error.contains("codex exec failed (rc=1).") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_failed_exit_keeps_the_answer_so_far_and_closes_what_is_open() {
    let command = serde_json::json!({"id":"item_1","type":"command_execution","command":"ls","status":"in_progress"});
    let fake = Fake::new()
        .prints(&[STARTED, TURN, &message("So far.", None), &item_line("started", &command)])
        .with("rc", "2");
    let events = fake.run(prompt()).await;
    assert_eq!(
        outline(&events)[2..],
        [
            r#"command started "ls""#,
            r#"warning completed failed "codex exec failed (rc=2).""#,
            r#"command completed "ls""#,
            "failed engine_failed",
        ]
    );
    assert_eq!(completed(&events).answer, "So far.");
}

#[tokio::test]
async fn a_clean_exit_without_a_terminal_event_is_an_end_if_the_session_was_named() {
    let fake = Fake::new().prints(&[STARTED, TURN, &message("Hello.", None)]);
    assert_eq!(outline(&fake.run(prompt()).await)[2..], [r#"completed "Hello.""#]);
    let fake = Fake::new().prints(&[STARTED]);
    assert_eq!(outline(&fake.run(prompt()).await), ["started", r#"completed """#]);
}

#[tokio::test]
async fn a_clean_exit_in_an_open_turn_without_an_answer_breaks_the_protocol() {
    let fake = Fake::new().prints(&[STARTED, TURN, &message("Hm.", Some("commentary"))]);
    let events = fake.run(prompt()).await;
    assert_eq!(completed(&events).reason, Some(Reason::Protocol));
}

#[tokio::test]
async fn a_clean_exit_without_a_session_is_an_error_with_its_cause() {
    for request in [prompt(), prompt().resume(session())] {
        let fake = Fake::new().prints(&[&message("Hello.", None)]);
        let asked = request.clone().resume;
        let events = fake.run(request).await;
        let end = completed(&events);
        assert_eq!(end.reason, Some(Reason::Protocol));
        assert!(end.error.as_deref().unwrap().contains("no session id was seen"));
        assert_eq!(end.resume, asked);
    }
}

#[tokio::test]
async fn a_killed_codex_is_a_process_that_died() {
    let fake =
        Fake::new().prints(&[STARTED, TURN, &message("So far.", None)]).with("rc", "SIGKILL");
    let events = fake.run(prompt()).await;
    let end = completed(&events);
    assert_eq!(end.reason, Some(Reason::ProcessDied));
    assert_eq!(end.error.as_deref(), Some("codex exec failed (rc=-9). It was killed by signal 9."));
    assert_eq!(end.answer, "So far.");
}

#[tokio::test]
async fn an_unknown_session_is_said_plainly() {
    let err = format!(
        "Error: thread/resume: thread/resume failed: no rollout found for thread id {SESSION} (code -32600)\n"
    );
    let fake = Fake::new().with("err", &err).with("rc", "1");
    let events = fake.run(prompt().resume(session())).await;
    let end = completed(&events);
    assert_eq!(end.reason, Some(Reason::SessionNotFound));
    assert_eq!(
        end.error.clone().unwrap(),
        format!("codex exec failed (rc=1). It knows no session {SESSION}.")
    );
    assert_eq!(end.resume, Some(session()));
}

#[tokio::test]
async fn a_session_that_another_codex_has_open_is_waited_for() {
    let err = format!(
        "Error: thread/resume: thread/resume failed: thread {SESSION} already has an active writer (code -32600)\n"
    );
    let fake = Fake::new().with("1.err", &err).with("1.rc", "1").with("1.out", "").prints(&[
        STARTED,
        TURN,
        &message("Hello.", None),
        DONE,
    ]);
    let events = fake.run(prompt().resume(session())).await;
    assert_eq!(completed(&events).answer, "Hello.");
    assert_eq!(fake.kept("runs").lines().count(), 2);
    assert_eq!(fake.kept("stdin"), "the prompt");

    let fake = Fake::new().with("err", &err).with("rc", "1");
    let events = fake.run(prompt().resume(session()).wait(Duration::ZERO)).await;
    assert_eq!(completed(&events).reason, Some(Reason::SessionBusy));
}

#[tokio::test]
async fn a_prompt_whose_turn_has_begun_is_not_sent_again_whatever_stderr_says() {
    let err = format!("Error: thread {SESSION} already has an active writer\n");
    let unreadable = r#"{"type":"thread.started","thread_id":7}"#;
    let command =
        json!({"id":"item_1","type":"command_execution","command":"rm x","status":"in_progress"});
    for begun in [TURN.to_owned(), item_line("started", &command)] {
        let fake = Fake::new().with("err", &err).with("rc", "1").prints(&[unreadable, &begun]);
        let events = fake.run(prompt().resume(session())).await;
        assert_eq!(completed(&events).reason, Some(Reason::EngineFailed), "{begun}");
        assert_eq!(fake.kept("runs").lines().count(), 1, "{begun}");
    }
}

#[tokio::test]
async fn the_trouble_of_a_session_means_nothing_to_a_run_that_asked_for_none() {
    let fake = Fake::new().with("err", "thread x already has an active writer\n").with("rc", "1");
    assert_eq!(completed(&fake.run(prompt()).await).reason, Some(Reason::EngineFailed));
}

#[tokio::test]
async fn a_missing_login_comes_with_advice() {
    let fake = Fake::new().with("err", "Not logged in\n").with("rc", "1");
    let events = fake.run(prompt()).await;
    let end = completed(&events);
    assert_eq!(end.reason, Some(Reason::Auth));
    assert_eq!(end.error.as_deref(), Some("codex exec failed (rc=1). (run `codex login`)"));
}

#[tokio::test]
async fn an_error_reported_before_the_exit_gives_the_reason() {
    let fake = Fake::new()
        .prints(&[STARTED, TURN, &crate::support::error("You've hit your usage limit.")])
        .with("rc", "1");
    assert_eq!(completed(&fake.run(prompt()).await).reason, Some(Reason::UsageLimit));
}

#[tokio::test]
async fn output_that_is_not_json_at_all_is_one_clear_end() {
    let fake = Fake::new().prints(&["hello", "this", "is", "not", "JSON"]);
    let events = fake.run(prompt()).await;
    let end = completed(&events);
    assert!(!end.ok);
    assert!(end.error.as_deref().unwrap().contains("no session id was seen"));
}

#[tokio::test]
async fn a_codex_that_is_too_old_ends_the_run() {
    let fake = Fake::unknown("codex-cli 0.124.9\n").prints(&[STARTED, TURN]).with("stay", "");
    let events = fake.run(prompt()).await;
    let end = completed(&events);
    assert_eq!(end.reason, Some(Reason::EngineTooOld));
    let error = end.error.as_deref().unwrap();
    assert!(
        error.contains("0.124.9") && error.contains("0.125.0") && error.contains("npm install"),
        "{error}"
    );
}

#[tokio::test]
async fn a_version_that_cannot_be_read_ends_nothing() {
    let fake =
        Fake::unknown("who knows\n").prints(&[STARTED, TURN, &message("Hello.", None), DONE]);
    assert_eq!(completed(&fake.run(prompt()).await).answer, "Hello.");
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_anything_runs() {
    let missing = || "/nowhere/at/all";
    for (request, reason, named) in [
        (prompt().cwd(missing()), Reason::InvalidRequest, "/nowhere/at/all"),
        (prompt().image(missing()), Reason::InvalidRequest, "the image /nowhere/at/all"),
        (
            prompt().output_schema(missing()),
            Reason::InvalidRequest,
            "the output schema /nowhere/at/all",
        ),
        (prompt().permission_mode("plan"), Reason::InvalidRequest, "no permission modes"),
    ] {
        let fake = Fake::new().prints(&[STARTED, DONE]);
        let events = fake.run(request).await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(completed(&events).reason, Some(reason));
        let error = completed(&events).error.as_deref().unwrap();
        assert!(error.contains(named), "{error}");
        assert!(!fake.was_run());
    }
    for flag in ["--json", "--color=never", "-o"] {
        let fake = Fake::new().prints(&[STARTED, DONE]).codex(|codex| codex.args([flag]));
        let events = fake.run(prompt()).await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(completed(&events).error.as_deref().unwrap().contains(flag));
        assert!(!fake.was_run());
    }
}

#[tokio::test]
async fn a_codex_that_cannot_be_started_is_one_clear_end() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for binary in [Path::new("/nowhere/codex"), Path::new("no-codex-of-this-name"), file.path()] {
        let fake = Fake::new().codex(|codex| codex.binary(binary));
        let events = fake.run(prompt()).await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(completed(&events).reason, Some(Reason::EngineMissing));
        assert!(completed(&events).error.as_deref().unwrap().contains(binary.to_str().unwrap()));
    }
}

#[tokio::test]
async fn a_session_that_was_not_asked_for_is_never_gone_on_with() {
    let other = r#"{"type":"thread.started","thread_id":"01a1e21b-ffff-7eb0-9d27-459e98f10b74"}"#;
    let fake = Fake::new().prints(&[other, TURN, &message("Hello.", None), DONE]);
    let events = fake.run(prompt().resume(session())).await;
    assert!(!completed(&events).ok);
    assert_eq!(completed(&events).resume, Some(session()));
    assert!(!events.iter().any(|event| matches!(event, TakopiEvent::Started(_))));
}

#[tokio::test]
async fn what_is_no_session_reaches_no_codex() {
    for id in ["--last", "my session", "--dangerously-bypass-approvals-and-sandbox", ""] {
        let fake = Fake::new().prints(&[STARTED, DONE]);
        let events = fake.run(prompt().resume(takopi_core::ResumeToken::new("codex", id))).await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(!completed(&events).ok);
        assert!(!fake.was_run());
    }
}

#[tokio::test]
async fn a_second_session_in_one_run_ends_it_as_a_protocol_failure() {
    let other = "01a1e21b-ffff-7eb0-9d27-459e98f10b74";
    let named = |id: &str| format!(r#"{{"type":"thread.started","thread_id":"{id}"}}"#);
    let (first, second) = (named(SESSION), named(other));
    let message = r#"{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"of the other"}}"#;
    let end = r#"{"type":"turn.completed"}"#;
    let events = Fake::new().prints(&[&first, &first, &second, message, end]).run(prompt()).await;
    let starts = events.iter().filter(|event| matches!(event, TakopiEvent::Started(_))).count();
    let completed = completed(&events);
    assert_eq!((starts, completed.ok), (1, false), "{events:?}");
    assert_eq!(completed.reason, Some(Reason::Protocol));
    let error = completed.error.as_deref().unwrap();
    assert!(error.contains(SESSION) && error.contains(other), "{error}");
    assert_eq!(completed.resume, Some(session()));
}

#[tokio::test]
async fn lines_that_are_not_quite_json_are_translated_and_not_called_strange() {
    let started = format!("\u{feff}{{\"type\":\"thread.started\",\"thread_id\":\"{SESSION}\"}}");
    let command = r#"{"type":"item.completed","item":{"id":"c","type":"command_execution","command":"ls","aggregated_output":"a\ud800b","exit_code":0,"status":"completed","took":1e999}}"#;
    let odd_exit = r#"{"type":"item.completed","item":{"id":"d","type":"command_execution","command":"id","exit_code":1e999,"status":"failed"}}"#;
    let message = r#"{"type":"item.completed","item":{"id":"m","type":"agent_message","text":"half \ud83d a pair"}}"#;
    let end = r#"{"type":"turn.completed","usage":{"input_tokens":1e999,"output_tokens":7}}"#;
    let events =
        Fake::new().prints(&[&started, command, odd_exit, message, end]).run(prompt()).await;
    let completed = completed(&events);
    assert!(completed.ok, "{events:?}");
    assert_eq!(completed.answer, "half \u{fffd} a pair");
    assert_eq!(completed.usage.as_ref().map(|usage| usage.output_tokens), Some(7));
    let actions = actions(&events);
    let titles: Vec<_> = actions.iter().map(|event| event.action.title.as_str()).collect();
    assert_eq!(titles, ["ls", "id"], "no warnings");
    assert_eq!(actions[0].action.detail["output_tail"], "a\u{fffd}b");
}

#[tokio::test]
async fn a_usage_limit_comes_with_its_reset_time() {
    let started = format!(r#"{{"type":"thread.started","thread_id":"{SESSION}"}}"#);
    let limit = "You've hit your usage limit. Try again in 2 hours 5 minutes.";
    let failed = format!(r#"{{"type":"turn.failed","error":{{"message":"{limit}"}}}}"#);
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let events = Fake::new().prints(&[&started, &failed]).run(prompt()).await;
    let completed = completed(&events);
    assert_eq!(completed.reason, Some(Reason::UsageLimit));
    let resets_at = completed.rate_limits.as_ref().unwrap().resets_at.unwrap();
    let in_seconds = resets_at - i64::try_from(before.as_secs()).unwrap();
    assert!((7500..7500 + 600).contains(&in_seconds), "{in_seconds}");
}

#[tokio::test]
async fn a_patch_of_many_files_is_two_small_events() {
    let started = format!(r#"{{"type":"thread.started","thread_id":"{SESSION}"}}"#);
    let changes: Vec<String> = (0..20_000)
        .map(|n| format!(r#"{{"path":"/some/where/deep/file_{n}.rs","kind":"add"}}"#))
        .collect();
    let item = |event: &str, status: &str| {
        let changes = changes.join(",");
        format!(
            r#"{{"type":"item.{event}","item":{{"id":"p","type":"file_change","changes":[{changes}],"status":"{status}"}}}}"#
        )
    };
    let (begun, done) = (item("started", "in_progress"), item("completed", "completed"));
    let end = r#"{"type":"turn.completed"}"#;
    let events = Fake::new().prints(&[&started, &begun, &done, end]).run(prompt()).await;
    assert_eq!(events.len(), 4);
    for event in &events {
        let json = serde_json::to_string(event).unwrap();
        assert!(json.len() <= takopi_core::model::bounds::EVENT_BYTES, "{} bytes", json.len());
    }
    let patch = &actions(&events)[1].action;
    let kept = patch.detail["changes"].as_array().unwrap().len() as u64;
    assert_eq!(patch.detail["changes_omitted"], 20_000 - kept);
    assert!(
        patch.title.len() < 16 * 1024 && patch.title.ends_with("more"),
        "{}",
        patch.title.len()
    );
}
