//! What it costs to start a process so that all that descends from it can be found: each way beside a plain start,
//! in alternation, as a ratio of the medians. Decision 6 has the figures and why takopi uses the limit.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const ROUNDS: usize = 1_000;

/// How a process is started, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    /// A number in the soft limit on realtime CPU time, which is what takopi does.
    Limit,
    /// This process adopts what loses its parent.
    Subreaper,
    /// A cgroup of its own, which is made before and removed behind it.
    Cgroup,
}

fn main() -> anyhow::Result<()> {
    let mut ways = vec![
        (Way::Plain, "nothing"),
        (Way::Limit, "the limit"),
        (Way::Subreaper, "PR_SET_CHILD_SUBREAPER on the host"),
    ];
    let cgroups = match own_cgroup().and_then(|own| Ok((start(Way::Cgroup, &own)?, own))) {
        Ok((_, own)) => {
            ways.push((Way::Cgroup, "a cgroup per run"));
            own
        }
        Err(error) => {
            println!("a cgroup per run: not measured, none can be made here: {error:#}");
            PathBuf::new()
        }
    };
    let mut times = vec![Vec::with_capacity(ROUNDS); ways.len()];
    for _ in 0..ROUNDS {
        for ((way, _), times) in ways.iter().zip(&mut times) {
            set_child_subreaper(*way == Way::Subreaper)?;
            times.push(start(*way, &cgroups)?);
        }
    }
    let medians: Vec<Duration> = times.into_iter().map(median).collect();
    println!("start and reap /bin/true, medians of {ROUNDS} in alternation:");
    for ((_, name), time) in ways.iter().zip(&medians) {
        let ratio = time.as_secs_f64() / medians[0].as_secs_f64();
        println!("{name:36} {:6} µs  {ratio:.2}", time.as_micros());
    }
    Ok(())
}

/// Starts a process in this way and waits for its end.
fn start(way: Way, cgroups: &Path) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let cgroup = cgroups.join(format!("takopi-bench-{}", std::process::id()));
    match way {
        Way::Plain | Way::Subreaper => {
            // The standard library starts a process otherwise that has nothing to do between fork and exec.
            // SAFETY: it does nothing.
            unsafe { command.pre_exec(|| Ok(())) };
        }
        Way::Limit => {
            let (_, hard) = getrlimit(Resource::RLIMIT_RTTIME)?;
            let mark = move || Ok(setrlimit(Resource::RLIMIT_RTTIME, (1 << 61) + 1, hard)?);
            // SAFETY: it makes one system call.
            unsafe { command.pre_exec(mark) };
        }
        Way::Cgroup => {
            std::fs::create_dir(&cgroup).with_context(|| cgroup.display().to_string())?;
            let mut members = File::options().write(true).open(cgroup.join("cgroup.procs"))?;
            // SAFETY: it makes one system call, on a file that is open.
            unsafe { command.pre_exec(move || members.write_all(b"0")) };
        }
    }
    let status = command.status();
    drop(command);
    if way == Way::Cgroup {
        remove(&cgroup)?;
    }
    ensure!(status?.success(), "/bin/true failed");
    Ok(begun.elapsed())
}

/// Removes a cgroup. The kernel may count a process that was reaped as its member for a moment.
fn remove(cgroup: &Path) -> anyhow::Result<()> {
    for _ in 0..10_000 {
        match std::fs::remove_dir(cgroup) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("{} stays in use", cgroup.display())
}

/// The cgroup v2 of this process.
fn own_cgroup() -> anyhow::Result<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let path = words.next()?;
        (words.next()? == "cgroup2").then_some(path)
    });
    let own = std::fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(PathBuf::from(mount.context("no cgroup v2 is mounted")?)
        .join(own.context("in no cgroup v2")?))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
