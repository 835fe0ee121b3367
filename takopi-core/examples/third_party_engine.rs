//! A complete engine around an ordinary program: `awk` counts the words of the prompt.
//!
//! `cargo run -p takopi-core --example third_party_engine -- 'some words'`

#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use futures::StreamExt;
use serde_json::Value;
use takopi_core::jsonl::{Ending, Jsonl, LineEngine, NotJsonError, Translator};
use takopi_core::model::{Action, ActionEvent, ActionKind, Completed, Phase, Reason, Started};
use takopi_core::process::{Exit, Launch, StdinPlan};
use takopi_core::runner::ResumeCodec;
use takopi_core::{EngineId, ResumeToken, RunError, RunRequest, Runner, TakopiEvent};

const TALLY: EngineId = EngineId::from_static("tally");
const SCRIPT: &str = r#"printf '{"session":"%s"}\n' "${1:-tally-$$}"
    awk '{ printf "{\"line\":%d,\"words\":%d}\n", NR, NF; total += NF }
         END { printf "{\"total\":%d}\n", total }'"#;

/// The engine: what to start.
pub struct Tally;

impl LineEngine for Tally {
    type Translator = Lines;

    fn id(&self) -> EngineId {
        TALLY
    }

    fn resume_codec(&self) -> ResumeCodec {
        ResumeCodec::new(TALLY, "tally resume", |id| {
            let number = id.strip_prefix("tally-")?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then(|| id.to_owned())
        })
    }

    fn launch(&self, run: &RunRequest, resume: Option<&ResumeToken>) -> Result<Launch, RunError> {
        Ok(Launch::new("sh")
            .args(["-c", SCRIPT, "tally"])
            .args(resume.map(|token| token.value.clone()))
            .stdin(StdinPlan::Payload(format!("{}\n", run.prompt).into())))
    }

    fn translator(&self, _: &RunRequest, _: Option<&ResumeToken>) -> Lines {
        Lines
    }
}

/// How its lines become events: a pure state machine, here without a state.
pub struct Lines;

impl Translator for Lines {
    fn line(&mut self, line: &[u8], events: &mut Vec<TakopiEvent>) -> Result<(), NotJsonError> {
        let line: Value = serde_json::from_slice(line).map_err(|_| NotJsonError)?;
        if let Some(session) = line["session"].as_str() {
            events.push(Started::new(ResumeToken::new(TALLY, session)).title("Tally").into());
        } else if let Some(number) = line["line"].as_u64() {
            let action = Action::new(format!("line_{number}"), ActionKind::Tool, "count")
                .with("words", line["words"].clone());
            events.push(ActionEvent::new(TALLY, action, Phase::Completed).ok(true).into());
        } else if let Some(total) = line["total"].as_u64() {
            events.push(Completed::success(TALLY, format!("{total} words")).into());
        }
        Ok(())
    }

    fn end(&mut self, exit: &Exit, events: &mut Vec<TakopiEvent>) -> Ending {
        let error = format!("tally ended early (rc={})", exit.rc());
        events.push(Completed::failure(TALLY, Reason::ProcessDied, error).into());
        Ending::Over
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "one two\nthree".to_owned());
    let runner = Jsonl::runner(Tally);
    let mut events = runner.run(RunRequest::new(prompt));
    while let Some(event) = events.next().await {
        println!("{}", serde_json::to_string(&event)?);
    }
    runner.shutdown().await;
    Ok(())
}
