//! A batch on the real codex with a scripted model, beside as many `codex exec` started by xargs.
//!
//! Two hundred prompts, eight at a time. Memory is the peak of all processes of a row, sampled while it runs, as
//! the proportional set size (PSS).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real::{self, Codex};
use takopi_tests::model::{Answer, ModelServer, Script};
use tokio::process::Command;

use crate::table::{Table, goal, mib, millis, ratio};

/// How many prompts a batch has.
pub(crate) const PROMPTS: usize = 200;
const SESSIONS: usize = 20;
const AT_ONCE: &str = "8";
/// Leaves out what codex does for the aliases and functions of the user's shell.
const LEAN: [&str; 2] = ["-c", "features.shell_snapshot=false"];

/// The row that the goal is about.
const GOAL_OF: &str = "takopi batch, ephemeral and lean";

/// A way to do it, as a command in a home.
type Way = fn(&Path, &Codex, &TestHome) -> anyhow::Result<Command>;

const WAYS: [(&str, Way); 5] = [
    ("xargs codex exec", |_, codex, home| xargs(codex, home, &[])),
    ("xargs codex exec --ephemeral", |_, codex, home| xargs(codex, home, &["--ephemeral"])),
    ("takopi batch", |takopi, codex, home| batch(takopi, codex, home, false, &[])),
    (GOAL_OF, |takopi, codex, home| {
        batch(takopi, codex, home, false, &["--ephemeral", LEAN[0], LEAN[1]])
    }),
    ("takopi batch, 20 sessions", |takopi, codex, home| batch(takopi, codex, home, true, &[])),
];

/// What one of them took.
struct Took {
    time: Duration,
    peak_kib: u64,
    processes: usize,
}

/// The table.
pub(crate) fn bench() -> anyhow::Result<String> {
    let codex = real::codex()?;
    let takopi = takopi()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let heading = format!("{PROMPTS} prompts, {AT_ONCE} at a time (one round)");
    let columns = ["", "time", "times as fast", "peak PSS", "of the memory", "processes"];
    let mut table = Table::new(heading, &columns);
    let mut first = None;
    let mut verdict = String::new();
    for (name, way) in WAYS {
        eprintln!("  … {name}");
        let Took { time, peak_kib, processes } =
            runtime.block_on(row(name, |home| way(&takopi, &codex, home)))?;
        let (first_time, first_peak) = *first.get_or_insert((time, peak_kib));
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let of_first = peak_kib as f64 / first_peak.max(1) as f64;
        let cells = [name.to_owned(), millis(time), ratio(first_time, time), mib(peak_kib)];
        table.row(cells.into_iter().chain([format!("{of_first:.2}"), processes.to_string()]));
        if name == GOAL_OF {
            let what = "2.2 times as fast as `xargs codex exec`, with no more memory";
            let measured = format!("{}, {of_first:.2} of the memory", ratio(first_time, time));
            verdict = goal(what, &measured, first_time >= time.mul_f64(2.2) && of_first <= 1.0);
        }
    }
    Ok(format!("{table}\n{verdict}"))
}

/// The command as it is shipped.
pub(crate) fn takopi() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("takopi");
    ensure!(
        path.is_file(),
        "there is no takopi beside this program; build it: cargo build --release -p takopi-cli --features fleet"
    );
    Ok(path)
}

async fn row(
    name: &str,
    command: impl FnOnce(&TestHome) -> anyhow::Result<Command>,
) -> anyhow::Result<Took> {
    let model = ModelServer::start();
    model.otherwise(Script::repeat(Answer::text("fine")));
    let home = TestHome::new(&model);
    let mut command = command(&home)?;
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let (mut peak_kib, mut most) = (0, 0);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            () = tokio::time::sleep(Duration::from_millis(200)) => {
                let processes = home.processes();
                most = most.max(processes.len());
                peak_kib = peak_kib.max(processes.iter().filter_map(|process| pss(process.pid)).sum());
            }
        }
    };
    let time = begun.elapsed();
    let asked = model.requests().len();
    ensure!(status.success() && asked == PROMPTS, "{name}: {status}, {asked} requests");
    Ok(Took { time, peak_kib, processes: most })
}

fn batch(
    takopi: &Path,
    codex: &Codex,
    home: &TestHome,
    sessions: bool,
    flags: &[&str],
) -> anyhow::Result<Command> {
    let jobs = home.root().join("jobs.jsonl");
    std::fs::write(&jobs, prompts(sessions.then_some(SESSIONS)))?;
    let mut command = home.command(takopi);
    command.arg("batch").arg(jobs).args(["--jobs", AT_ONCE, "--quiet"]).args(flags).arg("--out");
    command.arg(home.root().join("out.jsonl")).env("TAKOPI_CODEX_BIN", &codex.path);
    Ok(command)
}

/// The input of a batch, over so many sessions or without any.
pub(crate) fn prompts(sessions: Option<usize>) -> String {
    let line = |n: usize| {
        let session = sessions.map(|sessions| format!("s{}", n % sessions));
        serde_json::json!({ "prompt": format!("prompt {n}"), "session": session }).to_string()
    };
    (0..PROMPTS).map(line).collect::<Vec<_>>().join("\n")
}

fn xargs(codex: &Codex, home: &TestHome, flags: &[&str]) -> anyhow::Result<Command> {
    let lines: Vec<String> = (0..PROMPTS).map(|n| format!("prompt-{n}")).collect();
    let input = home.root().join("prompts.txt");
    std::fs::write(&input, lines.join("\n"))?;
    let mut command = home.command("xargs");
    command.args(["-P", AT_ONCE, "-n", "1"]).arg(&codex.path);
    command.args(["exec", "--json", "--skip-git-repo-check"]).args(flags);
    command.stdin(std::fs::File::open(input).context("the prompts")?);
    Ok(command)
}

/// The proportional set size of a process, in KiB.
fn pss(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}
