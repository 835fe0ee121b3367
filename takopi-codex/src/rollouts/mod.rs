//! Codex's stored sessions: `sessions/YYYY/MM/DD/rollout-….jsonl` under `CODEX_HOME`.
//!
//! Files are read lazily, most recently written first, and for a list only their beginnings. A file that
//! cannot be read, or that codex did not write, is left out. Sessions of sub-agents belong to another
//! session and are left out too.

mod transcript;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::Value;
use takopi_core::ResumeToken;
use takopi_core::catalog::{Role, SessionError, SessionStore, StoredSession, TranscriptEntry};

use crate::{CODEX, resume_codec};

/// How much of a file is read to find its first prompt.
const HEAD_BYTES: u64 = 512 * 1024;
/// How much of a first prompt is kept, in characters.
const PROMPT_CHARS: usize = 1000;

/// The session files of a `CODEX_HOME`.
#[derive(Debug)]
pub(crate) struct Rollouts {
    directory: PathBuf,
    /// The names of sessions that have one, by id.
    names: HashMap<String, String>,
}

/// `CODEX_HOME`, else `~/.codex`.
pub(crate) fn codex_home() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CODEX_HOME").or_else(|| set("HOME").map(|home| home.join(".codex")))
}

impl Rollouts {
    /// The user's sessions; there may be none.
    pub(crate) fn open() -> Result<Self, SessionError> {
        let home = codex_home().ok_or_else(|| {
            SessionError::NoStore("neither CODEX_HOME nor HOME is set".to_owned())
        })?;
        Ok(Self::at(&home))
    }

    fn at(home: &Path) -> Self {
        let names = std::fs::read_to_string(home.join("session_index.jsonl")).unwrap_or_default();
        Self { directory: home.join("sessions"), names: names.lines().filter_map(name).collect() }
    }

    /// The file of the one session whose id begins with this prefix.
    fn file(&self, prefix: &str) -> Result<(SystemTime, PathBuf), SessionError> {
        let prefix = prefix.trim().to_ascii_lowercase();
        let matches = |path: &Path| id_of(path).is_some_and(|id| id.starts_with(&prefix));
        let mut found = self.files();
        found.retain(|(_, path)| !prefix.is_empty() && matches(path));
        match found.len() {
            0 | 1 => found.pop().ok_or(SessionError::NotFound(prefix)),
            count => Err(SessionError::Ambiguous { prefix, count }),
        }
    }

    /// The files, most recently written first.
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
        path: &Path,
        updated: SystemTime,
        wanted: impl Fn(Option<&Path>) -> bool,
    ) -> Option<StoredSession> {
        let mut lines = BufReader::new(File::open(path).ok()?.take(HEAD_BYTES)).split(b'\n');
        let first: Value = serde_json::from_slice(&lines.next()?.ok()?).ok()?;
        let meta = first.get("payload").filter(|_| first["type"] == "session_meta")?;
        let text = |key: &str| meta.get(key).and_then(Value::as_str).map(str::to_owned);
        let cwd = text("cwd").map(PathBuf::from);
        if belongs_to_another(meta) || !wanted(cwd.as_deref()) {
            return None;
        }
        let token = resume_codec().token(&text("id")?)?;
        let first_prompt = lines.map_while(Result::ok).find_map(|line| {
            let (entry, _) = transcript::entry(&line)?;
            (entry.role == Role::User).then_some(entry.text)
        });
        let updated = Timestamp::try_from(updated).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut session = StoredSession::new(token, updated);
        session.name = self.names.get(&session.token.value).cloned();
        session.created = text("timestamp");
        session.first_prompt = first_prompt.map(|text| text.chars().take(PROMPT_CHARS).collect());
        session.cwd = cwd;
        Some(session)
    }
}

impl SessionStore for Rollouts {
    fn location(&self) -> &Path {
        &self.directory
    }

    fn list<'a>(
        &'a self,
        directory: Option<&Path>,
    ) -> Box<dyn Iterator<Item = StoredSession> + 'a> {
        let directory = directory.map(real);
        Box::new(self.files().into_iter().filter_map(move |(updated, path)| {
            let wanted = |cwd: Option<&Path>| match &directory {
                Some(directory) => cwd.is_some_and(|cwd| real(cwd) == *directory),
                None => true,
            };
            self.read(&path, updated, wanted)
        }))
    }

    fn find(&self, prefix: &str) -> Result<StoredSession, SessionError> {
        let (updated, path) = self.file(prefix)?;
        self.read(&path, updated, |_| true).ok_or_else(|| {
            let source = std::io::Error::other("it is not a session file of codex");
            SessionError::Unreadable { path, source }
        })
    }

    fn transcript(&self, session: &ResumeToken) -> Result<Vec<TranscriptEntry>, SessionError> {
        if session.engine != CODEX {
            return Err(SessionError::NotFound(session.value.clone()));
        }
        let (_, path) = self.file(&session.value)?;
        transcript::read(&path).map_err(|source| SessionError::Unreadable { path, source })
    }
}

/// Whether it is the session of a sub-agent, or one that codex uses internally.
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

/// The id in a file's name: its last 36 characters.
fn id_of(path: &Path) -> Option<&str> {
    let stem = path.file_name()?.to_str()?.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    let id = stem.get(stem.len().checked_sub(36)?..)?;
    resume_codec().token(id).map(|_| id)
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

    fn prompt(text: &str) -> Value {
        json!({ "type": "event_msg", "payload": { "type": "user_message", "message": text } })
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let meta = |id: &str, cwd: &str| json!({ "id": id, "cwd": cwd, "source": "exec" });
        write(home.path(), OLD, 100, &meta(OLD, "/"), &[prompt("the old one")]);
        write(home.path(), NEW, 10, &meta(NEW, "/tmp"), &[json!({ "odd": 1 }), prompt("new\none")]);
        let sub = json!({ "id": SUB, "cwd": "/", "source": { "subagent": "review" } });
        write(home.path(), SUB, 1, &sub, &[]);
        std::fs::write(home.path().join("sessions/2026/11/16/rollout-x.jsonl"), "junk").unwrap();
        home
    }

    fn ids(store: &Rollouts, directory: Option<&str>) -> Vec<String> {
        store.list(directory.map(Path::new)).map(|session| session.token.value).collect()
    }

    #[test]
    fn sessions_are_listed_newest_first_and_by_directory() {
        let home = home();
        let store = Rollouts::at(home.path());
        assert_eq!(ids(&store, None), [NEW, OLD]);
        assert_eq!(ids(&store, Some("/")), [OLD]);
        assert_eq!(ids(&store, Some("/usr/..")), [OLD]);
        let prompts: Vec<_> = store.list(None).map(|session| session.first_prompt).collect();
        assert_eq!(prompts, [Some("new\none".to_owned()), Some("the old one".to_owned())]);
    }

    #[test]
    fn the_last_name_in_the_index_counts() {
        let home = home();
        let line = |name: &str| json!({ "id": NEW, "thread_name": name }).to_string();
        let index = [line("first"), "junk".to_owned(), line("second")].join("\n");
        std::fs::write(home.path().join("session_index.jsonl"), index).unwrap();
        let session = Rollouts::at(home.path()).list(None).next().unwrap();
        assert_eq!(session.name.as_deref(), Some("second"));
    }

    #[test]
    fn a_session_is_found_by_the_beginning_of_its_id() {
        let home = home();
        let store = Rollouts::at(home.path());
        assert_eq!(store.find(&NEW[..9].to_uppercase()).unwrap().token.value, NEW);
        assert!(store.find("01a1e2").unwrap_err().to_string().contains("3 sessions"));
        assert!(store.find("ffff").unwrap_err().to_string().contains("no session"));
        assert!(store.find("").is_err());
    }

    #[test]
    fn a_home_without_sessions_is_not_an_error() {
        let home = tempfile::tempdir().unwrap();
        assert!(ids(&Rollouts::at(home.path()), None).is_empty());
    }
}
