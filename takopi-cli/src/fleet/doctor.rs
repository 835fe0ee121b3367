//! What `takopi doctor` checks of a fleet, if one is named.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use takopi_core::catalog::Finding;
use takopi_fleet::PgBoard;
use takopi_fleet::board::pg::Overview;
use takopi_fleet::board::{Bell, Board as _, Listener, Ring};
use tokio::time::timeout;
use uuid::Uuid;

use crate::config::Config;

/// A bell that is heard at all is heard within this.
const BELL: Duration = Duration::from_secs(3);
/// A larger difference of the clocks is worth a note.
const CLOCKS: f64 = 5.0;

/// Checks the fleet that the variable or the configuration file names.
pub(crate) async fn findings(config: &Config) -> Vec<Finding> {
    if super::variable().is_none() && config.fleet.url.is_none() {
        return Vec::new();
    }
    let hint = "correct TAKOPI_FLEET, or `url` of [fleet] in the configuration file";
    let url = match super::address(None, &config.fleet) {
        Ok(url) => url,
        Err(error) => return vec![Finding::problem("fleet", error.to_string(), hint)],
    };
    let asked = SystemTime::now();
    let opened = match super::open(url.clone()).await {
        Ok(board) => board.overview().await.map(|now| (board, now)),
        Err(error) => Err(error),
    };
    let (board, now) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let hint = if error.is_passing() {
                "start the database, or check address, user and password"
            } else {
                "run `takopi fleet init` as the owner of the database, or `grant takopi_submit to USER`"
            };
            return vec![Finding::problem("fleet", error.to_string(), hint)];
        }
    };
    let version = PgBoard::newest_schema();
    let secure = if url.uses_tls() { "TLS" } else { "on this machine" };
    vec![
        Finding::ok("fleet", format!("{url} ({secure}), queue version {version}")),
        bells(&board).await,
        clock(&now, asked),
        workers(&now),
    ]
}

/// Rings a bell for itself, and listens.
async fn bells(board: &PgBoard) -> Finding {
    let (id, job) = (format!("doctor-{}", Uuid::new_v4()), "doctor".to_owned());
    let mut rings = board.listen(Listener::Submitter(id.clone()));
    let heard = timeout(BELL, async {
        while let Some(ring) = rings.recv().await {
            match ring {
                // It listens from now on.
                Ring::Everything => {
                    board.ring(Bell::Submitter { id: id.clone(), job: job.clone() });
                }
                Ring::Jobs(_) => return true,
                _ => {}
            }
        }
        false
    });
    if heard.await == Ok(true) {
        return Finding::ok("bells", "LISTEN works");
    }
    let hint = "behind a transaction pooler, connect to the database itself";
    Finding::note("bells", "LISTEN does not work: everybody looks once a second", hint)
}

/// Leases are counted by the database's clock alone; times that people compare are not.
fn clock(now: &Overview, asked: SystemTime) -> Finding {
    let seconds =
        |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (before, after) = (seconds(asked), seconds(SystemTime::now()));
    let there = now.status.now;
    let apart = (before - there).max(there - after).max(0.0);
    if apart > CLOCKS {
        let text = format!("the clocks here and of the database are {apart:.0} s apart");
        return Finding::note("clock", text, "set the clocks; runs are not affected");
    }
    Finding::ok("clock", format!("within {:.1} s of the database's", apart.max(0.1)))
}

fn workers(now: &Overview) -> Finding {
    let alive: Vec<_> = now.status.workers.iter().filter(|worker| worker.alive).collect();
    if alive.is_empty() {
        return Finding::note("workers", "none serves", "start one with `takopi worker`");
    }
    let slots: u32 = alive.iter().map(|worker| worker.slots).sum();
    let text = format!("{} with {slots} slots, {} jobs wait", alive.len(), now.status.queued);
    let mut versions: Vec<_> = alive.iter().flat_map(|worker| &worker.versions).collect();
    versions.sort();
    versions.dedup();
    let mixed = versions.windows(2).find(|pair| pair[0].0 == pair[1].0);
    match mixed {
        Some(pair) => {
            let text = format!("{text}; they have different versions of {}", pair[0].0);
            let hint = "a session that a newer version wrote is not given to an older one: update all workers";
            Finding::note("workers", text, hint)
        }
        None => Finding::ok("workers", text),
    }
}
