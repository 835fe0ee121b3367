//! `takopi demo`: shows what takopi does; needs no account and no agent.
//!
//! On a terminal each step takes a moment; elsewhere it prints plain lines and ends in a second or two.

use std::time::Duration;

use futures::StreamExt as _;
use takopi_bridge::present::{Line, Style};
use takopi_core::demo::{DEMO, Demo, Step};
use takopi_core::{Action, ActionEvent, ActionKind, Phase, ResumeToken, RunRequest, Runner};
use tokio_util::sync::CancellationToken;

use crate::approve::{Approvals, Questions};
use crate::args::{Approve, DemoArgs};
use crate::signals::{self, Received};
use crate::terminal::Terminal;
use crate::turn::{Report, Turn};
use crate::view::Mode;
use crate::{exit, keys, run};

/// The time of a step on a terminal …
const ON_TERMINAL: Duration = Duration::from_millis(350);
/// … and elsewhere.
const ELSEWHERE: Duration = Duration::from_millis(20);
/// The least time of the errand in the second part: a shorter wait for the session would not be shown.
const ERRAND: Duration = Duration::from_millis(1500);
/// How long the approval request waits for a key.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn main(args: &DemoArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let pace = args.pace.unwrap_or(if terminal.draws { ON_TERMINAL } else { ELSEWHERE });
    run::runtime()?.block_on(async {
        let cancel = CancellationToken::new();
        let mut received = signals::watch(cancel.clone())?;
        Tour { terminal, pace, cancel }.run(&mut received).await
    })
}

/// A run that was shown.
struct Shown {
    code: u8,
    session: Option<ResumeToken>,
}

struct Tour {
    terminal: Terminal,
    pace: Duration,
    cancel: CancellationToken,
}

impl Tour {
    async fn run(&self, received: &mut Received) -> anyhow::Result<u8> {
        self.heading("A prompt goes in; the steps of the agent are shown as they happen.");
        let agent = Demo::new().pace(self.pace).runner();
        let mut request = self.request("show me around", None);
        let can_ask = self.terminal.draws && keys::has_terminal();
        let approve = if can_ask { Approve::Ask } else { Approve::Deny };
        let approvals = Approvals::new(approve, true, PATIENCE);
        request.approvals = Some(approvals.handler);
        let shown = self.show(&agent, request, approvals.questions, received).await?;
        let session = match (shown.code, shown.session) {
            (exit::OK, Some(session)) => session,
            (code, _) => return Ok(code),
        };

        self.heading(
            "Two prompts for one session at the same time: the second waits for the first.",
        );
        let agent = Demo::scripted(errand()).pace(self.pace).runner();
        let ahead = agent.run(self.request("fetch the paper", Some(&session)));
        let ahead = tokio::spawn(ahead.collect::<Vec<_>>());
        let request = self.request("and the milk", Some(&session));
        let code = self.show(&agent, request, None, received).await?.code;
        // Only the second of the two runs is shown.
        let _ = ahead.await;
        if code == exit::OK {
            self.heading("With an agent: takopi run 'what does this project do?'");
        }
        Ok(code)
    }

    /// Runs and shows one request.
    async fn show(
        &self,
        agent: &dyn Runner,
        request: RunRequest,
        questions: Option<Questions>,
        received: &mut Received,
    ) -> anyhow::Result<Shown> {
        let turn = Turn { runner: agent, terminal: self.terminal, mode: Mode::Progress };
        let seen = turn.show(request, questions, received).await;
        let signal = *received.borrow_and_update();
        let report = Report { signal, ..Report::default() };
        let code = turn.report(&seen, &report)?;
        turn.end(received).await;
        Ok(Shown { code, session: seen.progress.resume().cloned() })
    }

    fn request(&self, prompt: &str, session: Option<&ResumeToken>) -> RunRequest {
        RunRequest::new(prompt).resume(session.cloned()).cancel(self.cancel.clone())
    }

    fn heading(&self, text: &str) {
        self.terminal.line(&Line::new());
        self.terminal.line(&Line::new().with(Style::Heading, text));
    }
}

/// A short errand.
fn errand() -> Vec<Step> {
    let walk = Action::new("walk", ActionKind::Command, "walk to the shop");
    let walk = |phase| ActionEvent::new(DEMO, walk.clone(), phase);
    vec![
        Step::Act(walk(Phase::Started)),
        Step::Pause(ERRAND),
        Step::Act(walk(Phase::Completed).ok(true)),
        Step::Say("Here it is. **No prompt was lost.**".to_owned()),
    ]
}
