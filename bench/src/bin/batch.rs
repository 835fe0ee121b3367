//! A batch on the real codex with a scripted model, beside as many `codex exec` started by xargs.
//!
//! ```sh
//! cargo build --release -p takopi-cli && cargo run --release -p takopi-bench --bin batch
//! ```
//!
//! Two hundred prompts, eight at a time: once as twenty sessions, once each on its own. Memory is
//! the peak of the proportional set size (PSS) of all processes of a row, sampled while it runs.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real::{self, Codex};
use takopi_tests::dirs;
use takopi_tests::model::{Answer, ModelServer, Script};
use tokio::process::Command;

const PROMPTS: usize = 200;
const SESSIONS: usize = 20;
const AT_ONCE: &str = "8";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let codex = real::codex()?;
    let takopi = takopi()?;
    println!(
        "{PROMPTS} prompts, {AT_ONCE} at a time, codex {} with a scripted model",
        codex.version
    );
    row("takopi batch, 20 sessions", |home| batch(&takopi, &codex, home, true)).await?;
    row("takopi batch, no sessions", |home| batch(&takopi, &codex, home, false)).await?;
    row("takopi batch, over exec", |home| {
        let mut command = batch(&takopi, &codex, home, false)?;
        command.args(["--transport", "exec"]);
        Ok(command)
    })
    .await?;
    row("xargs codex exec", |home| xargs(&codex, home)).await
}

/// The command as it is shipped.
fn takopi() -> anyhow::Result<PathBuf> {
    let path = dirs::target_dir().join("release/takopi");
    ensure!(path.is_file(), "cargo build --release -p takopi-cli comes first");
    Ok(path)
}

async fn row(
    name: &str,
    command: impl FnOnce(&TestHome) -> anyhow::Result<Command>,
) -> anyhow::Result<()> {
    let model = ModelServer::start();
    model.otherwise(Script::repeat(Answer::text("fine")));
    let home = TestHome::new(&model);
    let mut command = command(&home)?;
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let (mut peak, mut most) = (0, 0);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            () = tokio::time::sleep(Duration::from_millis(200)) => {
                let processes = home.processes();
                most = most.max(processes.len());
                peak = peak.max(processes.iter().filter_map(|process| pss(process.pid)).sum());
            }
        }
    };
    let took = begun.elapsed();
    let asked = model.requests().len();
    ensure!(status.success() && asked == PROMPTS, "{name}: {status}, {asked} requests");
    println!("{name:<28} {:>6.1} s {:>6} MB {most:>4} processes", took.as_secs_f64(), peak / 1024);
    Ok(())
}

fn batch(
    takopi: &PathBuf,
    codex: &Codex,
    home: &TestHome,
    sessions: bool,
) -> anyhow::Result<Command> {
    let lines: Vec<String> = (0..PROMPTS)
        .map(|n| {
            let session = sessions.then(|| format!("s{}", n % SESSIONS));
            serde_json::json!({ "prompt": format!("prompt {n}"), "session": session }).to_string()
        })
        .collect();
    let jobs = home.root().join("jobs.jsonl");
    std::fs::write(&jobs, lines.join("\n"))?;
    let mut command = home.command(takopi);
    command.arg("batch").arg(jobs).args(["--jobs", AT_ONCE, "--quiet", "--out"]);
    command.arg(home.root().join("out.jsonl")).env("TAKOPI_CODEX_BIN", &codex.path);
    Ok(command)
}

fn xargs(codex: &Codex, home: &TestHome) -> anyhow::Result<Command> {
    let lines: Vec<String> = (0..PROMPTS).map(|n| format!("prompt-{n}")).collect();
    let input = home.root().join("prompts.txt");
    std::fs::write(&input, lines.join("\n"))?;
    let mut command = home.command("xargs");
    command.args(["-P", AT_ONCE, "-n", "1"]).arg(&codex.path);
    command.args(["exec", "--json", "--skip-git-repo-check"]);
    command.stdin(std::fs::File::open(input).context("the prompts")?);
    Ok(command)
}

/// The proportional set size of a process, in KiB.
fn pss(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}
