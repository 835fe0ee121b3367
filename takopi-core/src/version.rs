//! Releases of an engine's program, and which one a program is.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::process::{EnvPolicy, find_program};

/// How long `--version` may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A release of a program. A pre-release counts as the release it leads to.
///
/// ```
/// use takopi_core::version::Version;
///
/// let version = Version::find("codex-cli 0.166.0").unwrap();
/// assert_eq!(version.to_string(), "0.166.0");
/// assert!(version >= Version::new(0, 125, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// A release.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// The first version that a text names, such as the output of `--version`, or a user agent.
    pub fn find(text: &str) -> Option<Self> {
        text.split(|letter: char| letter.is_whitespace() || matches!(letter, '/' | '(' | ')'))
            .find_map(Self::parse)
    }

    fn parse(word: &str) -> Option<Self> {
        let word = word.strip_prefix('v').unwrap_or(word);
        let numbers = word.split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(Self { major, minor, patch })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A program as it is now: an update gives it another time.
type Program = (PathBuf, Option<SystemTime>);
/// The version that each program reported.
type Answers = HashMap<Program, Arc<OnceCell<Option<Version>>>>;

static ANSWERS: LazyLock<Mutex<Answers>> = LazyLock::new(Mutex::default);

/// The [version](version_of) of the program that a run with these variables would start; `None` too if there is none.
pub async fn version_on_path(
    program: &Path,
    policy: &EnvPolicy,
    env: &[(OsString, OsString)],
) -> Option<Version> {
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let program = find_program(program, path.map(|(_, value)| value.as_os_str()))?;
    version_of(&program, policy, env).await
}

/// The version of a program, which its `--version` prints; `None` if it prints none, or not in time.
///
/// A program that answers is asked once in this process as long as its file stays the same, however many want to
/// know. The question is not a process of a run: it holds no session's lock, and ends with the future.
pub async fn version_of(
    program: &Path,
    policy: &EnvPolicy,
    env: &[(OsString, OsString)],
) -> Option<Version> {
    let changed = program.metadata().and_then(|metadata| metadata.modified()).ok();
    let answer = {
        let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
        answers.entry((program.to_owned(), changed)).or_default().clone()
    };
    let asked = answer.get_or_try_init(|| ask(question(program, policy, env))).await;
    asked.ok().copied().flatten()
}

fn question(program: &Path, policy: &EnvPolicy, env: &[(OsString, OsString)]) -> Command {
    let mut question = Command::new(program);
    question.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        if !policy.allows(&name) {
            question.env_remove(name);
        }
    }
    question.envs(env.iter().map(|(name, value)| (name, value)));
    question
}

/// An error if there was no answer in time: on a busy machine there may be one the next time.
async fn ask(mut question: Command) -> Result<Option<Version>, Elapsed> {
    let answer = timeout(ANSWER_LIMIT, question.output()).await?;
    Ok(answer.ok().and_then(|answer| Version::find(&String::from_utf8_lossy(&answer.stdout))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_the_output_of_programs() {
        for (text, expected) in [
            ("codex-cli 0.166.0\n", Some("0.166.0")),
            ("codex-cli 0.125.0-alpha.3", Some("0.125.0")),
            ("lab/0.166.0 (Ubuntu 22.4.0; x86_64) unknown", Some("0.166.0")),
            ("WARNING: 2 things\ncodex v1.2.3", Some("1.2.3")),
            ("2.1.325 (Claude Code)", Some("2.1.325")),
            ("codex-cli", None),
            ("1.2", None),
            ("1.2.3.4", None),
            ("", None),
        ] {
            assert_eq!(
                Version::find(text).map(|version| version.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_did_not_answer_in_time_is_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        let (program, gate) = (directory.path().join("slow"), directory.path().join("gate"));
        // Written by another process: what this one forks in the meantime would keep it open, and busy.
        let text =
            "#!/bin/sh\nif [ -e $(dirname $0)/gate ]; then echo 1.2.3; else exec sleep 1000; fi";
        let write = ["-c", r#"printf '%s' "$1" >"$0" && chmod 700 "$0""#];
        let written = std::process::Command::new("sh").args(write).arg(&program).arg(text).status();
        assert!(written.unwrap().success());
        let policy = EnvPolicy::default();
        assert_eq!(version_of(&program, &policy, &[]).await, None);
        std::fs::write(gate, "").unwrap();
        tokio::time::resume();
        // On a busy machine it may be late once more.
        let mut answer = None;
        for _ in 0..100 {
            answer = answer.or(version_of(&program, &policy, &[]).await);
        }
        assert_eq!(answer, Some(Version::new(1, 2, 3)));
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let order = ["0.9.0", "0.124.9", "0.125.0", "0.125.1", "1.0.0"];
        let versions: Vec<_> = order.iter().filter_map(|text| Version::find(text)).collect();
        assert!(versions.is_sorted());
        assert!(versions[1] < Version::new(0, 125, 0) && versions[2] == Version::new(0, 125, 0));
    }
}
