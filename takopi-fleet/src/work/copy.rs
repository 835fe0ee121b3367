//! This machine's copy of a session's files.
//!
//! A small record beside them says which generation of the session they are, and whether a turn on them was begun and not
//! stored. From it follows what a file that is not as it was stored means:
//!
//! | the file here | a turn was cut off | then |
//! |---|---|---|
//! | is shorter, and the stored one begins with it | – | it is old: replaced |
//! | is longer, and begins with the stored one | no | somebody continued the session here: kept, and stored with the next result |
//! | | yes | half a turn, which is run again: put aside and replaced |
//! | differs | – | put aside with a warning, and replaced |
//!
//! A turn whose result was stored without its files (they are too large) has them nowhere else: they are never replaced by what was
//! stored before it, also if a later turn on them was cut off.
//!
//! Files of other sessions that belong to the set (the parents of a fork) are added, and never taken away.
//!
//! Everything here blocks.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize};
use takopi_core::catalog::PortableSessions;
use uuid::Uuid;

use crate::board::Piece;
use crate::files::{Appended, Inventory, Relation, appended, relation, unpack};

/// This machine's copy of a session.
pub(super) struct LocalCopy {
    path: PathBuf,
    record: Record,
}

/// Held while a record is written: a turn notes that its result was stored while the next one may begin.
static RECORDS: Mutex<()> = Mutex::new(());

#[derive(Default, Serialize, Deserialize)]
struct Record {
    /// The token under which the files were stored as they are here; not set if they never were.
    generation: Option<i64>,
    /// Whether a turn was begun on them and not stored.
    busy: bool,
    /// Whether the session is too large to be stored.
    #[serde(default)]
    too_large: bool,
    /// The tokens of results that are, or may be, stored without the files as they are here.
    #[serde(default, deserialize_with = "one_or_many")]
    only_here: Vec<i64>,
    stored: Inventory,
}

/// What goes into the result of a turn.
pub(super) struct Collected {
    /// What was appended.
    pub(super) pieces: Vec<Piece>,
    /// Why the session cannot leave this machine; `None` if it can.
    pub(super) stays: Option<String>,
    stored: Inventory,
    too_large: bool,
}

/// The files of a session, in the directory where it runs.
#[derive(Clone, Copy)]
pub(super) struct Store<'a> {
    pub(super) sessions: &'a dyn PortableSessions,
    pub(super) session: &'a str,
    pub(super) cwd: &'a Path,
}

impl LocalCopy {
    /// What is known of a session here. A record that cannot be read is none: the files are then compared.
    pub(super) fn open(state: &Path, sid: Uuid) -> Self {
        let path = state.join("sessions").join(format!("{sid}.json"));
        let read = std::fs::read(&path).ok();
        let record = read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { path, record }
    }

    /// Whether the files here are those of this generation, or what somebody made of them here.
    pub(super) fn is_current(&self, generation: i64, store: Store<'_>) -> bool {
        let there =
            |name: &String| store.sessions.path(name, store.cwd).is_some_and(|path| path.is_file());
        let stored = self.record.generation == Some(generation) && !self.record.busy;
        (stored || self.record.only_here.contains(&generation))
            && self.record.stored.keys().all(there)
    }

    /// Places the stored files of a generation.
    pub(super) fn place(
        &mut self,
        generation: i64,
        pieces: Vec<Piece>,
        store: Store<'_>,
    ) -> io::Result<()> {
        let mut files: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
        for piece in pieces {
            files.entry(piece.path.clone()).or_default().push(piece);
        }
        let mut stored = Inventory::new();
        for (name, pieces) in files {
            let Some(path) = store.sessions.path(&name, store.cwd) else {
                let error = format!("{name:?} is not the name of a session file");
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            };
            let directory = path.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(directory)?;
            let beside = directory.join(format!(".takopi-{}", Uuid::new_v4().simple()));
            let placed = unpack(&pieces, &beside).and_then(|entry| {
                self.exchange(&path, &beside, name.contains(store.session), generation)?;
                Ok(entry)
            });
            let _ = std::fs::remove_file(&beside);
            stored.insert(name, placed?);
        }
        let too_large = self.record.too_large;
        self.record =
            Record { generation: Some(generation), too_large, stored, ..Record::default() };
        Ok(())
    }

    /// Puts the stored file into the place of the one here, unless that one is to be kept.
    fn exchange(&self, here: &Path, stored: &Path, own: bool, generation: i64) -> io::Result<()> {
        match relation(here, stored)? {
            Relation::Same => return Ok(()),
            Relation::Absent | Relation::Behind => {}
            Relation::Ahead if !own || !self.record.busy => return Ok(()),
            Relation::Differs if !own => return Ok(()),
            found => {
                let aside = here.with_added_extension(format!("before-{generation}"));
                std::fs::rename(here, &aside)?;
                if found == Relation::Differs && !self.record.busy {
                    tracing::warn!(
                        "{} was changed outside the fleet; the change is kept in {}",
                        here.display(),
                        aside.display()
                    );
                } else {
                    tracing::info!("what was left of a turn is kept in {}", aside.display());
                }
            }
        }
        std::fs::rename(stored, here)
    }

    /// A turn begins on the files, of a new session if there is no generation.
    pub(super) fn begin(&mut self, generation: Option<i64>) -> io::Result<()> {
        if generation.is_none() {
            self.record = Record::default();
        }
        self.record.generation = generation;
        self.record.busy = true;
        self.save()
    }

    /// What has to be stored with the result of the turn.
    pub(super) fn collect(&self, store: Store<'_>, limit: u64) -> Collected {
        let nothing = |stays: String, too_large| Collected {
            pieces: Vec::new(),
            stays: Some(stays),
            stored: self.record.stored.clone(),
            too_large,
        };
        let too_large = || nothing(format!("its files have more than {} MB", limit >> 20), true);
        if self.record.too_large {
            return too_large();
        }
        let files = store.sessions.files(store.session, store.cwd);
        if files.as_ref().is_ok_and(Vec::is_empty) {
            return nothing("no file of it was found".to_owned(), false);
        }
        match files.and_then(|files| appended(&files, &self.record.stored, limit)) {
            Ok(Appended::Pieces(pieces, stored)) => {
                Collected { pieces, stays: None, stored, too_large: false }
            }
            Ok(Appended::TooLarge) => too_large(),
            Err(error) => nothing(format!("its files cannot be read: {error}"), false),
        }
    }

    /// The result is about to be stored under this token, without the files. Noted before it is: whoever dies in between leaves the
    /// only copy of the turn.
    pub(super) fn leave_out(&mut self, token: i64, collected: &mut Collected) -> io::Result<()> {
        collected.pieces.clear();
        collected.stored.clone_from(&self.record.stored);
        // The result before stays the newest one if this one is never stored.
        let before = self.record.generation;
        self.record.only_here.retain(|left_out| Some(*left_out) == before);
        self.record.only_here.push(token);
        self.save()
    }

    /// The result was stored, and with it what was collected.
    pub(super) fn committed(&mut self, token: i64, collected: Collected) -> io::Result<()> {
        let Collected { stored, too_large, .. } = collected;
        let mut only_here = std::mem::take(&mut self.record.only_here);
        only_here.retain(|left_out| *left_out == token);
        self.record = Record { generation: Some(token), busy: false, too_large, only_here, stored };
        let _guard = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
        // The next turn of the session may have begun here from what was stored: its record counts.
        let noted = std::fs::read(&self.path).ok();
        let noted: Option<Record> = noted.and_then(|noted| serde_json::from_slice(&noted).ok());
        if noted.is_some_and(|noted| noted.generation >= Some(token)) {
            return Ok(());
        }
        self.write()
    }

    fn save(&self) -> io::Result<()> {
        let _guard = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(&self.record)?)?;
        std::fs::rename(beside, &self.path)
    }
}

/// Records of before had the newest token only.
fn one_or_many<'de, D: Deserializer<'de>>(record: D) -> Result<Vec<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Tokens {
        Many(Vec<i64>),
        One(Option<i64>),
    }
    Ok(match Tokens::deserialize(record)? {
        Tokens::Many(tokens) => tokens,
        Tokens::One(token) => token.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests;
