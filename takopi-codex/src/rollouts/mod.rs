//! Codex's stored sessions: `sessions/YYYY/MM/DD/rollout-….jsonl` under `CODEX_HOME`.
//!
//! Files are read lazily, most recently written first, and for a list only their beginnings. A file that
//! cannot be read, or that codex did not write, is left out. Sessions of sub-agents belong to another
//! session and are left out too.

mod portable;
mod transcript;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;
use takopi_core::EngineId;
use takopi_core::catalog::{
    Role, SessionError, SessionFiles, SessionFormat, StoredSession, TranscriptEntry,
};

use crate::{CODEX, resume_codec};

/// How much of a file is read to find its first prompt.
const HEAD_BYTES: u64 = 512 * 1024;
/// How much of a first prompt is kept, in characters.
const PROMPT_CHARS: usize = 1000;

/// How codex writes its sessions.
#[derive(Debug)]
pub(crate) struct Rollouts {
    /// The names of sessions that have one, by id.
    names: HashMap<String, String>,
}

/// `CODEX_HOME`, else `~/.codex`.
pub(crate) fn codex_home() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CODEX_HOME").or_else(|| set("HOME").map(|home| home.join(".codex")))
}

/// The user's sessions; there may be none.
pub(crate) fn open() -> Result<SessionFiles<Rollouts>, SessionError> {
    let home = codex_home()
        .ok_or_else(|| SessionError::NoStore("neither CODEX_HOME nor HOME is set".to_owned()))?;
    Ok(at(&home))
}

fn at(home: &Path) -> SessionFiles<Rollouts> {
    let names = std::fs::read_to_string(home.join("session_index.jsonl")).unwrap_or_default();
    let names = names.lines().filter_map(name).collect();
    SessionFiles::new(home.join("sessions"), Rollouts { names })
}

impl SessionFormat for Rollouts {
    fn engine(&self) -> EngineId {
        CODEX
    }

    fn depth(&self) -> usize {
        // Year, month, day.
        3
    }

    fn id_of<'a>(&self, path: &'a Path) -> Option<&'a str> {
        thread_of(path)
    }

    fn summary(
        &self,
        path: &Path,
        updated: Timestamp,
        wanted: &dyn Fn(Option<&Path>) -> bool,
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
            let entry = transcript::entry(&line)?;
            (entry.role == Role::User).then_some(entry.text)
        });
        let mut session = StoredSession::new(token, updated);
        session.name = self.names.get(&session.token.value).cloned();
        session.created = text("timestamp");
        session.first_prompt = first_prompt.map(|text| text.chars().take(PROMPT_CHARS).collect());
        session.cwd = cwd;
        Some(session)
    }

    fn transcript(&self, path: &Path) -> io::Result<Vec<TranscriptEntry>> {
        transcript::read(path)
    }
}

/// The thread of a file by its name, `rollout-TIME-THREAD.jsonl`; behind a revert `rollout-TIME-THREAD_ROLLOUT.jsonl`.
fn thread_of(path: &Path) -> Option<&str> {
    let stem = path.file_name()?.to_str()?.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    let stem = stem.split('_').next()?;
    let id = stem.get(stem.len().checked_sub(36)?..)?;
    resume_codec().token(id).map(|_| id)
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;
    use takopi_core::catalog::SessionStore;

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

    fn ids(store: &dyn SessionStore, directory: Option<&str>) -> Vec<String> {
        store.list(directory.map(Path::new)).map(|session| session.token.value).collect()
    }

    #[test]
    fn sessions_are_listed_newest_first_and_by_directory() {
        let home = home();
        let store = at(home.path());
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
        let session = at(home.path()).list(None).next().unwrap();
        assert_eq!(session.name.as_deref(), Some("second"));
    }

    #[test]
    fn a_session_is_found_by_the_beginning_of_its_id() {
        let home = home();
        let store = at(home.path());
        assert_eq!(store.find(&NEW[..9].to_uppercase()).unwrap().token.value, NEW);
        assert!(store.find("01a1e2").unwrap_err().to_string().contains("3 sessions"));
        assert!(store.find("ffff").unwrap_err().to_string().contains("no session"));
        assert!(store.find("").is_err());
    }

    #[test]
    fn a_home_without_sessions_is_not_an_error() {
        let home = tempfile::tempdir().unwrap();
        assert!(ids(&at(home.path()), None).is_empty());
    }
}
