//! Prompts are text, and the files of a project do nothing unless the caller allows it.

use serde_json::json;
use takopi_core::Runner;
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::model::messages::{MessagesServer, Script};
use takopi_tests::runs::run;

use super::{engine, runner};

#[tokio::test]
async fn a_prompt_that_begins_with_a_slash_or_mentions_a_file_reaches_the_model_as_text() {
    for version in real::versions() {
        let Some(claude) = real::claude_version_or_skip(version) else { return };
        let model = MessagesServer::start();
        model.otherwise(Script::repeat("Read."));
        let home = TestHome::new(&model);
        let secret = home.workspace().join("secret.txt");
        std::fs::write(&secret, "the-secret-itself").unwrap();
        let runner = runner(engine(&claude), &home);
        let mention = format!("look at @{} and @secret.txt", secret.display());
        let prompts =
            ["/clear", "/cost", "/compact now", "/etc/hosts is a file", "@/etc/passwd", &mention];
        for prompt in prompts {
            let seen = run(&runner, home.request(prompt)).await;
            assert_eq!(seen.ok().answer, "Read.", "{version}: {prompt}");
            let request = model.requests().pop().unwrap();
            let users: Vec<String> =
                request.history().into_iter().filter(|line| line.starts_with("user: ")).collect();
            assert_eq!(users.len(), 1, "{version}: {users:?}");
            let text = users[0].strip_prefix("user: ").unwrap();
            // Older releases get a space ahead of a slash.
            assert_eq!(text.trim_start(), prompt, "{version}");
            let sent = request.body.to_string();
            assert!(!sent.contains("the-secret-itself") && !sent.contains("root:x:"), "{version}");
        }
        runner.shutdown().await;
        home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn hooks_and_servers_of_the_project_run_only_if_the_caller_allows_it() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.otherwise(Script::repeat("Hello."));
    let home = TestHome::new(&model);
    let (hook, server) = (home.workspace().join("hook-ran"), home.workspace().join("server-ran"));
    let touch = |file: &std::path::Path| format!("touch {}", file.display());
    let hooks = json!({ "hooks": { "UserPromptSubmit": [
        { "hooks": [{ "type": "command", "command": touch(&hook) }] },
    ] } });
    let servers = json!({ "mcpServers": { "project": {
        "command": "sh", "args": ["-c", touch(&server)],
    } } });
    std::fs::create_dir(home.workspace().join(".claude")).unwrap();
    std::fs::write(home.workspace().join(".claude/settings.json"), hooks.to_string()).unwrap();
    std::fs::write(home.workspace().join(".mcp.json"), servers.to_string()).unwrap();

    let closed = runner(engine(&claude), &home);
    assert_eq!(run(&closed, home.request("go")).await.ok().answer, "Hello.");
    assert!(!hook.exists() && !server.exists(), "nobody allowed them");
    let open = runner(engine(&claude).project_settings(true), &home);
    assert_eq!(run(&open, home.request("go")).await.ok().answer, "Hello.");
    assert!(hook.exists() && server.exists(), "as Claude Code does by itself");
    let option = home.request("go").option("project_settings", "false");
    std::fs::remove_file(&hook).unwrap();
    run(&open, option).await.ok();
    assert!(!hook.exists(), "a request may close it");
    open.shutdown().await;
    closed.shutdown().await;
}

#[tokio::test]
async fn a_run_inside_of_claude_code_is_no_child_of_it() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    let bash = takopi_tests::model::messages::Answer::new()
        .bash("echo entry=$CLAUDE_CODE_ENTRYPOINT child=$CLAUDE_CODE_CHILD_SESSION");
    model.otherwise([bash, "Done.".into()]);
    let home = TestHome::new(&model);
    let runner = runner(engine(&claude), &home);
    let seen = run(&runner, home.request("go").permission_mode("bypassPermissions")).await;
    let session = seen.session();
    seen.ok();
    assert_eq!(home.sessions(), [session.value], "the transcript is kept");
    runner.shutdown().await;
}
