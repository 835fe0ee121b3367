//! Ending what escaped: everything a census knows of, until nothing is left.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::Instant;

use super::census::{self, Before, Census};

/// How long strays are given between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// How long a sweep goes on at the most: what is left then is beyond killing.
const LIMIT: Duration = Duration::from_secs(5);

/// How often the process table is looked at before it counts as unreadable …
const LOOKS: u32 = 5;
/// … and how long after a look that failed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Ends everything that came of the census' engine and is still alive.
pub(super) async fn sweep(census: &mut Census) {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        let waited = begun.elapsed();
        match survey(census, Census::keep_survivors).await {
            Ok(()) => {
                let left = census.pids();
                if left.is_empty() {
                    return;
                }
                if waited > LIMIT {
                    tracing::error!(pids = ?left, "processes of a stopped engine do not die");
                    return;
                }
                let kill = waited > GRACE;
                census::signal(&left, if kill { Signal::SIGKILL } else { Signal::SIGTERM });
            }
            // Not seeing anybody is not the same as nobody being there.
            Err(error) if waited > LIMIT => {
                tracing::error!(%error, "cannot sweep behind a stopped engine");
                return;
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
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

/// Kills whoever bears the marker and what descends from it. Blocks for a moment; looks a few times,
/// because what is killed may just have started something.
pub(super) fn kill_marked(marker: &str) {
    let mut census = Census::of_marker(marker.to_owned());
    for _ in 0..LOOKS {
        if census.keep_survivors().is_ok() && census.pids().is_empty() {
            return;
        }
        census::signal(&census.pids(), Signal::SIGKILL);
    }
}

/// The processes that carry a variable of this value in their environment, and what descends from
/// them: how the commands of one session are told from its neighbours' on a shared engine.
#[derive(Debug, Clone)]
pub struct Marked {
    census: Census,
}

impl Marked {
    /// Those that were started with this variable.
    pub fn new(name: &str, value: &str) -> Self {
        Self { census: Census::of_marker(format!("{name}={value}")) }
    }

    /// Ends all that were not started before; returns when they are gone.
    pub async fn end(&self, spared: Before) {
        let mut census = self.census.clone();
        census.spare(spared);
        sweep(&mut census).await;
    }
}
