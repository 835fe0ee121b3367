//! Claude Code's stored sessions: `projects/DIRECTORY/SESSION.jsonl` under its configuration directory.
//!
//! Files are read lazily, most recently written first. For a list only the lines up to the first prompt are
//! read, and the end of the file, where Claude Code repeats the title. A file that cannot be read, or that
//! has no message, is left out. The files of sub-agents have other names, or are in folders of their own,
//! and are left out too.

mod portable;
mod transcript;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;
use takopi_core::EngineId;
use takopi_core::catalog::{
    Role, SessionError, SessionFiles, SessionFormat, StoredSession, TranscriptEntry,
};

use crate::{CLAUDE, resume_codec};

/// How many lines of a file are read to find its first prompt.
const HEAD_LINES: usize = 200;
/// How much of a file is read to find its first prompt. A prompt with images is one long line.
const HEAD_BYTES: u64 = 32 << 20;
/// How much of the end of a file is read to find the session's title.
const TAIL_BYTES: u64 = 64 << 10;
/// How much of a first prompt is kept, in characters.
const PROMPT_CHARS: usize = 1000;

/// How Claude Code writes its sessions.
#[derive(Debug)]
pub(crate) struct Transcripts;

/// `CLAUDE_CONFIG_DIR`, else `~/.claude`.
pub(crate) fn config_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CLAUDE_CONFIG_DIR").or_else(|| set("HOME").map(|home| home.join(".claude")))
}

/// The user's sessions; there may be none.
pub(crate) fn open() -> Result<SessionFiles<Transcripts>, SessionError> {
    let directory = config_directory().ok_or_else(|| {
        SessionError::NoStore("neither CLAUDE_CONFIG_DIR nor HOME is set".to_owned())
    })?;
    Ok(at(&directory))
}

fn at(config: &Path) -> SessionFiles<Transcripts> {
    SessionFiles::new(config.join("projects"), Transcripts)
}

impl SessionFormat for Transcripts {
    fn engine(&self) -> EngineId {
        CLAUDE
    }

    fn depth(&self) -> usize {
        1
    }

    /// `agent-….jsonl` is a sub-agent's.
    fn id_of<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let id = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        resume_codec().token(id).filter(|token| token.value == id).map(|_| id)
    }

    fn summary(
        &self,
        path: &Path,
        updated: Timestamp,
        wanted: &dyn Fn(Option<&Path>) -> bool,
    ) -> Option<StoredSession> {
        let mut file = File::open(path).ok()?;
        let head = Head::read(&file)?;
        if !wanted(head.cwd.as_deref()) {
            return None;
        }
        let token = resume_codec().token(self.id_of(path)?)?;
        let mut session = StoredSession::new(token, updated);
        session.name = title(&mut file);
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
    /// Reads up to the first prompt; `None` if there is no message.
    fn read(file: &File) -> Option<Self> {
        let mut head = None;
        let lines = BufReader::new(file.take(HEAD_BYTES)).split(b'\n');
        for line in lines.map_while(Result::ok).take(HEAD_LINES) {
            let Ok(line) = serde_json::from_slice::<Value>(&line) else { continue };
            let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
            // Every message has the directory; the first one has the one where the session began.
            if text("uuid").is_none() {
                continue;
            }
            let head = head.get_or_insert_with(|| Self {
                cwd: text("cwd").map(PathBuf::from),
                created: text("timestamp"),
                prompt: None,
            });
            let entries = transcript::entries(&line);
            head.prompt =
                entries.into_iter().find(|it| it.shown.role == Role::User).map(|it| it.shown.text);
            if head.prompt.is_some() {
                break;
            }
        }
        head
    }
}

/// The title at the end of a file: what a user called the session, else what Claude Code did.
fn title(file: &mut File) -> Option<String> {
    let start = file.metadata().ok()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let (mut generated, mut summary) = (None, None);
    for line in tail.lines().rev() {
        // Most lines are long messages, and not parsed.
        let is_title = ["-title\"", "\"summary\""].iter().any(|it| line.contains(it));
        if !is_title || line.len() > 10_000 {
            continue;
        }
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| {
            let text = line.get(key).and_then(Value::as_str).map(str::trim);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        match line.get("type").and_then(Value::as_str) {
            Some("custom-title") => return text("customTitle"),
            Some("ai-title") if generated.is_none() => generated = text("aiTitle"),
            // Older releases write summaries of other sessions into a file too.
            Some("summary") if summary.is_none() => {
                let is_here = |leaf: String| tail.contains(&format!("\"uuid\":\"{leaf}\""));
                summary =
                    text("leafUuid").filter(|leaf| is_here(leaf.clone())).and(text("summary"));
            }
            _ => {}
        }
    }
    generated.or(summary)
}

#[cfg(test)]
mod tests;
