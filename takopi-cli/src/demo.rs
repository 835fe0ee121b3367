//! `takopi demo`: what takopi does, with no account and nothing installed.
//!
//! On a terminal it takes its time; elsewhere it prints plain lines and is done in a second or two.

use std::time::Duration;

use futures::StreamExt as _;
use takopi_bridge::present::{Line, Style};
use takopi_core::demo::{DEMO, Demo, Step};
use takopi_core::{Action, ActionEvent, ActionKind, Phase, ResumeToken, RunRequest, Runner};
use tokio_util::sync::CancellationToken;

use crate::approve::{self, Questions};
use crate::args::{Approve, DemoArgs};
use crate::signals::{self, Received};
use crate::terminal::Terminal;
use crate::turn::{Report, Turn};
use crate::view::Mode;
use crate::{exit, keys, run};

/// How long a step takes where somebody watches …
const WATCHED: Duration = Duration::from_millis(350);
/// … and where nobody does.
const UNWATCHED: Duration = Duration::from_millis(20);
/// How long the errand of the second act takes at least: a shorter wait would not be worth a word.
const ERRAND: Duration = Duration::from_millis(500);
/// How long the question waits for a key.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn main(args: &DemoArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let pace = args.pace.unwrap_or(if terminal.draws { WATCHED } else { UNWATCHED });
    run::runtime()?.block_on(async {
        let cancel = CancellationToken::new();
        let mut received = signals::watch(cancel.clone())?;
        Tour { terminal, pace, cancel }.go(&mut received).await
    })
}

struct Tour {
    terminal: Terminal,
    pace: Duration,
    cancel: CancellationToken,
}

impl Tour {
    async fn go(&self, received: &mut Received) -> anyhow::Result<u8> {
        self.heading("A prompt goes in; what the agent does is seen as it happens.");
        let agent = Demo::new().pace(self.pace).runner();
        let mut request = self.request("show me around", None);
        let watched = self.terminal.draws && keys::has_terminal();
        let approve = if watched { Approve::Ask } else { Approve::Deny };
        let (handler, questions) = approve::handler(approve, true, PATIENCE);
        request.approvals = handler;
        let (code, session) = self.act(&agent, request, questions, received).await?;
        let Some(session) = session.filter(|_| code == exit::OK) else { return Ok(code) };

        self.heading("Two prompts for one session at once: the second waits its turn.");
        let agent = Demo::scripted(errand()).pace(self.pace).runner();
        let ahead = agent.run(self.request("fetch the paper", Some(&session)));
        let ahead = tokio::spawn(ahead.collect::<Vec<_>>());
        let request = self.request("and the milk", Some(&session));
        let (code, _) = self.act(&agent, request, None, received).await?;
        // Its answer went to whoever asked; here it only had to be ahead.
        let _ = ahead.await;
        if code == exit::OK {
            self.heading("With an agent: takopi run 'what does this project do?'");
        }
        Ok(code)
    }

    /// Runs and shows one request; returns the exit code and the session.
    async fn act(
        &self,
        agent: &dyn Runner,
        request: RunRequest,
        questions: Option<Questions>,
        received: &mut Received,
    ) -> anyhow::Result<(u8, Option<ResumeToken>)> {
        let turn = Turn { runner: agent, terminal: self.terminal, mode: Mode::Progress };
        let seen = turn.show(request, questions, received).await;
        let signal = *received.borrow_and_update();
        let report = Report { signal, could_ask: true, ..Report::default() };
        let code = turn.report(&seen, &report)?;
        turn.end(received).await;
        Ok((code, seen.progress.resume().cloned()))
    }

    fn request(&self, prompt: &str, session: Option<&ResumeToken>) -> RunRequest {
        RunRequest::new(prompt).resume(session.cloned()).cancel(self.cancel.clone())
    }

    fn heading(&self, text: &str) {
        self.terminal.say(&Line::new());
        self.terminal.say(&Line::new().with(Style::Heading, text));
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
        Step::Say("Here it is. **Nobody's prompt was lost.**".to_owned()),
    ]
}
