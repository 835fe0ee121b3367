//! Brings a session's files to this machine before a turn, and packs what the turn appended.
//!
//! Files are placed only while nothing here uses the session: its lock is held, and what had it loaded was closed. A process that
//! has an old copy loaded would go on with that one, and its turn would be lost.

use std::path::PathBuf;
use std::sync::Arc;

use takopi_core::RunError;
use takopi_core::catalog::PortableSessions;
use takopi_core::model::{Reason, ResumeToken};
use tokio::time::sleep;

use super::copy::{Collected, LocalCopy, Store};
use super::turn::{AGAIN, Turn};
use super::{Served, Travels};
use crate::board::Piece;
use crate::files::number_of;

/// The files of a session whose turn is run.
pub(super) struct Travel {
    sessions: Arc<dyn PortableSessions>,
    cwd: PathBuf,
    copy: LocalCopy,
}

/// What of the files goes into the result.
#[derive(Default)]
pub(super) struct Packed {
    /// The version of the engine that wrote them.
    pub(super) version: u64,
    /// Why they cannot leave this machine.
    pub(super) stays: Option<String>,
    /// What was appended.
    pub(super) files: Vec<Piece>,
    /// To be recorded once the result is stored.
    pub(super) stored: Option<ToRecord>,
}

/// What is recorded once the result is stored.
pub(super) struct ToRecord {
    copy: LocalCopy,
    collected: Collected,
}

impl ToRecord {
    /// The result was stored under this token.
    pub(super) async fn committed(mut self, token: i64) {
        let saved = blocking(move || self.copy.committed(token, self.collected)).await;
        if let Err(error) = saved.and_then(|saved| saved) {
            // The files are then compared with the stored ones before the next turn.
            tracing::warn!("cannot record the copy of a session: {error}");
        }
    }
}

impl Turn {
    /// The session to resume, with its files in place; `None` if the turn begins a new one.
    pub(super) async fn bring(
        &self,
        served: &Served,
        cwd: PathBuf,
        travel: &mut Option<Travel>,
    ) -> Result<Option<ResumeToken>, RunError> {
        let claimed = &self.claimed;
        let token = claimed.value.clone().map(|id| ResumeToken::new(claimed.engine.clone(), id));
        // A first turn that is run again begins anew, if nothing of the session was ever stored.
        let first_again = claimed.generation == 0 && claimed.attempt > 1;
        let Travels::Files(sessions) = &served.travels else {
            return Ok(token.filter(|_| !first_again));
        };
        let failed = |error: std::io::Error| {
            let error = format!("cannot place the files of the session: {error}");
            RunError::new(Reason::SpawnFailed, error)
        };
        let (state, sid) = (self.worker.options.state.clone(), claimed.sid);
        let (sessions, generation) = (sessions.clone(), claimed.generation);
        let mut resumed = token;
        let mut copy = blocking(move || LocalCopy::open(&state, sid)).await.map_err(failed)?;
        if let Some(token) = resumed.clone() {
            let store = Store { sessions: &*sessions, session: &token.value, cwd: &cwd };
            if first_again || !copy.is_current(generation, store) {
                let pieces = self.stored_files().await?;
                if pieces.is_empty() && first_again {
                    resumed = None;
                } else if !pieces.is_empty() {
                    let held = tokio::select! {
                        biased;
                        () = self.cancel.cancelled() => return Err(interrupted()),
                        held = served.runner.hold(&token) => held,
                    };
                    let held = held.map_err(|error| failed(std::io::Error::other(error)))?;
                    let (sessions, cwd) = (sessions.clone(), cwd.clone());
                    copy = blocking(move || {
                        let store =
                            Store { sessions: &*sessions, session: &token.value, cwd: &cwd };
                        let placed = copy.place(generation, pieces, store);
                        drop(held);
                        placed.map(|()| copy)
                    })
                    .await
                    .and_then(|placed| placed)
                    .map_err(failed)?;
                }
            }
        }
        let generation = resumed.as_ref().map(|_| generation);
        let begun = blocking(move || copy.begin(generation).map(|()| copy)).await;
        let copy = begun.and_then(|begun| begun).map_err(failed)?;
        *travel = Some(Travel { sessions, cwd, copy });
        Ok(resumed)
    }

    /// The stored files, as often as it takes to get them.
    async fn stored_files(&self) -> Result<Vec<Piece>, RunError> {
        loop {
            let error = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(interrupted()),
                files = self.worker.board.files(&self.id, self.claimed.sid) => match files {
                    Ok(files) => return Ok(files),
                    Err(error) => error,
                },
            };
            if !error.is_passing() {
                return Err(RunError::new(Reason::SpawnFailed, error.to_string()));
            }
            sleep(AGAIN).await;
        }
    }

    /// What the result has to say about the session's files.
    pub(super) async fn pack(
        &self,
        session: Option<&ResumeToken>,
        travel: Option<Travel>,
    ) -> Packed {
        let served = self.worker.engines.get(self.claimed.engine.as_str());
        let mut packed =
            Packed { version: served.map_or(0, |served| served.version), ..Packed::default() };
        let place = self.claimed.place.as_deref();
        packed.stays = match served.map(|served| &served.travels) {
            Some(Travels::No) => Some("its engine's sessions do not travel".to_owned()),
            _ => place
                .filter(|place| self.worker.options.own_places.contains(*place))
                .map(|place| format!("its place {place} is on this machine only")),
        };
        let (Some(Travel { sessions, cwd, copy }), Some(session)) = (travel, session.cloned())
        else {
            return packed;
        };
        // It may have been updated since the worker began.
        packed.version = packed.version.max(sessions.version().await.map_or(0, number_of));
        let limit = self.worker.options.max_session;
        let collected = blocking(move || {
            let store = Store { sessions: &*sessions, session: &session.value, cwd: &cwd };
            let collected = copy.collect(store, limit);
            (copy, collected)
        });
        match collected.await {
            Ok((copy, mut collected)) => {
                if let Some(stays) = &collected.stays {
                    tracing::warn!("a session stays on this machine: {stays}");
                }
                packed.stays = packed.stays.or_else(|| collected.stays.clone());
                packed.files = std::mem::take(&mut collected.pieces);
                packed.stored = Some(ToRecord { copy, collected });
            }
            Err(error) => packed.stays = Some(format!("its files cannot be read: {error}")),
        }
        packed
    }
}

fn interrupted() -> RunError {
    RunError::new(Reason::Interrupted, "interrupted")
}

/// Runs what blocks beside the worker's tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)
}
