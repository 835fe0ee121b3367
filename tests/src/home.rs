//! A place of its own for every test: a workspace, a user's home, takopi's state directory, and what an agent needs.
//!
//! - All of it is one directory below cargo's target directory, never below the system's temporary directory (agents
//!   treat that differently: codex installs no helpers there, and its sandbox leaves it writable).
//! - It is removed on drop, after what still runs there was killed; if the test is failing it is kept, and its path printed.
//! - The workspace is a Git repository of its own, so that nothing of takopi's repository (such as its `AGENTS.md`) is seen.
//! - [`Home::env`] keeps the developer's machine out: shell start-up files, Git settings and proxies.

mod processes;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use takopi_core::mcp::McpServer;
use uuid::Uuid;

pub use self::processes::Process;
use crate::dirs;
use crate::model::{PATIENCE, within};

/// Processes that were asked to end have this long to do so.
const GONE_WITHIN: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(10);

/// Marks the processes of a home; agents pass their environment on to the commands they run.
pub(crate) const MARKER: &str = "TAKOPI_TEST_HOME";

/// The directories of one test.
#[derive(Debug)]
pub struct Home {
    root: PathBuf,
    id: String,
}

impl Home {
    /// Creates the directories, with these beside the common ones.
    pub(crate) fn new(dirs: &[&str]) -> Self {
        // Short: a Unix socket below it must have a path of less than 108 bytes.
        let id = Uuid::new_v4().simple().to_string()[..12].to_owned();
        let home = Self { root: homes().join(&id), id };
        let common = ["state", "user", "workspace/.git/objects", "workspace/.git/refs"];
        for dir in common.iter().chain(dirs) {
            let dir = home.root.join(dir);
            fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("create {}: {e}", dir.display()));
        }
        let head = home.workspace().join(".git/HEAD");
        fs::write(head, "ref: refs/heads/main\n").expect("write HEAD");
        home
    }

    /// The directory that holds all the others.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the marker of this home's processes is set to.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// An empty Git repository for the agent to work in.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Where takopi keeps its own state.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// A directory of this home, for a variable.
    pub(crate) fn path(&self, dir: &str) -> String {
        let path = self.root.join(dir);
        path.to_str().expect("the target directory is UTF-8").to_owned()
    }

    /// The variables to set for any agent and for takopi, on top of whatever is inherited.
    pub fn env(&self) -> Vec<(String, String)> {
        let set = [
            ("TAKOPI_STATE_DIR", self.path("state")),
            (MARKER, self.id.clone()),
            // A login shell runs the files it finds here.
            ("HOME", self.path("user")),
            ("BASH_ENV", String::new()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("NO_PROXY", "127.0.0.1".into()),
            ("no_proxy", "127.0.0.1".into()),
        ];
        set.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// For agents that are given MCP servers by takopi: the server `lab`, whose tool `echo` returns its text.
    pub fn lab_mcp(&self) -> McpServer {
        McpServer::new("lab", lab_mcp_binary()).expect("a name").env(MARKER, &self.id)
    }

    /// A command that runs in the workspace with `PATH` and these variables as its whole environment.
    pub(crate) fn command_with(
        &self,
        program: &Path,
        env: Vec<(String, String)>,
    ) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command
            .current_dir(self.workspace())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(env);
        crate::signals::reset(command.as_std_mut());
        command
    }

    /// The live processes of this test: those started with [`Home::env`], whatever has become of their parents, and
    /// those that run in or name its directories.
    pub fn processes(&self) -> Vec<Process> {
        processes::find(&format!("{MARKER}={}", self.id), &self.root)
    }

    /// Waits until a process of this test runs this very command line.
    pub async fn wait_for_command(&self, command: &str) {
        let runs = || self.processes().iter().any(|process| process.command == command);
        self.wait_until(runs, command).await;
    }

    /// Waits for something that can only be looked at, such as a file that an agent's command makes.
    pub async fn wait_until(&self, done: impl Fn() -> bool, what: &str) {
        let look = async {
            while !done() {
                tokio::time::sleep(POLL).await;
            }
        };
        within(PATIENCE, what, look).await;
    }

    /// Waits until no process of this test is left. Panics with a list of them after a minute.
    pub async fn assert_no_processes(&self) {
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "processes left after {GONE_WITHIN:?}:\n{}",
                listing(&left)
            );
            tokio::time::sleep(POLL).await;
        }
    }

    fn kill_processes(&self) {
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() >= deadline {
                return;
            }
            for process in left {
                let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let left = self.processes();
        self.kill_processes();
        if thread::panicking() {
            eprintln!("the test's home is kept in {}", self.root.display());
            if !left.is_empty() {
                eprintln!("these were running and are killed:\n{}", listing(&left));
            }
        } else {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Where homes are made.
fn homes() -> PathBuf {
    let places = [dirs::target_dir(), dirs::workspace().join("target"), PathBuf::from("/var/tmp")];
    let outside = places.into_iter().find(|place| !place.starts_with(std::env::temp_dir()));
    outside.expect("/var/tmp is no other name of the temporary directory").join("takopi-homes")
}

/// `lab-mcp`, which cargo builds beside (or one above) the test that runs.
pub(crate) fn lab_mcp_binary() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its executable");
    let found = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("lab-mcp"))
        .find(|binary| binary.is_file());
    found.expect(
        "lab-mcp is built along with the tests of takopi-tests: cargo build -p takopi-tests",
    )
}

fn listing(processes: &[Process]) -> String {
    let lines: Vec<String> = processes.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> Home {
        Home::new(&[])
    }

    #[test]
    fn a_home_is_outside_the_temporary_directory_and_goes_with_the_test() {
        let home = home();
        let root = home.root().to_owned();
        assert!(!root.starts_with(std::env::temp_dir()));
        for (name, value) in home.env() {
            let is_dir = value.starts_with('/') && name != "GIT_CONFIG_GLOBAL";
            assert!(!is_dir || Path::new(&value).is_dir(), "{name}={value}");
        }
        drop(home);
        assert!(!root.exists());
    }

    #[test]
    fn the_home_of_a_failing_test_is_kept() {
        let home = home();
        let root = home.root().to_owned();
        let failing = thread::spawn(move || {
            let _home = home;
            panic!("on purpose");
        });
        assert!(failing.join().is_err());
        assert!(root.exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[tokio::test]
    async fn a_process_is_found_by_its_marker_and_its_end_is_seen() {
        let home = home();
        let mut command = home.command_with(Path::new("sleep"), home.env());
        let mut child = command.arg("600").current_dir("/").spawn().unwrap();
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        // Until it executes its program its environment may be empty.
        home.wait_for_command("sleep 600").await;
        let found: Vec<i32> = home.processes().iter().map(|process| process.pid).collect();
        assert_eq!(found, [pid]);
        child.kill().await.unwrap();
        home.assert_no_processes().await;
    }
}
