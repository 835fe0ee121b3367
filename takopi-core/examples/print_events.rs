//! A consumer: runs the demo engine, prints its events as JSON lines, and goes on with the session.
//!
//! `cargo run -p takopi-core --example print_events -- 'say hello'`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example for the terminal")]

use futures::StreamExt;
use takopi_core::demo::Demo;
use takopi_core::{Completed, ResumeToken, RunRequest, Runner, TakopiEvent};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "say hello".to_owned());
    let runner = Demo::new().runner();
    let end = print_run(&runner, &prompt, None).await?;
    if let Some(session) = end.resume {
        eprintln!("to go on: {}", runner.format_resume(&session));
        print_run(&runner, "and once more", Some(session)).await?;
    }
    runner.shutdown().await;
    Ok(())
}

/// Prints one run. Its last event is `Completed`, whatever happens.
async fn print_run(
    runner: &dyn Runner,
    prompt: &str,
    session: Option<ResumeToken>,
) -> anyhow::Result<Completed> {
    let mut events = runner.run(RunRequest::new(prompt).resume(session));
    while let Some(event) = events.next().await {
        println!("{}", serde_json::to_string(&event)?);
        if let TakopiEvent::Completed(end) = event {
            return Ok(*end);
        }
    }
    anyhow::bail!("a stream without an end")
}
