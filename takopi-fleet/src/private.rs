//! A private PostgreSQL, for the demo and for tests.
//!
//! It has a data directory and a socket of its own below the temporary directory, and no port. It runs as `nobody` when this
//! process runs as root, which PostgreSQL refuses. It is gone when this process is, however that ends: a shell waits for the end
//! of its input and then stops the server and removes the directory.

// The tests of other crates use this file as a module of their own: it needs nothing of this crate.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
const START_LIMIT: Duration = Duration::from_mins(1);

/// A server. Its superuser is `takopi`, without a password.
#[derive(Debug)]
pub struct PrivateServer {
    bin: PathBuf,
    dir: PathBuf,
    settings: Vec<String>,
    guard: Option<Child>,
}

/// Whether the programs of PostgreSQL are in this directory.
pub fn is_there(bin: &Path) -> bool {
    bin.join("initdb").is_file() && bin.join("postgres").is_file()
}

/// The directory with the programs of an installed PostgreSQL: on the PATH, or where Debian puts them, the newest first.
pub fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<_> = env::split_paths(&path).collect();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<_> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort();
    on_path.into_iter().chain(debian.into_iter().rev()).find(|bin| is_there(bin))
}

impl PrivateServer {
    /// Starts one with these programs and settings.
    pub fn start(bin: PathBuf, settings: &[&str]) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = env::temp_dir().join(format!("takopi-pg-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        if nix::unistd::geteuid().is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY))?;
        }
        let mut initdb = as_user(&bin.join("initdb"));
        let fixed = ["--username=takopi", "--auth=trust", "--no-sync", "--encoding=UTF8"];
        initdb.args(fixed).args(["--locale=C", "-D"]).arg(dir.join("data"));
        let made = initdb.current_dir(&dir).stdin(Stdio::null()).output();
        let made = made.and_then(|made| {
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            if made.status.success() { Ok(()) } else { Err(io::Error::other(why)) }
        });
        if let Err(error) = made {
            let _ = fs::remove_dir_all(&dir);
            return Err(error);
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { bin, dir, settings, guard: None };
        server.up()?;
        Ok(server)
    }

    /// Starts it again after [`Self::kill`].
    pub fn up(&mut self) -> io::Result<()> {
        // A server that was killed leaves a file that says it is ready.
        let before = self.pid_file().lines().next().map(str::to_owned);
        let begun = Instant::now();
        self.spawn()?;
        loop {
            let state = self.pid_file();
            let is_new = state.lines().next() != before.as_deref();
            if is_new && state.lines().nth(7).is_some_and(|state| state.trim() == "ready") {
                return Ok(());
            }
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if begun.elapsed() > START_LIMIT {
                return Err(io::Error::other(format!("the server does not answer: {log}")));
            }
            thread::sleep(Duration::from_millis(50));
            // Processes of the killed server have not exited yet: again.
            if log.contains("is still in use") {
                fs::write(self.dir.join("keep"), "")?;
                self.wait();
                self.spawn()?;
            }
        }
    }

    fn spawn(&mut self) -> io::Result<()> {
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
        // What the server before wrote is not about this one.
        let _ = fs::remove_file(self.dir.join("log"));
        // In a group of its own: Ctrl-C is for this process, which still needs the server then.
        let guard = guard.current_dir(&self.dir).process_group(0).stdin(Stdio::piped());
        self.guard = Some(guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        Ok(())
    }

    fn pid_file(&self) -> String {
        fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap_or_default()
    }

    /// Kills it, as a crash would; its data stay.
    pub fn kill(&mut self) -> io::Result<()> {
        fs::write(self.dir.join("keep"), "")?;
        let state = self.pid_file();
        let pid = state.lines().next().and_then(|pid| pid.trim().parse().ok());
        let pid = pid.ok_or_else(|| io::Error::other("the server does not run"))?;
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
        self.wait();
        Ok(())
    }

    /// The directory of its socket.
    pub fn socket(&self) -> &Path {
        &self.dir
    }

    /// The address of a database for a user.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("host={} user={user} dbname={database}", self.dir.display())
    }

    fn wait(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.wait();
    }
}

fn as_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).env("HOME", "/");
    }
    command
}
