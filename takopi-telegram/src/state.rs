//! What must survive a restart: the offset of the updates, the progress messages of running jobs, the sessions
//! of answers in parts, the conversation of each place, and what people chose there.
//!
//! One small JSON file that only its owner can read, replaced at once (written beside it, synced, renamed): a
//! crash at any moment leaves the old or the new state. It holds no answers, and no prompts but those of messages
//! that are being prepared while many others come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most places that are remembered.
const PLACES: usize = 1000;
/// The most open messages that are remembered.
const OPEN: usize = 1000;

/// The most parts of answers and requests that are remembered.
const PARTS: usize = 1000;

/// What is remembered of a place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaceState {
    /// The last lines of the last message: where the session ran, and how to resume it.
    pub footer: Option<String>,
    /// The message that began the conversation, if one was begun on purpose.
    pub begun: i64,
    /// The engine that `/agent` chose.
    pub engine: Option<String>,
    /// The model that `/model` chose.
    pub model: Option<String>,
    /// The effort that `/effort` chose.
    pub effort: Option<String>,
    /// The number of its last use.
    pub used: u64,
}

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stored {
    /// The first update that was not handled.
    pub offset: i64,
    /// The updates behind it that were handled.
    pub handled: BTreeSet<i64>,
    /// Messages that are being handled and that the service has forgotten: what it delivered, by number.
    pub kept: BTreeMap<i64, Value>,
    /// By place: `chat` or `chat:topic`.
    pub places: BTreeMap<String, PlaceState>,
    /// How often places were used.
    pub uses: u64,
    /// Messages that show a running job or wait for a press, `chat/message`, with their last lines.
    pub open: BTreeMap<String, String>,
    /// Parts of long answers, `chat/message`, oldest first, with the last lines that only the last part
    /// shows; and requests with their diffs, which have no such lines.
    pub parts: VecDeque<(String, String)>,
}

impl Stored {
    /// The place of this name, which is used now: the one unused for longest is forgotten first.
    pub fn used(&mut self, place: String) -> &mut PlaceState {
        self.uses += 1;
        let state = self.places.entry(place).or_default();
        state.used = self.uses;
        state
    }

    /// The last lines of the answer that a message is a part of.
    pub fn part(&self, chat: i64, message: i64) -> Option<&str> {
        let key = message_key(chat, message);
        self.parts.iter().rev().find(|part| part.0 == key).map(|part| part.1.as_str())
    }
}

/// The name of a message in the state: `chat/message`.
pub(crate) fn message_key(chat: i64, message: i64) -> String {
    format!("{chat}/{message}")
}

/// The chat and the message of such a name.
pub(crate) fn read_message_key(key: &str) -> Option<(i64, i64)> {
    let (chat, message) = key.split_once('/')?;
    Some((chat.parse().ok()?, message.parse().ok()?))
}

/// The state of a bot, in memory and on disk.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    stored: Mutex<Stored>,
}

impl Store {
    /// Opens the file; one that does not exist is empty, one that cannot be read is an error.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let stored = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let path = path.display();
                io::Error::other(format!("{path} is damaged ({error}); move it away"))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Stored::default(),
            Err(error) => return Err(error),
        };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        Ok(Self { path, stored: Mutex::new(stored) })
    }

    /// Reads it.
    pub fn read<R>(&self, read: impl FnOnce(&Stored) -> R) -> R {
        read(&self.stored.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it, and writes the file if something changed. A file that cannot be written is logged: the bot
    /// goes on.
    pub fn change<R>(&self, change: impl FnOnce(&mut Stored) -> R) -> R {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let before = stored.clone();
        let result = change(&mut stored);
        while stored.places.len() > PLACES {
            let oldest = stored.places.iter().min_by_key(|(_, state)| state.used);
            let Some(oldest) = oldest.map(|(place, _)| place.clone()) else { break };
            stored.places.remove(&oldest);
        }
        while stored.open.len() > OPEN {
            stored.open.pop_first();
        }
        while stored.parts.len() > PARTS {
            stored.parts.pop_front();
        }
        if *stored != before
            && let Err(error) = write(&self.path, &stored)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot store the state");
        }
        result
    }
}

fn write(path: &Path, stored: &Stored) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(&serde_json::to_vec(stored)?)?;
    file.sync_data()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_was_changed_is_there_after_a_restart_and_for_nobody_else() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("state/telegram.json");
        let store = Store::open(&path).unwrap();
        store.change(|stored| stored.offset = 7);
        assert_eq!(Store::open(&path).unwrap().read(|stored| stored.offset), 7);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "{").unwrap();
        assert!(Store::open(&path).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn of_too_many_places_the_one_unused_for_longest_is_forgotten() {
        let directory = tempfile::TempDir::new().unwrap();
        let store = Store::open(directory.path().join("telegram.json")).unwrap();
        let place = |number: usize| format!("{number:04}");
        store.change(|stored| {
            (0..PLACES).for_each(|number| stored.used(place(number)).begun = 1);
            stored.used(place(0));
        });
        store.change(|stored| stored.used(place(PLACES)).begun = 1);
        let known = |number| store.read(|stored| stored.places.contains_key(&place(number)));
        assert_eq!([0, 1, 2, PLACES].map(known), [true, false, true, true]);
    }
}
