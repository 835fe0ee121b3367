//! Releases of an engine's program, and which one a program is.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::OnceCell;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::host::Host;
use crate::process::{EnvPolicy, Frame, Launch, StopSequence, find_program};

/// How long `--version` may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The longest line of its output that is read: no version stands in a longer one.
const LINE_LIMIT: usize = 64 * 1024;

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
    host: &Host,
    program: &Path,
    policy: &EnvPolicy,
    env: &[(OsString, OsString)],
) -> Option<Version> {
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let program = find_program(program, path.map(|(_, value)| value.as_os_str()))?;
    version_of(host, &program, policy, env).await
}

/// The version of a program, which its `--version` prints; `None` if it prints none, or not in time.
///
/// A program that answers is asked once in this process as long as its file stays the same, however many want to
/// know. The question is a process of the host, and not of a run: it holds no session's lock. It ends with the future, or at
/// the limit, with all that came of it.
pub async fn version_of(
    host: &Host,
    program: &Path,
    policy: &EnvPolicy,
    env: &[(OsString, OsString)],
) -> Option<Version> {
    let changed = program.metadata().and_then(|metadata| metadata.modified()).ok();
    let answer = {
        let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
        answers.entry((program.to_owned(), changed)).or_default().clone()
    };
    let asked = answer.get_or_try_init(|| ask(host, question(program, policy, env))).await;
    asked.ok().copied().flatten()
}

fn question(program: &Path, policy: &EnvPolicy, env: &[(OsString, OsString)]) -> Launch {
    let question = Launch::new(program)
        .args(["--version"])
        .env_policy(policy.clone())
        .line_limit(LINE_LIMIT)
        .linger(ANSWER_LIMIT)
        // It has nothing to save.
        .stop_sequence(StopSequence::new([]));
    env.iter().fold(question, |question, (name, value)| question.env(name, value))
}

/// An error if there was no answer in time: on a busy machine there may be one the next time.
async fn ask(host: &Host, question: Launch) -> Result<Option<Version>, Elapsed> {
    let answer = async {
        let (process, mut output) = host.start(question).await.ok()?;
        let mut version = None;
        // All of it, for a program that cannot write may not exit.
        while output.fill().await {
            while let Some(frame) = output.pop() {
                if let (Frame::Line(line), None) = (frame, version) {
                    version = Version::find(&String::from_utf8_lossy(line));
                }
            }
        }
        process.finish();
        version
    };
    timeout(ANSWER_LIMIT, answer).await
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

    /// A program with a directory and a host of its own.
    struct Lab {
        directory: tempfile::TempDir,
        program: PathBuf,
        host: Host,
    }

    impl Lab {
        fn new(script: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("program");
            // Written by another process: what this one forks in the meantime would keep it open, and busy.
            let write = [
                "-c",
                r#"printf '#!/bin/sh\ncd "$(dirname "$0")"\n%s' "$1" >"$0" && chmod 700 "$0""#,
            ];
            let written =
                std::process::Command::new("sh").args(write).arg(&program).arg(script).status();
            assert!(written.unwrap().success());
            let host = Host::builder().state_directory(directory.path().join("state")).build();
            Self { directory, program, host: host.unwrap() }
        }

        async fn version(&self) -> Option<Version> {
            version_of(&self.host, &self.program, &EnvPolicy::default(), &[]).await
        }
    }

    /// While it yields, a paused clock stands still.
    async fn keep_the_clock() {
        loop {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_did_not_answer_in_time_is_asked_again() {
        let lab = Lab::new("if [ -e gate ]; then echo 1.2.3; else exec sleep 1000; fi");
        assert_eq!(lab.version().await, None);
        std::fs::write(lab.directory.path().join("gate"), "").unwrap();
        tokio::time::resume();
        // On a busy machine it may be late once more.
        let mut answer = None;
        for _ in 0..100 {
            answer = answer.or(lab.version().await);
        }
        assert_eq!(answer, Some(Version::new(1, 2, 3)));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_a_question_that_took_too_long_or_was_dropped() {
        use std::io::Read as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        // All of them have the pipe open. One is in another group and session.
        let script =
            "exec 9>pipe; sleep 1000 & setsid sleep 1000 & echo ready >&9; exec sleep 1000";
        for dropped in [false, true] {
            let lab = Lab::new(script);
            let path = lab.directory.path().join("pipe");
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            let open =
                std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
            let mut pipe = open.unwrap();
            let mut question = Box::pin(lab.version());
            let begun = async {
                while pipe.read(&mut [0; 64]).unwrap_or_default() == 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                _ = &mut question => panic!("it does not answer"),
                () = begun => {}
            }
            if !dropped {
                assert_eq!((&mut question).await, None);
            }
            drop(question);
            lab.host.settle().await;
            assert_eq!(pipe.read(&mut [0; 64]).unwrap(), 0, "nobody has the pipe open");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_program_prints_is_not_kept_however_much_it_is() {
        let flood = "head -c 5000000 /dev/zero | tr '\\0' x";
        for (script, expected) in [
            (
                format!("{flood}; echo; echo v1.2.3; echo 4.5.6; {flood}"),
                Some(Version::new(1, 2, 3)),
            ),
            // It would have to be kept to be found.
            (format!("{flood}; echo ' 1.2.3'"), None),
        ] {
            let lab = Lab::new(&script);
            tokio::select! {
                version = lab.version() => assert_eq!(version, expected, "{script}"),
                () = keep_the_clock() => {}
            }
            lab.host.settle().await;
        }
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let order = ["0.9.0", "0.124.9", "0.125.0", "0.125.1", "1.0.0"];
        let versions: Vec<_> = order.iter().filter_map(|text| Version::find(text)).collect();
        assert!(versions.is_sorted());
        assert!(versions[1] < Version::new(0, 125, 0) && versions[2] == Version::new(0, 125, 0));
    }
}
