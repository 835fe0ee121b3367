//! What an engine inherits, and where its program is.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// Secrets of chat bots that an agent has no business with. A trailing `*` matches any ending.
const DENIED: &[&str] = &[
    "TELEGRAM_BOT_TOKEN",
    "TELEGRAM_TOKEN",
    "SLACK_*",
    "DISCORD_*",
    "MATRIX_ACCESS_TOKEN",
    "MATTERMOST_TOKEN",
    "SIGNAL_CLI_*",
    "TWILIO_*",
    "WHATSAPP_*",
    "LINE_CHANNEL_*",
    "TEAMS_BOT_*",
];

/// The variables with takopi's own secrets: programs that run code of a repository, such as git with its hooks, get none of them.
pub const SECRET_VARIABLES: [&str; 5] =
    ["TAKOPI_TOKEN", "TAKOPI_TELEGRAM_TOKEN", "TAKOPI_FLEET", "PGPASSWORD", "PGPASSFILE"];

/// Which variables an engine inherits: all but those on the deny list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvPolicy {
    denied: Vec<String>,
}

impl Default for EnvPolicy {
    fn default() -> Self {
        Self { denied: DENIED.iter().map(|&name| name.to_owned()).collect() }
    }
}

impl EnvPolicy {
    /// Keeps one more variable from engines; a trailing `*` matches any ending.
    pub fn deny(mut self, name: impl Into<String>) -> Self {
        self.denied.push(name.into());
        self
    }

    /// Whether an engine may see the variable.
    ///
    /// ```
    /// use takopi_core::process::EnvPolicy;
    /// let policy = EnvPolicy::default().deny("MY_BOT_*");
    /// assert!(policy.allows("HOME".as_ref()));
    /// assert!(!policy.allows("SLACK_APP_TOKEN".as_ref()));
    /// assert!(!policy.allows("MY_BOT_KEY".as_ref()));
    /// ```
    pub fn allows(&self, name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        !self.denied.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix.as_bytes()),
            None => name == pattern.as_bytes(),
        })
    }
}

/// Finds a program the way a shell does: a name on `path` (a `PATH` value), or a path as it stands.
///
/// An executable file is preferred; a file that cannot be executed is returned too, so that the
/// caller can report what is wrong with it.
pub fn find_program(program: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.components().count() > 1 || program.is_absolute() {
        let absolute = std::path::absolute(program).ok()?;
        return absolute.is_file().then_some(absolute);
    }
    let inherited: Option<OsString> = std::env::var_os("PATH");
    let path = path.or(inherited.as_deref())?;
    let candidates: Vec<PathBuf> = std::env::split_paths(path)
        // Absolute, because the engine may be started in another directory than this one.
        .filter_map(|directory| std::path::absolute(directory.join(program)).ok())
        .filter(|candidate| candidate.is_file())
        .collect();
    candidates.iter().find(|candidate| is_executable(candidate)).or(candidates.first()).cloned()
}

/// Whether this user may execute the file.
pub(super) fn is_executable(file: &Path) -> bool {
    access(file, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_on_the_path_and_a_path_is_taken_as_it_stands() {
        let directory = tempfile::tempdir().unwrap();
        let tool = directory.path().join("tool");
        std::fs::write(&tool, "").unwrap();
        let find = |program: &Path, path: &Path| find_program(program, Some(path.as_os_str()));
        let nowhere = Path::new("/nowhere");
        assert_eq!(find(Path::new("tool"), directory.path()), Some(tool.clone()));
        assert_eq!(find(Path::new("tool"), nowhere), None);
        assert_eq!(find(&tool, nowhere), Some(tool));
        // The tests run in the directory of the crate.
        let here = std::env::current_dir().unwrap();
        for path in ["src/lib.rs", "./Cargo.toml"] {
            let found = find(Path::new(path), nowhere).unwrap();
            assert_eq!(found, std::path::absolute(here.join(path)).unwrap());
        }
        assert_eq!(find(Path::new("Cargo.toml"), nowhere), None, "a name is no path");
    }
}
