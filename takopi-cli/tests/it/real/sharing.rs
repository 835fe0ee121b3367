//! One session in two processes: a program that keeps it warm, and the command.

use std::time::Duration;

use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::{EngineRunner, Host, Runner};
use takopi_tests::runs::{request, run};

use super::lab::{Lab, TRANSPORTS};

#[tokio::test]
async fn a_warm_session_of_a_program_is_used_by_the_command_and_then_by_the_program_again() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        for (prompt, answer) in [("one", "1"), ("two", "2"), ("three", "3")] {
            lab.model.when(prompt, answer);
        }
        let host = Host::builder().state_directory(lab.home.state()).build().unwrap();
        let codex = Codex::new().binary(&lab.codex.path);
        let engine = CodexAppServer::new(codex).keep_warm(Duration::from_hours(1));
        let program = EngineRunner::new(engine).on(host);

        let first = run(&program, request(&lab.home, "one")).await;
        let session = first.session();
        assert_eq!(lab.home.servers().len(), 1, "the program keeps it warm");
        let resume = ["run", "--transport", transport, "--resume", &session.value, "-q", "two"];
        let second = lab.run(&resume).await;
        assert_eq!((second.code, second.stdout.as_str()), (Some(0), "2\n"), "{}", second.stderr);
        let third = run(&program, request(&lab.home, "three").resume(session)).await;
        assert_eq!(third.ok().answer, "3");
        assert_eq!(lab.model.requests()[2].user_texts(), ["one", "two", "three"]);
        program.shutdown().await;
        lab.home.assert_no_processes().await;
    }
}
