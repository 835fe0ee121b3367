//! The figures of the board in memory.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::state::State;
use crate::board::{Line, Status, WorkerLine};

impl State {
    pub(super) fn status(&self) -> Status {
        let now = Instant::now();
        let offered = |needs: &[String]| {
            self.workers.values().any(|worker| {
                worker.lease_until > now
                    && !worker.draining
                    && needs.iter().all(|need| worker.info.offers.contains(need))
            })
        };
        let oldest = |line: &BTreeSet<(i64, Uuid)>| {
            let waits = line.iter().filter_map(|(_, sid)| self.sessions.get(sid));
            waits.map(|session| (now - session.ready_at).as_secs()).max().unwrap_or(0)
        };
        let recent = || {
            self.jobs
                .values()
                .filter(move |job| job.done.is_some_and(|done| now - done < Duration::from_mins(1)))
        };
        Status {
            workers: self
                .workers
                .values()
                .map(|worker| WorkerLine {
                    id: worker.info.id.clone(),
                    machine: worker.info.machine.clone(),
                    slots: worker.info.slots,
                    busy: worker.busy,
                    held: self
                        .sessions
                        .values()
                        .filter(|session| session.worker.as_deref() == Some(&worker.info.id))
                        .count() as u64,
                    draining: worker.draining,
                    alive: worker.lease_until > now,
                    offers: worker.info.offers.clone(),
                    versions: worker.info.versions.clone(),
                    up_seconds: (now - worker.since).as_secs(),
                })
                .collect(),
            lines: self
                .ready
                .iter()
                .filter(|(_, line)| !line.is_empty())
                .map(|(needs, line)| Line {
                    needs: needs.clone(),
                    sessions_ready: line.len() as u64,
                    oldest_seconds: oldest(line),
                    offered: offered(needs),
                })
                .collect(),
            queued: self.sessions.values().map(|session| session.queue.len() as u64).sum(),
            running: self.sessions.values().filter(|session| session.worker.is_some()).count()
                as u64,
            sessions: self.sessions.len() as u64,
            stranded: self
                .sessions
                .values()
                .filter(|session| session.stays.is_some() && !session.queue.is_empty())
                .filter(|session| session.home.as_deref().is_some_and(|home| !self.lives(home)))
                .count() as u64,
            done_last_minute: recent().count() as u64,
            failed_last_minute: recent()
                .filter(|job| job.result.as_ref().is_some_and(|(_, result)| result["ok"] != true))
                .count() as u64,
            now: 0.0,
        }
    }
}
