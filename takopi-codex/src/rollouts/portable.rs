//! Codex's sessions as files that other machines can resume.
//!
//! A session is more than one file: `thread/revert` begins another file of the same thread, a fork holds only what follows the
//! point in its parent (`history_base`) where it began, and a sub-agent is a thread of its own that names its parent. All of them
//! have to be there. What codex keeps in its databases is derived from the files.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::Value;
use takopi_core::Host;
use takopi_core::catalog::{PortableFile, PortableSessions};
use takopi_core::version::Version;

use super::{codex_home, thread_of};
use crate::Codex;

/// How much of a file is read to find its first line, which has the whole instructions of the model.
const FIRST_LINE: u64 = 4 << 20;

/// The sessions of one `CODEX_HOME`.
struct Rollouts {
    home: PathBuf,
    codex: Codex,
    /// What first lines say; they never change.
    heads: Mutex<HashMap<PathBuf, Arc<Head>>>,
}

/// Which threads a file refers to.
#[derive(Debug, Default)]
struct Head {
    /// The thread whose history it continues.
    base: Option<String>,
    /// The thread whose sub-agent it is.
    parent: Option<String>,
}

impl Codex {
    /// The sessions of this codex, as files that can be copied to other machines. `None` if it has no home.
    pub fn portable_sessions(&self) -> Option<Arc<dyn PortableSessions>> {
        let home = self.home_directory().map(Path::to_owned).or_else(codex_home)?;
        Some(Arc::new(Rollouts { home, codex: self.clone(), heads: Mutex::default() }))
    }
}

impl Rollouts {
    /// All files by name, with their threads.
    fn all(&self) -> Vec<(PortableFile, String)> {
        let mut level = vec![("sessions".to_owned(), self.home.join("sessions"))];
        // Year, month, day, file.
        for _ in 0..4 {
            level = level.iter().flat_map(|(name, path)| entries(name, path)).collect();
        }
        level.sort_unstable();
        let files = level.into_iter().filter_map(|(name, path)| {
            let thread = thread_of(&path)?.to_owned();
            Some((PortableFile { name, path }, thread))
        });
        files.collect()
    }

    fn head(&self, path: &Path) -> io::Result<Arc<Head>> {
        let known = |heads: &HashMap<_, Arc<Head>>| heads.get(path).cloned();
        if let Some(head) = known(&self.heads.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(head);
        }
        let mut line = Vec::new();
        BufReader::new(File::open(path)?.take(FIRST_LINE)).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            // Its first line is still being written: looked at again next time.
            return Ok(Arc::default());
        }
        let first: Value = serde_json::from_slice(&line).unwrap_or_default();
        let meta = first.get("payload").unwrap_or(&Value::Null);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let head = Arc::new(Head {
            base: text(meta.pointer("/history_base/thread_id")),
            parent: text(meta.get("parent_thread_id"))
                .or_else(|| text(meta.pointer("/source/subagent/thread_spawn/parent_thread_id"))),
        });
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        heads.insert(path.to_owned(), head.clone());
        Ok(head)
    }
}

impl PortableSessions for Rollouts {
    fn files(&self, session: &str, _cwd: &Path) -> io::Result<Vec<PortableFile>> {
        let all = self.all();
        let mut threads = BTreeSet::from([session.to_owned()]);
        // Sub-agents, and theirs. Ids grow with time: what is older than the session cannot be one.
        for (file, thread) in all.iter().filter(|(_, thread)| thread.as_str() > session) {
            if self.head(&file.path)?.parent.as_ref().is_some_and(|it| threads.contains(it)) {
                threads.insert(thread.clone());
            }
        }
        // What they continue, from the newest to the oldest.
        let mut bases: Vec<String> = threads.iter().cloned().collect();
        while let Some(thread) = bases.pop() {
            for (file, _) in all.iter().filter(|(_, of)| *of == thread) {
                let base = self.head(&file.path)?.base.clone();
                bases.extend(base.filter(|base| threads.insert(base.clone())));
            }
        }
        let files = all.into_iter().filter(|(_, thread)| threads.contains(thread));
        Ok(files.map(|(file, _)| file).collect())
    }

    fn path(&self, name: &str, _cwd: &Path) -> Option<PathBuf> {
        let parts: Vec<&str> = name.split('/').collect();
        let ["sessions", year, month, day, file] = parts[..] else { return None };
        let digits = |text: &str, count| {
            text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let plain = file.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let dated = digits(year, 4) && digits(month, 2) && digits(day, 2);
        (dated && plain && thread_of(Path::new(file)).is_some()).then(|| self.home.join(name))
    }

    fn version(&self) -> BoxFuture<'_, Option<Version>> {
        Box::pin(async {
            let host = Host::global().ok()?;
            self.codex.version(&host, &[]).await.map(|(_, version)| version)
        })
    }
}

fn entries(name: &str, path: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let named = |entry: std::fs::DirEntry| {
        let below = entry.file_name().into_string().ok()?;
        Some((format!("{name}/{below}"), entry.path()))
    };
    entries.filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PARENT: &str = "01a1e972-9e8f-70b0-b399-2a2adca082a9";
    const FORK: &str = "01a1e972-a29d-7e50-8a91-7073e3fdf4fb";
    const AGENT: &str = "01a1e973-0000-7e50-8a91-7073e3fdf4fb";
    const INNER: &str = "01a1e974-0000-7e50-8a91-7073e3fdf4fb";
    const OTHER: &str = "01a1e975-0000-7e50-8a91-7073e3fdf4fb";
    const REVERTED: &str = "01a1e976-0000-7cf0-a3de-55bdbd73eb77";

    fn write(home: &Path, name: &str, meta: &Value) {
        let day = home.join("sessions/2026/11/17");
        std::fs::create_dir_all(&day).unwrap();
        let line = json!({ "type": "session_meta", "payload": meta });
        std::fs::write(
            day.join(format!("rollout-2026-11-17T12-19-25-{name}.jsonl")),
            format!("{line}\n"),
        )
        .unwrap();
    }

    fn home() -> (tempfile::TempDir, Arc<dyn PortableSessions>) {
        let home = tempfile::tempdir().unwrap();
        let base = |thread: &str| json!({ "thread_id": thread, "end_byte_offset": 1 });
        let spawned = |thread: &str| json!({ "subagent": { "thread_spawn": { "parent_thread_id": thread, "depth": 1 } } });
        write(home.path(), PARENT, &json!({ "id": PARENT, "source": "cli" }));
        let reverted = json!({ "id": PARENT, "history_base": base(PARENT) });
        write(home.path(), &format!("{PARENT}_{REVERTED}"), &reverted);
        write(home.path(), FORK, &json!({ "id": FORK, "history_base": base(PARENT) }));
        write(home.path(), AGENT, &json!({ "id": AGENT, "source": spawned(FORK) }));
        write(home.path(), INNER, &json!({ "id": INNER, "parent_thread_id": AGENT }));
        write(home.path(), OTHER, &json!({ "id": OTHER }));
        let codex = Codex::new().home(home.path());
        (home, codex.portable_sessions().unwrap())
    }

    fn names(sessions: &dyn PortableSessions, session: &str) -> Vec<String> {
        let files = sessions.files(session, Path::new("/")).unwrap();
        let short = |file: PortableFile| {
            let name = file.name.strip_prefix("sessions/2026/11/17/rollout-2026-11-17T12-19-25-");
            name.and_then(|name| name.strip_suffix(".jsonl")).unwrap().to_owned()
        };
        files.into_iter().map(short).collect()
    }

    #[test]
    fn a_session_goes_with_its_reverts_its_parents_and_its_sub_agents() {
        let (_home, sessions) = home();
        let reverted = format!("{PARENT}_{REVERTED}");
        let mut whole = vec![PARENT, reverted.as_str(), FORK, AGENT, INNER];
        whole.sort_unstable();
        let mut found = names(&*sessions, FORK);
        found.sort_unstable();
        assert_eq!(found, whole);
        let mut parent = names(&*sessions, PARENT);
        parent.sort_unstable();
        assert_eq!(parent, [PARENT.to_owned(), reverted], "forks are sessions of their own");
        assert_eq!(names(&*sessions, OTHER), [OTHER]);
        assert_eq!(names(&*sessions, REVERTED), [""; 0], "that is no session");
    }

    #[test]
    fn a_name_leads_to_a_rollout_or_nowhere() {
        let (home, sessions) = home();
        let path = |name: &str| sessions.path(name, Path::new("/"));
        for file in sessions.files(FORK, Path::new("/")).unwrap() {
            assert_eq!(path(&file.name), Some(file.path));
        }
        assert!(path(&format!("sessions/2026/11/18/rollout-x-{OTHER}.jsonl")).is_some());
        let bad = [
            "config.toml".to_owned(),
            "sessions/2026/11/17/config.toml".to_owned(),
            format!("sessions/../../17/rollout-{OTHER}.jsonl"),
            format!("sessions/2026/11/17/../rollout-{OTHER}.jsonl"),
            format!("/sessions/2026/11/17/rollout-{OTHER}.jsonl"),
            format!("sessions/2026/11/17/rollout-\0-{OTHER}.jsonl"),
            format!("sessions/2026/11/rollout-{OTHER}.jsonl"),
        ];
        for name in bad {
            assert_eq!(path(&name), None, "{name:?} in {}", home.path().display());
        }
    }
}
