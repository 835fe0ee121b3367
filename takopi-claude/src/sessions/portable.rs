//! Claude Code's sessions as files that other machines can resume.
//!
//! A session is `SESSION.jsonl` in the folder of the directory that it runs in, and what is in the folder `SESSION` beside it (its
//! sub-agents). The folder's name is made of the directory's path, which may be another one on each machine, so it is not a part
//! of the files' names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use takopi_core::Host;
use takopi_core::catalog::{PortableFile, PortableSessions};
use takopi_core::process::find_program;
use takopi_core::version::{Version, version_of};

use super::config_directory;
use crate::{Claude, resume_codec};

/// How deep files of a session may be.
const DEPTH: usize = 4;
/// A folder with a longer name is shortened by Claude Code in its own way: its sessions are not found here.
const LONGEST_FOLDER: usize = 200;

struct Transcripts {
    config: PathBuf,
    claude: Claude,
}

impl Claude {
    /// Its sessions, as files that can be copied to other machines. `None` if it has no configuration directory.
    pub fn portable_sessions(&self) -> Option<Arc<dyn PortableSessions>> {
        let config = self.config_dir.clone().or_else(config_directory)?;
        Some(Arc::new(Transcripts { config, claude: self.clone() }))
    }
}

impl Transcripts {
    /// The folder of a directory: what is neither letter nor digit becomes a dash.
    fn folder(&self, cwd: &Path) -> Option<PathBuf> {
        let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
        let dashed = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let name: String = cwd.to_str()?.chars().map(dashed).collect();
        (name.len() <= LONGEST_FOLDER).then(|| self.config.join("projects").join(name))
    }
}

impl PortableSessions for Transcripts {
    fn files(&self, session: &str, cwd: &Path) -> io::Result<Vec<PortableFile>> {
        let Some(folder) = self.folder(cwd) else { return Ok(Vec::new()) };
        let main = format!("{session}.jsonl");
        let path = folder.join(&main);
        if !path.is_file() {
            return Ok(Vec::new());
        }
        let mut files = vec![PortableFile { name: main, path }];
        let mut folders = vec![(session.to_owned(), folder.join(session))];
        while let Some((name, folder)) = folders.pop() {
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let Ok(below) = entry.file_name().into_string() else { continue };
                let (name, kind) = (format!("{name}/{below}"), entry.file_type()?);
                if !is_name(&name) {
                    continue;
                }
                if kind.is_dir() {
                    folders.push((name, entry.path()));
                } else if kind.is_file() {
                    files.push(PortableFile { name, path: entry.path() });
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn path(&self, name: &str, cwd: &Path) -> Option<PathBuf> {
        if is_name(name) { Some(self.folder(cwd)?.join(name)) } else { None }
    }

    fn version(&self) -> BoxFuture<'_, Option<Version>> {
        Box::pin(async {
            let program = find_program(&self.claude.binary, None)?;
            let host = Host::global().ok()?;
            version_of(&host, &program, &self.claude.env_policy, &[]).await
        })
    }
}

/// Whether a session has files of this name: `SESSION.jsonl`, or something in the folder `SESSION`.
fn is_name(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let plain = |part: &&str| {
        part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && !part.starts_with('.')
            && !part.is_empty()
    };
    let id = match parts[..] {
        [file] => file.strip_suffix(".jsonl"),
        [folder, ..] => Some(folder),
        [] => None,
    };
    parts.len() <= DEPTH
        && parts.iter().all(plain)
        && id.is_some_and(|id| resume_codec().token(id).is_some_and(|token| token.value == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";

    #[test]
    fn a_session_goes_with_its_sub_agents_to_the_folder_of_its_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Claude::new().config_dir(dir.path()).portable_sessions().unwrap();
        let (here, there) = (Path::new("/srv/a.b/c"), Path::new("/home/d e"));
        let folder = dir.path().join("projects/-srv-a-b-c");
        std::fs::create_dir_all(folder.join(ID).join("subagents")).unwrap();
        for name in [format!("{ID}.jsonl"), format!("{ID}/subagents/agent-1.jsonl")] {
            std::fs::write(folder.join(name), "x").unwrap();
        }
        std::fs::write(folder.join("01a1e21b-0000-4eb0-9d27-459e98f10b74.jsonl"), "x").unwrap();
        let files = sessions.files(ID, here).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, [format!("{ID}.jsonl"), format!("{ID}/subagents/agent-1.jsonl")]);
        for file in &files {
            assert_eq!(sessions.path(&file.name, here).as_ref(), Some(&file.path));
            let moved = dir.path().join("projects/-home-d-e").join(&file.name);
            assert_eq!(sessions.path(&file.name, there), Some(moved));
        }
        assert_eq!(sessions.files(ID, there).unwrap(), []);
    }

    #[test]
    fn a_name_leads_to_a_file_of_a_session_or_nowhere() {
        for name in [
            "settings.json",
            "../settings.json",
            &format!("{ID}/../../settings.json"),
            &format!("/{ID}.jsonl"),
            &format!("{ID}/.hidden"),
            &format!("{ID}//x"),
            &format!("{ID}.json"),
            &format!("{ID}/a/b/c/d"),
            "",
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
