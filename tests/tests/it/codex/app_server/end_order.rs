//! The end of a run that was cut short comes when nothing of the run is left, over app-server.
use std::time::Duration;

use futures::future::join_all;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::EngineRunner;
use takopi_core::RunRequest;
use takopi_tests::codex::fake::{Grandchild, Place, Server, Signal, Step, turn};
use takopi_tests::codex::lab::Lab;
use takopi_tests::runs::run;
use tokio_util::sync::CancellationToken;

const SHORT: Duration = Duration::from_millis(1);

/// What ends the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cause {
    Cancel,
    IdleLimit,
    WallLimit,
    TurnLimit,
    QuietAfterTool,
    Death,
}

impl Cause {
    fn engine(self, engine: CodexAppServer) -> CodexAppServer {
        match self {
            Self::TurnLimit => engine.turn_limit(SHORT),
            Self::QuietAfterTool => engine.post_tool_quiet(SHORT),
            _ => engine,
        }
    }

    fn request(self, request: RunRequest) -> RunRequest {
        match self {
            Self::IdleLimit => request.idle_timeout(Duration::from_secs(2)),
            Self::WallLimit => request.wall_timeout(Duration::from_secs(4)),
            _ => request,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Cancel => "interrupted",
            Self::IdleLimit | Self::QuietAfterTool => "timeout_idle",
            Self::WallLimit | Self::TurnLimit => "timeout_wall",
            Self::Death => "process_died",
        }
    }
}

/// The server and a process of its turn resist everything but SIGKILL, so that an end which comes
/// too early comes seconds too early.
async fn end_comes_last(cause: Cause) {
    let signals = [Signal::Int, Signal::Term, Signal::Hup];
    let stubborn = Grandchild::new("stubborn").at(Place::OwnSession).ignoring(signals);
    let steps = [stubborn.spawn()].into_iter();
    let tool = [turn::command_started("c", "ls"), turn::command_completed("c", "ls", "", 0)];
    let last = match cause {
        Cause::Death => Step::Die(Signal::Kill),
        _ => Step::SleepForever,
    };
    let server = Server::new()
        .first([Step::ignore(signals)])
        .at_eof([Step::SleepForever])
        .turns(steps.chain(tool).chain([Step::reached("working"), last]));
    let lab = Lab::new(server.script());
    let engine = cause.engine(CodexAppServer::new(lab.codex()));
    let runner = EngineRunner::new(engine).on(lab.host.clone());
    let cancel = CancellationToken::new();
    let request = cause.request(lab.request("hi")).cancel(cancel.clone());
    let cancelling = async {
        if cause == Cause::Cancel {
            lab.control.reached("working").await;
            cancel.cancel();
        }
    };
    let (seen, ()) = tokio::join!(run(&runner, request), cancelling);
    assert_eq!(lab.home.processes(), [], "{cause:?}: the end was reported before they were gone");
    seen.failed(cause.reason());
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_that_was_cut_short_has_no_process_left_at_its_end() {
    use Cause::{Cancel, Death, IdleLimit, QuietAfterTool, TurnLimit, WallLimit};
    let causes = [Cancel, IdleLimit, WallLimit, TurnLimit, QuietAfterTool, Death];
    join_all(causes.map(end_comes_last)).await;
}
