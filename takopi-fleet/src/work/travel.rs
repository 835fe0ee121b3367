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
use super::git::{GitPlace, Snapshot, TREE, Tree};
use super::turn::{AGAIN, Turn};
use super::{Served, Travels};
use crate::board::Piece;
use crate::files::number_of;

/// The files of a session whose turn is run.
struct Travel {
    sessions: Arc<dyn PortableSessions>,
    cwd: PathBuf,
    copy: LocalCopy,
}

/// What a turn was given, and what it must give back.
#[derive(Default)]
pub(super) struct Brought {
    travel: Option<Travel>,
    tree: Option<Tree>,
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
    pub(super) stored: ToRecord,
}

/// What is recorded once the result is stored.
#[derive(Default)]
pub(super) struct ToRecord {
    copy: Option<(LocalCopy, Collected)>,
    tree: Option<(Tree, Option<Snapshot>)>,
}

impl ToRecord {
    /// The result is stored under this token without the files and the tree: what is here is all there is.
    pub(super) async fn leave_out_files(&mut self, token: i64) {
        if let Some((copy, collected)) = self.copy.take() {
            self.copy = leave_out(copy, collected, token).await;
        }
        if let Some((_, pushed)) = &mut self.tree {
            *pushed = None;
        }
    }

    /// The result was stored under this token.
    pub(super) async fn committed(self, token: i64) {
        if let Some((mut copy, collected)) = self.copy {
            let saved = blocking(move || copy.committed(token, collected)).await;
            if let Err(error) = saved.and_then(|saved| saved) {
                // The files are then compared with the stored ones before the next turn.
                tracing::warn!("cannot record the copy of a session: {error}");
            }
        }
        if let Some((tree, pushed)) = self.tree {
            tree.committed(token, pushed).await;
        }
    }
}

impl Turn {
    /// The directory of a git place, with the session's newest tree in it.
    pub(super) async fn tree(
        &self,
        place: &GitPlace,
        brought: &mut Brought,
    ) -> Result<PathBuf, RunError> {
        let claimed = &self.claimed;
        let mut tree = Tree::of(&self.worker.options.state, place, claimed.sid);
        let is_current = tree.is_current(claimed.generation);
        if !is_current || !tree.is_whole() {
            let pieces = self.stored_files().await?;
            let stored = pieces.iter().find(|piece| piece.path == TREE);
            let placed = async {
                if is_current {
                    tree.mend(stored, place).await
                } else {
                    tree.place(claimed.generation, stored, place).await
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(interrupted()),
                placed = placed => placed?,
            }
        }
        tree.set_apart()?;
        let path = tree.path.clone();
        brought.tree = Some(tree);
        Ok(path)
    }

    /// The session to resume, with its files in place; `None` if the turn begins a new one.
    pub(super) async fn bring(
        &self,
        served: &Served,
        cwd: PathBuf,
        brought: &mut Brought,
    ) -> Result<Option<ResumeToken>, RunError> {
        let claimed = &self.claimed;
        let token = claimed.value.clone().map(|id| ResumeToken::new(claimed.engine.clone(), id));
        // A first turn that is run again begins anew, if nothing of the session was ever stored.
        let first_again = claimed.generation == 0 && claimed.attempt > 1;
        let Travels::Files(sessions) = &served.travels else {
            return Ok(token.filter(|_| !first_again));
        };
        let failed = |error: std::io::Error| {
            // What is stored is damaged, or this machine cannot write it.
            let damaged = error.kind() == std::io::ErrorKind::InvalidData;
            let reason = if damaged { Reason::Protocol } else { Reason::SpawnFailed };
            RunError::new(reason, format!("cannot place the files of the session: {error}"))
        };
        let (state, sid) = (self.worker.options.state.clone(), claimed.sid);
        let (sessions, generation) = (sessions.clone(), claimed.generation);
        let mut resumed = token;
        let mut copy = blocking(move || LocalCopy::open(&state, sid)).await.map_err(failed)?;
        if let Some(token) = resumed.clone() {
            let store = Store { sessions: &*sessions, session: &token.value, cwd: &cwd };
            if first_again || !copy.is_current(generation, store) {
                let mut pieces = self.stored_files().await?;
                pieces.retain(|piece| piece.path != TREE);
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
        brought.travel = Some(Travel { sessions, cwd, copy });
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
                return Err(RunError::new(Reason::Protocol, error.to_string()));
            }
            sleep(AGAIN).await;
        }
    }

    /// What the result has to say about the session's files and its tree.
    pub(super) async fn pack(&self, session: Option<&ResumeToken>, brought: Brought) -> Packed {
        let served = self.worker.engines.get(self.claimed.engine.as_str());
        let mut packed =
            Packed { version: served.map_or(0, |served| served.version), ..Packed::default() };
        let own = |place: &&str| self.worker.options.own_places.contains(*place);
        packed.stays = match served.map(|served| &served.travels) {
            Some(Travels::No) => Some("its engine's sessions do not travel".to_owned()),
            _ => (self.claimed.place.as_deref().filter(own))
                .map(|place| format!("its place {place} is on this machine only")),
        };
        let Brought { travel, tree } = brought;
        if let (Some(travel), Some(session)) = (travel, session) {
            self.pack_files(session.value.clone(), travel, &mut packed).await;
        }
        if let Some(tree) = tree {
            let pushed = match tree.push(self.claimed.held.token).await {
                Ok((pushed, piece)) => {
                    packed.files.push(piece);
                    Some(pushed)
                }
                Err(error) => {
                    packed.stays.get_or_insert(format!("its tree could not be pushed: {error}"));
                    None
                }
            };
            packed.stored.tree = Some((tree, pushed));
        }
        if let Some(stays) = packed.stays.as_ref().filter(|_| !is_known_to_stay(served)) {
            tracing::warn!("a session stays on this machine: {stays}");
        }
        packed
    }

    async fn pack_files(&self, session: String, travel: Travel, packed: &mut Packed) {
        let Travel { sessions, cwd, copy } = travel;
        // It may have been updated since the turn began.
        packed.version = packed.version.max(sessions.version().await.map_or(0, number_of));
        let limit = self.worker.options.max_session;
        let collected = blocking(move || {
            let store = Store { sessions: &*sessions, session: &session, cwd: &cwd };
            let collected = copy.collect(store, limit);
            (copy, collected)
        });
        let stays = match collected.await {
            Ok((copy, collected)) if collected.stays.is_some() => {
                let stays = collected.stays.clone();
                packed.stored.copy = leave_out(copy, collected, self.claimed.held.token).await;
                stays
            }
            Ok((copy, mut collected)) => {
                packed.files = std::mem::take(&mut collected.pieces);
                packed.stored.copy = Some((copy, collected));
                None
            }
            Err(error) => Some(format!("its files cannot be read: {error}")),
        };
        packed.stays = packed.stays.take().or(stays);
    }
}

/// Notes that what was collected is not stored with the result of this token.
async fn leave_out(
    mut copy: LocalCopy,
    mut collected: Collected,
    token: i64,
) -> Option<(LocalCopy, Collected)> {
    let noted = blocking(move || {
        if let Err(error) = copy.leave_out(token, &mut collected) {
            tracing::warn!("cannot record that the files of a session are only here: {error}");
        }
        (copy, collected)
    });
    noted.await.ok()
}

/// Whether all sessions of the engine stay, which was said when it was configured.
fn is_known_to_stay(served: Option<&Served>) -> bool {
    served.is_some_and(|served| matches!(served.travels, Travels::No))
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
