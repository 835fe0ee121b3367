//! The projects of a configuration: `[projects.NAME]` with a path and settings.
//!
//! Everything is checked when it is read: a name that no message could hold, a path that is not absolute, a
//! key that does not exist. Whether the path exists is checked when it is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use takopi_core::{EngineId, RunSettings};
use thiserror::Error;

/// Where worktrees are created unless the project says otherwise, relative to the project.
pub const WORKTREES: &str = ".worktrees";

/// The commands of takopi's chats. A project of such a name could not be named there.
pub const RESERVED: [&str; 14] = [
    "agent", "cancel", "ctx", "effort", "file", "help", "model", "new", "projects", "queue",
    "quit", "sessions", "start", "switch",
];

/// The longest name of a project.
const LONGEST_NAME: usize = 32;

const KEYS: [&str; 8] =
    ["path", "engine", "model", "effort", "sandbox", "worktrees", "base", "chats"];

/// A part of the configuration that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("project `{project}`: {message}")]
pub struct ConfigError {
    /// The project.
    pub project: String,
    /// What is wrong with it.
    pub message: String,
}

/// A directory with a name, and how agents run there.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Project {
    /// Its name, in lower case.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// The engine for new sessions.
    pub engine: Option<String>,
    /// Model, effort and sandbox.
    pub settings: RunSettings,
    /// Where its worktrees are created.
    pub worktrees: PathBuf,
    /// The branch that new branches start from.
    pub base: Option<String>,
    /// The chats (`-100123`) and topics (`-100123:7`) that belong to it.
    pub chats: Vec<String>,
}

impl Project {
    /// A project with nothing set but its directory. The name is not checked.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            engine: None,
            settings: RunSettings::new(),
            worktrees: WORKTREES.into(),
            base: None,
            chats: Vec::new(),
        }
    }

    /// Sets the branch that new branches start from.
    pub fn base(mut self, base: impl Into<String>) -> Self {
        self.base = Some(base.into());
        self
    }

    /// Sets where worktrees are created; relative to the project.
    pub fn worktrees(mut self, directory: impl Into<PathBuf>) -> Self {
        self.worktrees = directory.into();
        self
    }

    /// Its settings for a run on this engine. Model, effort and sandbox are meant for the project's engine:
    /// another one does not get them.
    pub fn settings_for(&self, engine: &EngineId, default: &EngineId) -> RunSettings {
        let own = self.engine.as_deref().unwrap_or(default.as_str());
        if own == engine.as_str() { self.settings.clone() } else { RunSettings::new() }
    }

    fn read(name: &str, table: &Map<String, Value>) -> Result<Self, String> {
        check_name(name)?;
        if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("unknown key `{unknown}`; known keys: {}", KEYS.join(", ")));
        }
        let text = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{key}`: expected a text")),
        };
        let path = text("path")?.ok_or("`path` is missing: the directory of the project")?;
        let mut project = Self::new(name.to_lowercase(), home(&path));
        if !project.path.is_absolute() {
            return Err(format!("`path` must be absolute or begin with ~/, not {path}"));
        }
        project.engine = text("engine")?;
        project.base = text("base")?;
        if let Some(directory) = text("worktrees")? {
            project.worktrees = home(&directory);
        }
        for key in ["model", "effort", "sandbox"] {
            if let Some(value) = table.get(key) {
                project.settings.set(key, value).map_err(|error| error.to_string())?;
            }
        }
        project.chats = table.get("chats").map_or(Ok(Vec::new()), chats)?;
        Ok(project)
    }
}

fn chats(value: &Value) -> Result<Vec<String>, String> {
    let expected = || "`chats`: expected ids such as -100123 or \"-100123:7\"".to_owned();
    let id = |value: &Value| match value {
        Value::Number(number) => Ok(number.to_string()),
        Value::String(text) => Ok(text.trim().to_owned()),
        _ => Err(expected()),
    };
    let ids: Vec<String> =
        value.as_array().ok_or_else(expected)?.iter().map(id).collect::<Result<_, _>>()?;
    let is_number = |text: &str| text.parse::<i64>().is_ok();
    let is_id = |id: &String| match id.split_once(':') {
        Some((chat, topic)) => is_number(chat) && is_number(topic),
        None => is_number(id),
    };
    if ids.iter().all(is_id) { Ok(ids) } else { Err(expected()) }
}

/// Checks that messages can hold the name: `web`, `my_app`, `api-2`.
pub fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if first && name.len() <= LONGEST_NAME && name.chars().all(allowed) {
        return Ok(());
    }
    Err(format!(
        "a name has at most {LONGEST_NAME} letters, digits, - and _, and begins with a letter or digit"
    ))
}

/// The path, with `~/` replaced by the home directory, and without a slash at its end: agents store it with their
/// sessions, and compare it as a text.
fn home(path: &str) -> PathBuf {
    let path = match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    path.components().collect()
}

/// All projects of a configuration, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Projects {
    projects: BTreeMap<String, Project>,
}

impl Projects {
    /// Reads the table `projects` of a configuration.
    pub fn read(table: &Map<String, Value>) -> Result<Self, ConfigError> {
        let mut projects = Self::default();
        for (name, value) in table {
            let wrong = |message: String| ConfigError { project: name.clone(), message };
            let Value::Object(settings) = value else {
                return Err(wrong("expected a table with `path`".to_owned()));
            };
            let project = Project::read(name, settings).map_err(wrong)?;
            for other in projects.iter() {
                if let Some(chat) = project.chats.iter().find(|chat| other.chats.contains(chat)) {
                    let other = &other.name;
                    return Err(wrong(format!("chat {chat} belongs to project `{other}` already")));
                }
            }
            if projects.add(project).is_some() {
                return Err(wrong(
                    "the name is used twice, apart from upper and lower case".into(),
                ));
            }
        }
        Ok(projects)
    }

    /// Adds a project, and returns the one that it replaces.
    pub fn add(&mut self, project: Project) -> Option<Project> {
        self.projects.insert(project.name.clone(), project)
    }

    /// The project of this name, in upper or lower case.
    pub fn get(&self, name: &str) -> Option<&Project> {
        self.projects.get(&name.to_lowercase())
    }

    /// All projects, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Project> {
        self.projects.values()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.projects.is_empty()
    }

    /// The project that a topic or its chat belongs to; the topic counts first.
    pub fn of_chat(&self, chat: &str, thread: Option<&str>) -> Option<&Project> {
        let topic = thread.map(|thread| format!("{chat}:{thread}"));
        let bound = |id: &str| self.iter().find(|project| project.chats.iter().any(|it| it == id));
        topic.and_then(|topic| bound(&topic)).or_else(|| bound(chat))
    }

    /// The project whose directory this is.
    pub fn at(&self, path: &Path) -> Option<&Project> {
        self.iter().find(|project| project.path == path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(table: &Value) -> Result<Projects, String> {
        Projects::read(table.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_is_read() {
        let table = json!({ "Web": {
            "path": "/srv/web", "engine": "claude", "model": "opus", "effort": "high",
            "sandbox": "read-only", "worktrees": "/srv/trees", "base": "dev", "chats": [-100, "-100:7"],
        }});
        let projects = read(&table).unwrap();
        let web = projects.get("WEB").unwrap();
        assert_eq!(web.name, "web");
        assert_eq!(web.worktrees, Path::new("/srv/trees"));
        assert_eq!(web.base.as_deref(), Some("dev"));
        assert_eq!(
            web.settings,
            RunSettings::new().model("opus").effort("high").sandbox("read-only")
        );
        let (claude, codex) = (EngineId::from_static("claude"), EngineId::from_static("codex"));
        assert_eq!(web.settings_for(&claude, &codex).model.as_deref(), Some("opus"));
        assert_eq!(web.settings_for(&codex, &codex), RunSettings::new(), "not its engine");
    }

    #[test]
    fn a_slash_at_the_end_of_a_path_is_dropped() {
        let projects = read(&json!({ "web": { "path": "/srv/./web//" } })).unwrap();
        assert_eq!(projects.get("web").unwrap().path.as_os_str(), "/srv/web");
    }

    #[test]
    fn a_topic_counts_before_its_chat() {
        let table = json!({
            "a": { "path": "/a", "chats": [-100] },
            "b": { "path": "/b", "chats": ["-100:7"] },
        });
        let projects = read(&table).unwrap();
        let name = |chat, topic| projects.of_chat(chat, topic).map(|project| project.name.as_str());
        assert_eq!(name("-100", Some("7")), Some("b"));
        assert_eq!(name("-100", Some("8")), Some("a"));
        assert_eq!(name("-100", None), Some("a"));
        assert_eq!(name("100", None), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |table: Value| read(&table).unwrap_err();
        assert_eq!(
            error(json!({ "web": {} })),
            "project `web`: `path` is missing: the directory of the project"
        );
        assert!(error(json!({ "web": { "path": "web" } })).contains("must be absolute"));
        assert!(error(json!({ "web": { "path": "/w", "pth": 1 } })).contains("unknown key `pth`"));
        assert!(error(json!({ "a b": { "path": "/w" } })).contains("a name has at most"));
        assert!(error(json!({ "-a": { "path": "/w" } })).contains("begins with a letter"));
        assert!(error(json!({ "web": "/w" })).contains("expected a table"));
        assert!(
            error(json!({ "web": { "path": "/w", "chats": ["general"] } })).contains("-100123")
        );
        let twice =
            json!({ "a": { "path": "/a", "chats": [5] }, "b": { "path": "/b", "chats": [5] } });
        assert!(error(twice).contains("belongs to project `a` already"));
        assert!(
            error(json!({ "a": { "path": "/a" }, "A": { "path": "/b" } })).contains("used twice")
        );
    }
}
