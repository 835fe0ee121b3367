//! Claude Code's stored sessions: `projects/DIRECTORY/SESSION.jsonl` under its configuration directory.
//!
//! Files are read lazily, most recently written first. For a list only the lines up to the first prompt are
//! read, and the end of the file, where Claude Code repeats the title. A file that cannot be read, or that
//! has no message, is left out. The files of sub-agents have other names, or are in folders of their own,
//! and are left out too.

mod transcript;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::Value;
use takopi_core::ResumeToken;
use takopi_core::catalog::{Role, SessionError, SessionStore, StoredSession, TranscriptEntry};

use crate::{CLAUDE, resume_codec};

/// How many lines of a file are read to find its first prompt.
const HEAD_LINES: usize = 200;
/// How much of a file is read to find its first prompt. A prompt with images is one long line.
const HEAD_BYTES: u64 = 32 << 20;
/// How much of the end of a file is read to find the session's title.
const TAIL_BYTES: u64 = 64 << 10;
/// How much of a first prompt is kept, in characters.
const PROMPT_CHARS: usize = 1000;

/// The session files of a configuration directory.
#[derive(Debug)]
pub(crate) struct Sessions {
    directory: PathBuf,
}

/// `CLAUDE_CONFIG_DIR`, else `~/.claude`.
pub(crate) fn config_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CLAUDE_CONFIG_DIR").or_else(|| set("HOME").map(|home| home.join(".claude")))
}

impl Sessions {
    /// The user's sessions; there may be none.
    pub(crate) fn open() -> Result<Self, SessionError> {
        let directory = config_directory().ok_or_else(|| {
            SessionError::NoStore("neither CLAUDE_CONFIG_DIR nor HOME is set".to_owned())
        })?;
        Ok(Self::at(&directory))
    }

    fn at(config: &Path) -> Self {
        Self { directory: config.join("projects") }
    }

    /// The file of the one session whose id begins with this prefix. Of two files of one session, which a
    /// moved directory can leave, the newer one counts.
    fn file(&self, prefix: &str) -> Result<(SystemTime, PathBuf), SessionError> {
        let prefix = prefix.trim().to_ascii_lowercase();
        let mut found = self.files();
        found.retain(|(_, path)| {
            !prefix.is_empty() && id_of(path).is_some_and(|id| id.starts_with(&prefix))
        });
        let mut ids: Vec<&str> = found.iter().filter_map(|(_, path)| id_of(path)).collect();
        ids.sort_unstable();
        ids.dedup();
        match ids.len() {
            0 => Err(SessionError::NotFound(prefix)),
            1 => Ok(found.swap_remove(0)),
            count => Err(SessionError::Ambiguous { prefix, count }),
        }
    }

    /// The files, most recently written first.
    fn files(&self) -> Vec<(SystemTime, PathBuf)> {
        let mut files = Vec::new();
        for path in entries(&self.directory).iter().flat_map(|project| entries(project)) {
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
}

/// Reads what a list shows of a session that is wanted in this directory.
fn read(
    path: &Path,
    updated: SystemTime,
    wanted: impl Fn(Option<&Path>) -> bool,
) -> Option<StoredSession> {
    let mut file = File::open(path).ok()?;
    let head = Head::read(&file)?;
    if !wanted(head.cwd.as_deref()) {
        return None;
    }
    let token = resume_codec().token(id_of(path)?)?;
    let updated = Timestamp::try_from(updated).unwrap_or(Timestamp::UNIX_EPOCH);
    let mut session = StoredSession::new(token, updated);
    session.name = title(&mut file);
    session.created = head.created;
    session.cwd = head.cwd;
    session.first_prompt = head.prompt.map(|text| text.chars().take(PROMPT_CHARS).collect());
    Some(session)
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

impl SessionStore for Sessions {
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
            read(&path, updated, wanted)
        }))
    }

    fn find(&self, prefix: &str) -> Result<StoredSession, SessionError> {
        let (updated, path) = self.file(prefix)?;
        read(&path, updated, |_| true).ok_or_else(|| {
            let source = std::io::Error::other("it is not a session file of Claude Code");
            SessionError::Unreadable { path, source }
        })
    }

    fn transcript(&self, session: &ResumeToken) -> Result<Vec<TranscriptEntry>, SessionError> {
        if session.engine != CLAUDE {
            return Err(SessionError::NotFound(session.value.clone()));
        }
        let (_, path) = self.file(&session.value)?;
        transcript::read(&path).map_err(|source| SessionError::Unreadable { path, source })
    }
}

/// The id that a file is named after. `agent-….jsonl` is a sub-agent's.
fn id_of(path: &Path) -> Option<&str> {
    let id = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    resume_codec().token(id).filter(|token| token.value == id).map(|_| id)
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
mod tests;
