//! A place of its own for every test: a `CODEX_HOME`, a workspace, a user's home and takopi's state directory.
//!
//! - All of it is one directory below cargo's target directory, never below the system's temporary directory (codex
//!   treats that differently: it installs no helpers there, and its sandbox leaves it writable).
//! - It is removed on drop, after what still runs there was killed; if the test is failing it is kept, and its path printed.
//! - The workspace is a Git repository of its own, so that nothing of takopi's repository (such as its `AGENTS.md`) is seen.
//! - [`TestHome::env`] keeps the developer's machine out: its codex settings, keys, shell start-up files and proxies. Codex
//!   itself is configured to call only the model server.

mod processes;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

pub use self::processes::Process;
use crate::dirs;
use crate::model::{ModelServer, PATIENCE, within};

/// Processes that were asked to end have this long to do so.
const GONE_WITHIN: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(10);

/// Marks the processes of a home; codex passes its environment on to the commands it runs.
const MARKER: &str = "TAKOPI_TEST_HOME";

/// The directories of one test.
#[derive(Debug)]
pub struct TestHome {
    root: PathBuf,
    id: String,
}

/// The settings of a home's `config.toml`.
#[derive(Clone, Debug)]
pub struct HomeBuilder {
    base_url: String,
    settings: BTreeMap<String, String>,
    features: BTreeMap<String, bool>,
    request_max_retries: u32,
    stream_max_retries: u32,
    lab_mcp: bool,
    tables: String,
}

impl TestHome {
    /// A home whose codex talks to this model, asks for no approval, is not sandboxed and does not retry.
    pub fn new(model: &ModelServer) -> Self {
        Self::builder(model).build()
    }

    /// A home with other settings.
    pub fn builder(model: &ModelServer) -> HomeBuilder {
        HomeBuilder::new(model.base_url())
    }

    /// A home for a codex that calls no model, such as the fake one.
    pub fn without_model() -> Self {
        // Port 9 is `discard`: a codex that does call gets no answer.
        HomeBuilder::new("http://127.0.0.1:9/v1".into()).build()
    }

    /// The directory that holds all the others.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `CODEX_HOME`.
    pub fn codex_home(&self) -> PathBuf {
        self.root.join("codex")
    }

    /// An empty Git repository for codex to work in.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Where takopi keeps its own state.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The variables to set for codex or takopi, on top of whatever is inherited.
    pub fn env(&self) -> Vec<(String, String)> {
        let path = |dir: &str| {
            let path = self.root.join(dir);
            path.to_str().expect("the target directory is UTF-8").to_owned()
        };
        let set = [
            ("CODEX_HOME", path("codex")),
            ("CODEX_SQLITE_HOME", path("codex")),
            ("CODEX_APP_SERVER_DISABLE_MANAGED_CONFIG", "1".into()),
            ("TAKOPI_STATE_DIR", path("state")),
            (MARKER, self.id.clone()),
            // A login shell runs the files it finds here.
            ("HOME", path("user")),
            ("BASH_ENV", String::new()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("NO_PROXY", "127.0.0.1".into()),
            ("no_proxy", "127.0.0.1".into()),
            // Codex takes an empty key for none.
            ("OPENAI_API_KEY", String::new()),
            ("CODEX_API_KEY", String::new()),
            ("CODEX_ACCESS_TOKEN", String::new()),
            ("RUST_LOG", "error".into()),
        ];
        set.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// A command that runs in the workspace with `PATH` and [`TestHome::env`] as its whole environment.
    pub fn command(&self, program: impl AsRef<Path>) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program.as_ref());
        command
            .current_dir(self.workspace())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(self.env());
        crate::signals::reset(command.as_std_mut());
        command
    }

    /// The live processes of this test: those started with [`TestHome::env`], whatever has become of their parents, and
    /// those that run in or name its directories.
    pub fn processes(&self) -> Vec<Process> {
        processes::find(&format!("{MARKER}={}", self.id), &self.root)
    }

    /// The app-servers that this process started: not what they fork for a moment, which looks alike.
    pub fn servers(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).expect("a pid fits");
        let servers = self.processes().into_iter();
        servers
            .filter(|process| process.ppid == own && process.command.ends_with(" app-server"))
            .map(|process| process.pid)
            .collect()
    }

    /// Waits until a process of this test runs this very command line.
    pub async fn wait_for_command(&self, command: &str) {
        let look = async {
            while !self.processes().iter().any(|process| process.command == command) {
                tokio::time::sleep(POLL).await;
            }
        };
        within(PATIENCE, command, look).await;
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

impl Drop for TestHome {
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

impl HomeBuilder {
    fn new(base_url: String) -> Self {
        let home = Self {
            base_url,
            settings: BTreeMap::new(),
            features: BTreeMap::new(),
            request_max_retries: 0,
            stream_max_retries: 0,
            lab_mcp: false,
            tables: String::new(),
        };
        home.setting("model", r#""gpt-5.5""#)
            .setting("model_provider", r#""mock""#)
            .approval_policy("never")
            .sandbox_mode("danger-full-access")
            // Both call home: one clones a repository with a git of its own, the other reports usage.
            .feature("plugins", false)
            .setting("analytics.enabled", "false")
    }

    /// `approval_policy`: `on-request` or `never` (the default here); `untrusted` is gone in 0.166.
    pub fn approval_policy(self, policy: &str) -> Self {
        self.setting("approval_policy", &format!("{policy:?}"))
    }

    /// `sandbox_mode`: `read-only`, `workspace-write` or `danger-full-access` (the default here).
    pub fn sandbox_mode(self, mode: &str) -> Self {
        self.setting("sandbox_mode", &format!("{mode:?}"))
    }

    /// How often codex sends a request again that got an error for an answer; 0 by default here.
    pub fn request_max_retries(mut self, retries: u32) -> Self {
        self.request_max_retries = retries;
        self
    }

    /// How often codex asks again after a stream that broke or failed; 0 by default here.
    pub fn stream_max_retries(mut self, retries: u32) -> Self {
        self.stream_max_retries = retries;
        self
    }

    /// Sets a top-level key, given as `key` or `table.key`, to a TOML value.
    pub fn setting(mut self, key: &str, toml: &str) -> Self {
        self.settings.insert(key.into(), toml.into());
        self
    }

    /// Sets a feature flag of codex.
    pub fn feature(mut self, name: &str, on: bool) -> Self {
        self.features.insert(name.into(), on);
        self
    }

    /// Adds the MCP server `lab`, whose tool `echo` returns its text and the structured content `{"a":1}`.
    pub fn lab_mcp(mut self) -> Self {
        self.lab_mcp = true;
        self
    }

    /// Adds tables, as TOML, to the end of the file.
    pub fn toml(mut self, tables: &str) -> Self {
        self.tables.push_str(tables);
        self.tables.push('\n');
        self
    }

    /// Creates the directories.
    pub fn build(self) -> TestHome {
        // Short: a Unix socket below it must have a path of less than 108 bytes.
        let id = Uuid::new_v4().simple().to_string()[..12].to_owned();
        let root = homes().join(&id);
        let home = TestHome { root, id };
        let git = home.workspace().join(".git");
        for dir in [
            home.codex_home(),
            home.state(),
            home.root.join("user"),
            git.join("objects"),
            git.join("refs"),
        ] {
            fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("create {}: {e}", dir.display()));
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").expect("write HEAD");
        let config = home.codex_home().join("config.toml");
        fs::write(config, self.config(&home.id)).expect("write config.toml");
        home
    }

    fn config(&self, id: &str) -> String {
        let mut toml = String::new();
        for (key, value) in &self.settings {
            let _ = writeln!(toml, "{key} = {value}");
        }
        toml.push_str("[features]\n");
        for (name, on) in &self.features {
            let _ = writeln!(toml, "{name} = {on}");
        }
        let _ = write!(
            toml,
            "[model_providers.mock]\n\
             name = \"mock\"\n\
             base_url = \"{}\"\n\
             wire_api = \"responses\"\n\
             request_max_retries = {}\n\
             stream_max_retries = {}\n",
            self.base_url, self.request_max_retries, self.stream_max_retries
        );
        if self.lab_mcp {
            // Codex does not pass its environment on to MCP servers, so the marker is set here.
            let _ = write!(
                toml,
                "[mcp_servers.lab]\ncommand = \"{}\"\nenv = {{ {MARKER} = \"{id}\" }}\n",
                lab_mcp_binary().display()
            );
        }
        toml.push_str(&self.tables);
        toml
    }
}

/// Where homes are made.
fn homes() -> PathBuf {
    let places = [dirs::target_dir(), dirs::workspace().join("target"), PathBuf::from("/var/tmp")];
    let outside = places.into_iter().find(|place| !place.starts_with(std::env::temp_dir()));
    outside.expect("/var/tmp is no other name of the temporary directory").join("takopi-homes")
}

/// `lab-mcp`, which cargo builds beside (or one above) the test that runs.
fn lab_mcp_binary() -> PathBuf {
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

    #[test]
    fn a_home_is_outside_the_temporary_directory_and_goes_with_the_test() {
        let home = TestHome::without_model();
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
        let home = TestHome::without_model();
        let root = home.root().to_owned();
        let failing = thread::spawn(move || {
            let _home = home;
            panic!("on purpose");
        });
        assert!(failing.join().is_err());
        assert!(root.exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn settings_are_written_above_the_tables() {
        let config = HomeBuilder::new("http://model/v1".into())
            .sandbox_mode("read-only")
            .feature("goals", false)
            .stream_max_retries(5)
            .toml("[extra]\nkey = 1")
            .config("id");
        let (top, tables) = config.split_once("[features]\n").unwrap();
        assert!(top.contains("sandbox_mode = \"read-only\"\n"));
        assert!(tables.starts_with("goals = false\nplugins = false\n"));
        assert!(tables.contains("stream_max_retries = 5\n[extra]\nkey = 1\n"));
    }

    #[tokio::test]
    async fn a_process_is_found_by_its_marker_and_its_end_is_seen() {
        let home = TestHome::without_model();
        let mut command = home.command("sleep");
        let mut child = command.arg("600").current_dir("/").spawn().unwrap();
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        let found: Vec<i32> = home.processes().iter().map(|process| process.pid).collect();
        assert_eq!(found, [pid]);
        child.kill().await.unwrap();
        home.assert_no_processes().await;
    }
}
