//! An engine that checks from inside what the fleet promises: nobody else is in the session, and its history is that of all turns
//! before, in order, each once.
//!
//! Its sessions are files of its machine. A turn writes a line when it begins and one when it ends; what a lost turn left has to be
//! gone when the next one begins. What is wrong goes to a file that all machines share.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use takopi_core::catalog::{PortableFile, PortableSessions};
use takopi_core::model::{Completed, EngineId, Reason, ResumeToken, Started};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, SessionScope};
use takopi_core::version::Version;

/// The engine's name.
pub(crate) const LEDGER: &str = "ledger";

/// The engine on one machine.
#[derive(Clone)]
pub(crate) struct Ledger {
    /// The sessions of this machine.
    pub(crate) home: PathBuf,
    /// What all machines share.
    pub(crate) shared: PathBuf,
    /// How long a turn takes.
    pub(crate) work: Duration,
}

/// The turns that ended, by a session's file.
pub(crate) fn turns(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("end ")?.parse().ok()).collect()
}

impl Ledger {
    pub(crate) fn file(home: &Path, session: &str) -> PathBuf {
        home.join(format!("{session}.log"))
    }

    /// Adds a line to a file that all machines share.
    fn note(&self, file: &str, line: &str) {
        let file = File::options().append(true).create(true).open(self.shared.join(file));
        file.unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn wrong(&self, what: &str) {
        self.note("wrong", what);
    }

    /// Notes that this process is in the session, until the file is dropped. The kernel forgets those that are killed.
    fn enter(&self, session: &str) -> File {
        let path = self.shared.join(format!("{session}.inside"));
        let mut file = File::options().read(true).append(true).create(true).open(&path).unwrap();
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).unwrap();
                write!(file, "{}", std::process::id()).unwrap();
            }
            Err(TryLockError::WouldBlock) => {
                let holder = Self::named(&path);
                // One that is suspended is in there and does nothing.
                if !self.is_suspended(holder.as_deref()) {
                    self.wrong(&format!("process {holder:?} is in {session}"));
                }
            }
            Err(TryLockError::Error(error)) => panic!("{error}"),
        }
        file
    }

    /// The process that the file of a session names. There is none while that process is between its lock and its name: for
    /// a moment, unless it was suspended right there.
    fn named(path: &Path) -> Option<String> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            let holder = fs::read_to_string(path).unwrap_or_default();
            if !holder.is_empty() {
                return Some(holder);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Whether this process is suspended; any, if it has no name.
    fn is_suspended(&self, holder: Option<&str>) -> bool {
        if let Some(holder) = holder {
            return self.shared.join(format!("suspended-{holder}")).exists();
        }
        let mut names = fs::read_dir(&self.shared).unwrap().map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().starts_with("suspended-"))
    }

    async fn turn(&self, run: &EngineRun) -> Option<Completed> {
        let (session, turn) = run.request.prompt.split_once(':')?;
        let turn: u64 = turn.parse().ok()?;
        let token = ResumeToken::new(LEDGER, session);
        let file = Self::file(&self.home, session);
        if run.resume.is_none() {
            let _ = fs::remove_file(&file);
        }
        run.emit(Started::new(token)).await.ok()?;
        let _inside = self.enter(session);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let before = turns(&file);
        let whole = text.lines().count() == 2 * before.len();
        if !whole || !before.is_sorted_by(|one, two| one < two) || before.last() >= Some(&turn) {
            self.wrong(&format!("turn {turn} of {session} finds {text:?}"));
        }
        let append = |line: String| {
            let mut file = File::options().append(true).create(true).open(&file).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        };
        self.note("begun", &run.request.prompt);
        append(format!("begin {turn}\n"));
        tokio::select! {
            () = run.stop().cancelled() => {
                return Some(Completed::failure(LEDGER, Reason::Interrupted, "interrupted"));
            }
            () = tokio::time::sleep(self.work) => {}
        }
        append(format!("end {turn}\n"));
        Some(Completed::success(LEDGER, run.request.prompt.clone()))
    }
}

impl Engine for Ledger {
    fn id(&self) -> EngineId {
        EngineId::from(LEDGER)
    }

    fn resume_codec(&self) -> ResumeCodec {
        ResumeCodec::new(self.id(), "ledger resume", |id| Some(id.to_owned()))
    }

    fn session_scope(&self) -> SessionScope {
        SessionScope::Process
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some(completed) = self.turn(&run).await {
                let _ = run.emit(completed).await;
            }
        })
    }
}

impl PortableSessions for Ledger {
    fn files(&self, session: &str, _cwd: &Path) -> io::Result<Vec<PortableFile>> {
        let path = Self::file(&self.home, session);
        let name = format!("{session}.log");
        Ok(Vec::from_iter(path.exists().then_some(PortableFile { name, path })))
    }

    fn path(&self, name: &str, _cwd: &Path) -> Option<PathBuf> {
        Some(self.home.join(name))
    }

    fn version(&self) -> BoxFuture<'_, Option<Version>> {
        // A test can set it.
        let set = fs::read_to_string(self.home.join("version")).ok();
        Box::pin(std::future::ready(set.and_then(|version| Version::find(&version))))
    }
}
