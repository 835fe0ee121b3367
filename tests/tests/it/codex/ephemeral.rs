//! Sessions that are not stored, on the real codex over both transports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::{EngineRunner, Host, Runner};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, ModelServer};
use takopi_tests::runs::{request, run};

/// The files below a directory whose name contains the id of a session. Snapshots of the shell are none of them: codex
/// removes them when it exits in time.
fn stored(directory: &Path, id: &str) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_name() != "shell_snapshots");
    let count = |path: &Path| {
        let named = path.file_name().is_some_and(|name| name.to_string_lossy().contains(id));
        usize::from(named) + stored(path, id)
    };
    entries.map(|entry| count(&entry.path())).sum()
}

#[tokio::test]
async fn a_session_that_is_not_stored_leaves_no_file_and_no_token() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    for prompt in ["stored", "fleeting"] {
        model.when(prompt, [Answer::text("Hello."), Answer::text("Hello.")]);
    }
    let home = TestHome::new(&model);
    let host = || Host::builder().state_directory(home.state()).build().unwrap();
    let codex = || Codex::new().binary(&codex.path);
    let app_server = CodexAppServer::new(codex()).keep_warm(Duration::ZERO);
    let runners: [Arc<dyn Runner>; 2] =
        [Arc::new(codex().exec().on(host())), Arc::new(EngineRunner::new(app_server).on(host()))];
    for runner in &runners {
        let kept = run(&**runner, request(&home, "stored")).await;
        assert_eq!(kept.ok().answer, "Hello.");
        let id = kept.session().value;
        assert_eq!(stored(&home.codex_home().join("sessions"), &id), 1, "{id}");

        let fleeting = run(&**runner, request(&home, "fleeting").ephemeral(true)).await;
        assert_eq!(fleeting.ok().answer, "Hello.");
        assert_eq!(fleeting.completed().resume, None);
        runner.shutdown().await;
        let id = fleeting.session().value;
        assert_eq!(stored(&home.codex_home(), &id), 0, "{id}");
    }
    home.assert_no_processes().await;
}

#[tokio::test]
async fn no_server_is_kept_for_a_session_that_is_not_stored() {
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    model.when("fleeting", "Hello.");
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path));
    let runner = EngineRunner::new(engine.keep_warm(Duration::from_hours(1))).on(host);
    let fleeting = run(&runner, request(&home, "fleeting").ephemeral(true)).await;
    assert_eq!(fleeting.ok().answer, "Hello.");
    home.assert_no_processes().await;
}
