//! The sessions that pi has stored: a file each, `TIME_UUID.jsonl`, in a folder per directory.
//!
//! pi moves them to one flat directory if `PI_CODING_AGENT_SESSION_DIR` or the user's setting `sessionDir`
//! says so.

mod transcript;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;
use takopi_core::EngineId;
use takopi_core::catalog::{
    Role, SessionError, SessionFiles, SessionFormat, StoredSession, TranscriptEntry,
};
use takopi_core::model::Reason;
use takopi_core::runner::RunError;

use crate::{PI, resume_codec};

/// How many lines of a file are read to find its first prompt.
const HEAD_LINES: usize = 50;
/// How much of a file is read to find its first prompt. A prompt with images is one long line.
const HEAD_BYTES: u64 = 32 << 20;
/// How much of a first prompt is kept, in characters.
const PROMPT_CHARS: usize = 1000;

/// Where sessions are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Whether there is a folder for each working directory.
    is_nested: bool,
}

/// The file of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionFile {
    pub(crate) path: PathBuf,
    /// The directory where the session began.
    pub(crate) cwd: Option<PathBuf>,
}

/// pi's own directory: `PI_CODING_AGENT_DIR`, else `~/.pi/agent`.
pub(crate) fn agent_directory(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).map(PathBuf::from);
    set("PI_CODING_AGENT_DIR").or_else(|| Some(set("HOME")?.join(".pi/agent")))
}

/// A variable of takopi's own.
pub(crate) fn own_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Directory {
    /// For a pi with these variables that works in a directory.
    pub(crate) fn of(variable: &dyn Fn(&str) -> Option<OsString>, working: &Path) -> Option<Self> {
        let agent = agent_directory(variable);
        let setting = || {
            let settings = fs::read(agent.as_ref()?.join("settings.json")).ok()?;
            let settings: Value = serde_json::from_slice(&settings).ok()?;
            let directory = settings["sessionDir"].as_str().filter(|it| !it.is_empty())?;
            Some(match directory.strip_prefix("~/") {
                Some(rest) => PathBuf::from(variable("HOME")?).join(rest),
                None => working.join(directory),
            })
        };
        let flat = variable("PI_CODING_AGENT_SESSION_DIR").map(|path| working.join(path));
        if let Some(path) = flat.or_else(setting) {
            return Some(Self { path, is_nested: false });
        }
        Some(Self { path: agent.as_ref()?.join("sessions"), is_nested: true })
    }

    /// The file of a session. pi itself would begin another one if there is none.
    pub(crate) fn file(&self, id: &str) -> Result<SessionFile, RunError> {
        let depth = usize::from(self.is_nested);
        let path = SessionFiles::new(&self.path, Transcripts { depth }).path_of(id);
        let path = path.map_err(|_| {
            let error = format!("pi has no session {id} below {}", self.path.display());
            RunError::new(Reason::SessionNotFound, error)
        })?;
        let head = File::open(&path).ok().and_then(|file| Head::read(&file, id));
        let head = head.ok_or_else(|| {
            let error = format!("{} is not a session of pi", path.display());
            RunError::new(Reason::SessionNotFound, error)
        })?;
        Ok(SessionFile { path, cwd: head.cwd })
    }
}

/// How pi writes its sessions.
#[derive(Debug)]
pub(crate) struct Transcripts {
    depth: usize,
}

/// The user's sessions; there may be none.
pub(crate) fn open() -> Result<SessionFiles<Transcripts>, SessionError> {
    let working = std::env::current_dir().unwrap_or_default();
    let directory = Directory::of(&own_variable, &working).ok_or_else(|| {
        SessionError::NoStore("neither PI_CODING_AGENT_DIR nor HOME is set".to_owned())
    })?;
    let depth = usize::from(directory.is_nested);
    Ok(SessionFiles::new(directory.path, Transcripts { depth }))
}

impl SessionFormat for Transcripts {
    fn engine(&self) -> EngineId {
        PI
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn id_of<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        let (_, id) = name.rsplit_once('_')?;
        resume_codec().token(id).filter(|token| token.value == id).map(|_| id)
    }

    fn summary(
        &self,
        path: &Path,
        updated: Timestamp,
        wanted: &dyn Fn(Option<&Path>) -> bool,
    ) -> Option<StoredSession> {
        let id = self.id_of(path)?;
        let head = Head::read(&File::open(path).ok()?, id)?;
        if !wanted(head.cwd.as_deref()) {
            return None;
        }
        let mut session = StoredSession::new(resume_codec().token(id)?, updated);
        session.created = head.created;
        session.cwd = head.cwd;
        session.first_prompt = head.prompt.map(|text| text.chars().take(PROMPT_CHARS).collect());
        Some(session)
    }

    fn transcript(&self, path: &Path) -> io::Result<Vec<TranscriptEntry>> {
        transcript::read(path)
    }
}

/// What the beginning of a file has.
struct Head {
    cwd: Option<PathBuf>,
    created: Option<String>,
    prompt: Option<String>,
}

impl Head {
    /// Reads up to the first prompt; `None` if the file is not of this session.
    fn read(file: &File, id: &str) -> Option<Self> {
        let mut lines = BufReader::new(file.take(HEAD_BYTES)).split(b'\n').map_while(Result::ok);
        let header: Value = serde_json::from_slice(&lines.next()?).ok()?;
        if header["type"] != "session" || header["id"] != id {
            return None;
        }
        let text = |key: &str| header[key].as_str().map(str::to_owned);
        let prompt = lines.take(HEAD_LINES).find_map(|line| {
            let line: Value = serde_json::from_slice(&line).ok()?;
            let entries = transcript::entries(&line);
            entries.into_iter().find(|it| it.shown.role == Role::User).map(|it| it.shown.text)
        });
        Some(Self { cwd: text("cwd").map(PathBuf::from), created: text("timestamp"), prompt })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use takopi_core::catalog::SessionStore as _;

    use super::*;

    const ID: &str = "01a1e443-1aa9-70f6-9a71-8421d061dced";

    fn store(dir: &Path, lines: &[Value]) -> SessionFiles<Transcripts> {
        let folder = dir.join("--srv--");
        fs::create_dir_all(&folder).unwrap();
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        fs::write(folder.join(format!("2026-11-16T12-09-25-418Z_{ID}.jsonl")), lines.join("\n"))
            .unwrap();
        SessionFiles::new(dir, Transcripts { depth: 1 })
    }

    fn message(id: &str, parent: &str, message: &Value) -> Value {
        json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "t", "message": message })
    }

    fn lines() -> Vec<Value> {
        let call = json!({ "type": "toolCall", "id": "c", "name": "bash", "arguments": { "command": "ls" } });
        vec![
            json!({ "type": "session", "version": 3, "id": ID, "timestamp": "t0", "cwd": "/srv" }),
            message("1", "0", &json!({ "role": "system", "content": "" })),
            message(
                "2",
                "1",
                &json!({ "role": "user", "content": [{ "type": "text", "text": "go" }] }),
            ),
            message(
                "3",
                "2",
                &json!({ "role": "assistant", "content": [{ "type": "text", "text": "looking" }, call] }),
            ),
            message(
                "4",
                "3",
                &json!({ "role": "toolResult", "toolCallId": "c", "toolName": "bash", "isError": true,
                "content": [{ "type": "text", "text": "x\n\nCommand exited with code 3" }] }),
            ),
            message(
                "5",
                "2",
                &json!({ "role": "assistant", "content": [{ "type": "text", "text": "other branch" }] }),
            ),
            message(
                "6",
                "4",
                &json!({ "role": "assistant", "content": [{ "type": "text", "text": "done" }] }),
            ),
        ]
    }

    #[test]
    fn sessions_are_listed_with_directory_and_first_prompt() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), &lines());
        let listed: Vec<StoredSession> = store.list(None).collect();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].token.value, ID);
        assert_eq!(listed[0].cwd.as_deref(), Some(Path::new("/srv")));
        assert_eq!(listed[0].first_prompt.as_deref(), Some("go"));
        assert_eq!(store.find("01a1").unwrap().token.value, ID);
    }

    #[test]
    fn a_transcript_is_the_newest_branch_with_commands_and_their_exit_codes() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), &lines());
        let entries = store.transcript(&resume_codec().token(ID).unwrap()).unwrap();
        let shown: Vec<(Role, &str, Option<i64>)> =
            entries.iter().map(|it| (it.role, it.text.as_str(), it.exit_code)).collect();
        assert_eq!(
            shown,
            [
                (Role::User, "go", None),
                (Role::Agent, "looking", None),
                (Role::Command, "ls", Some(3)),
                (Role::Agent, "done", None),
            ]
        );
        assert_eq!(entries[2].output_tail.as_deref(), Some("x"));
    }

    #[test]
    fn a_session_is_found_by_its_whole_id_only_and_never_a_file_of_another() {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), &lines());
        let directory = Directory { path: dir.path().to_owned(), is_nested: true };
        let file = directory.file(ID).unwrap();
        assert_eq!(file.cwd.as_deref(), Some(Path::new("/srv")));
        let missing = directory.file("01a1e443-1aa9-70f6-9a71-8421d061dcee").unwrap_err();
        assert_eq!(missing.reason, Reason::SessionNotFound);
        fs::write(&file.path, r#"{"type":"session","id":"another"}"#).unwrap();
        assert_eq!(directory.file(ID).unwrap_err().reason, Reason::SessionNotFound);
    }

    #[test]
    fn the_place_of_sessions_follows_variables_and_settings() {
        let dir = tempfile::tempdir().unwrap();
        let place = |session_dir: Option<&str>| {
            let variable = |name: &str| match name {
                "PI_CODING_AGENT_DIR" => Some(dir.path().into()),
                "PI_CODING_AGENT_SESSION_DIR" => session_dir.map(OsString::from),
                _ => None,
            };
            Directory::of(&variable, Path::new("/srv")).unwrap()
        };
        let nested = Directory { path: dir.path().join("sessions"), is_nested: true };
        assert_eq!(place(None), nested);
        let flat = |path: &str| Directory { path: path.into(), is_nested: false };
        assert_eq!(place(Some("/s")), flat("/s"));
        fs::write(dir.path().join("settings.json"), r#"{"sessionDir":"here"}"#).unwrap();
        assert_eq!(place(None), flat("/srv/here"));
        assert_eq!(Directory::of(&|_| None, Path::new("/")), None);
    }
}
