//! Codex's session files: `sessions/YYYY/MM/DD/rollout-….jsonl` under `CODEX_HOME`.
//!
//! Read lazily, newest first by the time they were last written, and only their beginnings. A file
//! that cannot be read, or is none of codex's, is left out. Sessions of sub-agents belong to
//! another and are left out too.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::bail;
use jiff::Timestamp;
use serde_json::Value;

use super::talk::{self, Speaker};

/// How much of a file is read for its first words.
const HEAD_BYTES: u64 = 512 * 1024;

/// A session, as its file's beginning tells.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) updated: Timestamp,
    pub(super) created: Option<String>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) name: Option<String>,
    pub(super) first_words: Option<String>,
}

/// The session files of a `CODEX_HOME`.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    names: HashMap<String, String>,
}

/// `CODEX_HOME`, else `~/.codex`.
pub(crate) fn codex_home() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CODEX_HOME").or_else(|| set("HOME").map(|home| home.join(".codex")))
}

impl Store {
    /// The user's sessions; there may be none.
    pub(super) fn open() -> anyhow::Result<Self> {
        let Some(home) = codex_home() else {
            bail!("cannot tell where codex keeps its sessions: neither CODEX_HOME nor HOME is set");
        };
        Ok(Self::at(&home))
    }

    fn at(home: &Path) -> Self {
        let names = std::fs::read_to_string(home.join("session_index.jsonl")).unwrap_or_default();
        Self { directory: home.join("sessions"), names: names.lines().filter_map(name).collect() }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The sessions, newest first; with a directory, only those that began there.
    pub(super) fn sessions(&self, directory: Option<&Path>) -> impl Iterator<Item = Session> {
        let directory = directory.map(real);
        self.files().into_iter().filter_map(move |(updated, path)| {
            let wanted = |cwd: Option<&Path>| match &directory {
                Some(directory) => cwd.is_some_and(|cwd| real(cwd) == *directory),
                None => true,
            };
            self.read(path, updated, wanted)
        })
    }

    /// The one session whose id begins like this.
    pub(super) fn find(&self, id: &str) -> anyhow::Result<Session> {
        let id = id.trim().to_ascii_lowercase();
        let named = |path: &Path| id_of(path).is_some_and(|it| it.starts_with(&id));
        let mut found = self.files();
        found.retain(|(_, path)| !id.is_empty() && named(path));
        match found.len() {
            0 => bail!("no session {id:?} was found; `takopi sessions -n 0` lists all there are"),
            1 => {}
            count => bail!("{count} sessions begin with {id:?}; give more of the id"),
        }
        let session = found.pop().and_then(|(updated, path)| self.read(path, updated, |_| true));
        session.ok_or_else(|| anyhow::anyhow!("the file of session {id:?} cannot be read"))
    }

    /// The files, newest first.
    fn files(&self) -> Vec<(SystemTime, PathBuf)> {
        let mut files = Vec::new();
        // Year, month, day, file.
        let mut level = vec![self.directory.clone()];
        for _ in 0..4 {
            level = level.iter().flat_map(|directory| entries(directory)).collect();
        }
        for path in level {
            if id_of(&path).is_some()
                && let Ok(metadata) = path.metadata()
                && metadata.is_file()
            {
                files.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), path));
            }
        }
        files.sort_by(|one, other| other.cmp(one));
        files
    }

    fn read(
        &self,
        path: PathBuf,
        updated: SystemTime,
        wanted: impl Fn(Option<&Path>) -> bool,
    ) -> Option<Session> {
        let mut lines = BufReader::new(File::open(&path).ok()?.take(HEAD_BYTES)).split(b'\n');
        let first: Value = serde_json::from_slice(&lines.next()?.ok()?).ok()?;
        let meta = first.get("payload").filter(|_| first["type"] == "session_meta")?;
        let text = |key: &str| meta.get(key).and_then(Value::as_str).map(str::to_owned);
        let cwd = text("cwd").map(PathBuf::from);
        if belongs_to_another(meta) || !wanted(cwd.as_deref()) {
            return None;
        }
        let id = text("id")?.to_ascii_lowercase();
        let first_words = lines.map_while(Result::ok).find_map(|line| {
            let entry = talk::entry(&line)?;
            (entry.speaker == Speaker::User).then_some(entry.text)
        });
        Some(Session {
            name: self.names.get(&id).cloned(),
            updated: Timestamp::try_from(updated).unwrap_or(Timestamp::UNIX_EPOCH),
            created: text("timestamp"),
            first_words: first_words.map(|words| takopi_bridge::present::one_line(&words, 200)),
            id,
            path,
            cwd,
        })
    }
}

/// Whether it is the session of a sub-agent, or of codex's own housekeeping.
fn belongs_to_another(meta: &Value) -> bool {
    let source = meta.get("source").and_then(Value::as_object);
    source.is_some_and(|source| ["subagent", "internal"].iter().any(|it| source.contains_key(*it)))
}

/// A line of the index: a session and its name. Later lines win.
fn name(line: &str) -> Option<(String, String)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| line.get(key).and_then(Value::as_str);
    let name = text("thread_name").filter(|name| !name.trim().is_empty())?;
    Some((text("id")?.to_ascii_lowercase(), name.to_owned()))
}

/// The id in a file's name: its last 36 letters.
fn id_of(path: &Path) -> Option<&str> {
    let stem = path.file_name()?.to_str()?.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    let id = stem.get(stem.len().checked_sub(36)?..)?;
    takopi_codex::resume_codec().token(id).map(|_| id)
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The path without symbolic links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.canonicalize().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const OLD: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
    const NEW: &str = "01a1e24e-9471-7c92-a579-69c96b096128";
    const SUB: &str = "01a1e24f-9471-7c92-a579-69c96b096129";

    fn write(home: &Path, id: &str, age: u64, meta: &Value, lines: &[Value]) {
        let day = home.join("sessions/2026/11/16");
        std::fs::create_dir_all(&day).unwrap();
        let path = day.join(format!("rollout-2026-11-16T02-45-30-{id}.jsonl"));
        let meta = json!({ "type": "session_meta", "payload": meta });
        let text: Vec<String> = [&meta].into_iter().chain(lines).map(Value::to_string).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    fn said(text: &str) -> Value {
        json!({ "type": "event_msg", "payload": { "type": "user_message", "message": text } })
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let meta = |id: &str, cwd: &str| json!({ "id": id, "cwd": cwd, "source": "exec" });
        write(home.path(), OLD, 100, &meta(OLD, "/"), &[said("the old one")]);
        write(home.path(), NEW, 10, &meta(NEW, "/tmp"), &[json!({ "odd": 1 }), said("new\none")]);
        let sub = json!({ "id": SUB, "cwd": "/", "source": { "subagent": "review" } });
        write(home.path(), SUB, 1, &sub, &[]);
        std::fs::write(home.path().join("sessions/2026/11/16/rollout-x.jsonl"), "junk").unwrap();
        home
    }

    fn ids(store: &Store, directory: Option<&str>) -> Vec<String> {
        store.sessions(directory.map(Path::new)).map(|session| session.id).collect()
    }

    #[test]
    fn sessions_come_newest_first_and_by_directory() {
        let home = home();
        let store = Store::at(home.path());
        assert_eq!(ids(&store, None), [NEW, OLD]);
        assert_eq!(ids(&store, Some("/")), [OLD]);
        assert_eq!(ids(&store, Some("/usr/..")), [OLD]);
        let words: Vec<_> = store.sessions(None).map(|session| session.first_words).collect();
        assert_eq!(words, [Some("new one".to_owned()), Some("the old one".to_owned())]);
    }

    #[test]
    fn names_come_from_the_index_and_the_last_wins() {
        let home = home();
        let line = |name: &str| json!({ "id": NEW, "thread_name": name }).to_string();
        let index = [line("first"), "junk".to_owned(), line("second")].join("\n");
        std::fs::write(home.path().join("session_index.jsonl"), index).unwrap();
        let session = Store::at(home.path()).sessions(None).next().unwrap();
        assert_eq!(session.name.as_deref(), Some("second"));
    }

    #[test]
    fn a_session_is_found_by_the_beginning_of_its_id() {
        let home = home();
        let store = Store::at(home.path());
        assert_eq!(store.find(&NEW[..9].to_uppercase()).unwrap().id, NEW);
        assert!(store.find("01a1e2").unwrap_err().to_string().contains("3 sessions"));
        assert!(store.find("ffff").unwrap_err().to_string().contains("no session"));
        assert!(store.find("").is_err());
    }

    #[test]
    fn no_sessions_are_no_error() {
        let home = tempfile::tempdir().unwrap();
        assert!(ids(&Store::at(home.path()), None).is_empty());
    }
}
