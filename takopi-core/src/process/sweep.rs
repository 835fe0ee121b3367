//! Ending what escaped: everything a census knows of, until nothing is left.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::Instant;

use super::census::{self, Census, StartCutoff};
use super::mark::Mark;

/// How long strays are given between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// How long a sweep goes on behind the first SIGKILL.
const LIMIT: Duration = Duration::from_secs(5);

/// How long a sweep waits before it looks for the second time …
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// … and, twice as long each time, at the most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How often the process table is looked at before it counts as unreadable …
const LOOKS: u32 = 5;
/// … and how long after a look that failed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What to do after a look at the process table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No process is left.
    Done,
    /// What is left cannot be killed, or cannot be seen.
    GiveUp,
    /// Look again.
    Look,
    /// Send this to every process that is left, and look again.
    Send(Signal),
}

/// Decides by the time since the sweep began and what the last looks saw.
#[derive(Debug)]
pub(super) struct Sweep {
    /// How long processes are given between SIGTERM and SIGKILL.
    grace: Duration,
    /// How long it goes on behind the first SIGKILL: what is left then cannot be killed. So long it looks, too, if the
    /// process table cannot be read.
    limit: Duration,
    /// The look before found no process.
    found_none: bool,
    /// When SIGKILL was sent first. This thread may have been suspended for longer than any limit before it.
    killed: Option<Duration>,
}

impl Sweep {
    pub(super) fn new(grace: Duration, limit: Duration) -> Self {
        Self { grace, limit, found_none: false, killed: None }
    }

    /// `left` is how many processes were seen, or nothing if the table could not be read.
    pub(super) fn step(&mut self, waited: Duration, left: Option<usize>) -> Step {
        let found_none = std::mem::replace(&mut self.found_none, left == Some(0));
        match left {
            // The table is not read in one moment: a process that forks and exits while it is read
            // can hide its child. Hence two looks in a row must find none.
            Some(0) if found_none => Step::Done,
            Some(0) => Step::Look,
            Some(_) if self.killed.is_some_and(|killed| waited > killed + self.limit) => {
                Step::GiveUp
            }
            Some(_) if waited > self.grace => {
                self.killed.get_or_insert(waited);
                Step::Send(Signal::SIGKILL)
            }
            Some(_) => Step::Send(Signal::SIGTERM),
            // An unreadable table does not show that no process is left.
            None if waited > self.limit => Step::GiveUp,
            None => Step::Look,
        }
    }
}

/// Ends everything that came of the census' engine and is still alive.
pub(super) async fn sweep(census: &mut Census) {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut sweep = Sweep::new(GRACE, LIMIT);
    loop {
        let waited = begun.elapsed();
        let looked = survey(census, Census::keep_survivors).await;
        let left = census.pids();
        match sweep.step(waited, looked.is_ok().then_some(left.len())) {
            Step::Done => return,
            Step::GiveUp => {
                let error = looked.err();
                tracing::error!(pids = ?left, ?error, "cannot end all processes of a stopped engine");
                return;
            }
            Step::Look => {}
            Step::Send(signal) => census::signal(&left, signal),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Reads the process table, off the runtime's threads: it may be long. For want of descriptors it
/// looks again a few times: what is not seen now may not be found later.
pub(super) async fn survey(
    census: &mut Census,
    look: fn(&mut Census) -> io::Result<()>,
) -> io::Result<()> {
    for looks_left in (0..LOOKS).rev() {
        // A copy, so that a look that fails does not cost what is known already.
        let mut copy = census.clone();
        let looked = tokio::task::spawn_blocking(move || look(&mut copy).map(|()| copy)).await?;
        match looked {
            Ok(seen) => {
                *census = seen;
                break;
            }
            Err(error) if looks_left == 0 => return Err(error),
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
    Ok(())
}

/// Kills every process that carries the mark and what descends from it. Blocks for a moment; looks a few times,
/// because what is killed may just have started something.
pub(super) fn kill_marked(mark: Mark) {
    let mut census = Census::of_mark(mark);
    kill_all(|| census.keep_survivors().map(|()| census.pids()));
}

/// Kills whom the looks find, until two in a row find nobody: see [`Sweep::step`].
fn kill_all(mut look: impl FnMut() -> io::Result<Vec<i32>>) {
    let mut found_none = false;
    for _ in 0..LOOKS {
        let left = look();
        let finds_none = left.as_ref().is_ok_and(Vec::is_empty);
        if finds_none && std::mem::replace(&mut found_none, finds_none) {
            return;
        }
        found_none = finds_none;
        census::signal(&left.unwrap_or_default(), Signal::SIGKILL);
        std::thread::sleep(FIRST_PAUSE);
    }
}

/// The processes that carry a variable of this value in their environment, and what descends from
/// them. Separates the commands of one session from its neighbours' on a shared engine.
#[derive(Debug, Clone)]
pub struct MarkedProcesses {
    census: Census,
}

impl MarkedProcesses {
    /// Those that were started with this variable.
    pub fn new(name: &str, value: &str) -> Self {
        Self { census: Census::of_mark(Mark::of_variable(name, value)) }
    }

    /// Ends all that were not started before; returns when they are gone.
    pub async fn end(&self, spared: StartCutoff) {
        let mut census = self.census.clone();
        census.spare(spared);
        sweep(&mut census).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_sweep_is_done_only_after_two_looks_in_a_row_that_found_none() {
        let mut sweep = Sweep::new(GRACE, LIMIT);
        let now = Duration::ZERO;
        assert_eq!(sweep.step(now, Some(0)), Step::Look);
        assert_eq!(sweep.step(now, Some(1)), Step::Send(Signal::SIGTERM), "it had been hidden");
        assert_eq!(sweep.step(now, Some(0)), Step::Look);
        assert_eq!(sweep.step(now, None), Step::Look, "a look that failed is no look");
        assert_eq!(sweep.step(now, Some(0)), Step::Look);
        assert_eq!(sweep.step(now, Some(0)), Step::Done);
    }

    #[test]
    fn who_is_to_be_killed_at_once_is_looked_for_until_two_looks_in_a_row_find_none() {
        let mut stray = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(stray.id()).unwrap();
        let mut looks = [vec![], vec![pid], vec![], vec![]].into_iter();
        kill_all(|| Ok(looks.next().unwrap()));
        assert!(looks.next().is_none());
        assert_eq!(stray.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn what_is_left_is_terminated_then_killed_then_given_up() {
        let tick = Duration::from_millis(1);
        let step = |waited, left| Sweep::new(GRACE, LIMIT).step(waited, left);
        assert_eq!(step(GRACE, Some(2)), Step::Send(Signal::SIGTERM));
        let mut sweep = Sweep::new(GRACE, LIMIT);
        // Suspended until now: what was never killed is not given up.
        let late = 10 * LIMIT;
        assert_eq!(sweep.step(late, Some(2)), Step::Send(Signal::SIGKILL));
        assert_eq!(sweep.step(late + LIMIT, Some(2)), Step::Send(Signal::SIGKILL));
        assert_eq!(sweep.step(late + LIMIT + tick, Some(2)), Step::GiveUp);
        assert_eq!(step(LIMIT, None), Step::Look);
        assert_eq!(step(LIMIT + tick, None), Step::GiveUp);
        assert_eq!(step(LIMIT + tick, Some(0)), Step::Look, "even then a second look is needed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_fails_is_repeated_a_few_times_and_reported_then() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static SEEN_LATE: AtomicU32 = AtomicU32::new(0);
        static NEVER_SEEN: AtomicU32 = AtomicU32::new(0);
        fn failed() -> io::Error {
            io::Error::from_raw_os_error(libc::EMFILE)
        }
        let mut census = Census::of_mark(Mark::of_variable("TAKOPI_SWEEP_TEST", "a"));
        let seen_late = |_: &mut Census| match SEEN_LATE.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(failed()),
            _ => Ok(()),
        };
        survey(&mut census, seen_late).await.unwrap();
        assert_eq!(SEEN_LATE.load(Ordering::SeqCst), 3);
        let never_seen = |_: &mut Census| {
            NEVER_SEEN.fetch_add(1, Ordering::SeqCst);
            Err(failed())
        };
        assert_eq!(
            survey(&mut census, never_seen).await.unwrap_err().raw_os_error(),
            Some(libc::EMFILE)
        );
        assert_eq!(NEVER_SEEN.load(Ordering::SeqCst), LOOKS);
    }
}
