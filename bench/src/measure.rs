//! Measuring: each side of a row in a process of its own, in alternation; medians.
//!
//! A side is this program again, as `takopi-bench side …`. It prints how long it took and its own peak
//! memory, so that neither counts what another side or the bench itself does.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// What a side took.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) time: Duration,
    /// Its peak resident memory, without that of the processes it started.
    pub(crate) peak_kib: u64,
}

/// Runs sides one after the other, round by round; the medians of each.
pub(crate) fn alternate<A: AsRef<OsStr>>(
    rounds: usize,
    sides: &[Vec<A>],
) -> anyhow::Result<Vec<Figures>> {
    let mut figures = vec![Vec::new(); sides.len()];
    for _ in 0..rounds {
        for (side, figures) in sides.iter().zip(&mut figures) {
            figures.push(apart(side)?);
        }
    }
    Ok(figures
        .into_iter()
        .map(|figures: Vec<Figures>| Figures {
            time: median(figures.iter().map(|figures| figures.time)),
            peak_kib: median(figures.iter().map(|figures| figures.peak_kib)),
        })
        .collect())
}

fn apart(args: &[impl AsRef<OsStr>]) -> anyhow::Result<Figures> {
    let mut command = side_command(args)?;
    finished(&command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?.wait_with_output()?)
        .with_context(|| format!("{command:?} failed"))
}

/// The command of a side.
pub(crate) fn side_command(args: &[impl AsRef<OsStr>]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("side").args(args);
    Ok(command)
}

/// What a side printed with [`done`].
pub(crate) fn finished(output: &std::process::Output) -> anyhow::Result<Figures> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    match (output.status.success(), words.next(), words.next()) {
        (true, Some(Ok(micros)), Some(Ok(peak_kib))) => {
            Ok(Figures { time: Duration::from_micros(micros), peak_kib })
        }
        _ => bail!("{}, it printed: {text:?}", output.status),
    }
}

/// The end of a side: prints what it took.
pub(crate) fn done(begun: Instant) -> anyhow::Result<()> {
    print(begun.elapsed())
}

/// The same for a time that was measured otherwise.
pub(crate) fn print(time: Duration) -> anyhow::Result<()> {
    println!("{} {}", time.as_micros(), own_peak_kib()?);
    Ok(())
}

fn own_peak_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    line.split_whitespace().next().context("no figure")?.parse().context("not a figure")
}

/// The one in the middle.
pub(crate) fn median<T: Ord + Copy>(figures: impl IntoIterator<Item = T>) -> T {
    quantile(figures, 50)
}

/// The one that so many percent do not exceed.
pub(crate) fn quantile<T: Ord + Copy>(figures: impl IntoIterator<Item = T>, percent: usize) -> T {
    let mut figures: Vec<T> = figures.into_iter().collect();
    figures.sort_unstable();
    figures[(figures.len() * percent / 100).min(figures.len() - 1)]
}
