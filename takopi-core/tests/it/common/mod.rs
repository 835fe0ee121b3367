//! What the tests of the core share: hosts, engines that misbehave, and a view of the process table.

#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

pub mod apart;
pub mod engines;
pub mod processes;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use takopi_core::model::{Completed, ResumeToken, TakopiEvent};
use takopi_core::runner::EventStream;
use takopi_core::{ActionEvent, EngineId, Host};
use tempfile::TempDir;

/// The name of the engines of the tests.
pub const LAB: EngineId = EngineId::from_static("lab");
/// The failure deadline in real time; a test that needs longer hangs.
pub const TEST_DEADLINE: Duration = Duration::from_mins(1);

thread_local! {
    /// How long a stream is read: on a paused clock a day is over in no time.
    static READ_LIMIT: Cell<Duration> = const { Cell::new(Duration::from_hours(24)) };
}

/// For tests whose clock is not paused.
pub fn in_real_time() {
    READ_LIMIT.set(TEST_DEADLINE);
}

/// A host with a state directory of its own.
pub struct TestHost {
    pub host: Host,
    pub directory: TempDir,
}

impl TestHost {
    /// On the runtime of the test, so that a paused clock applies to it.
    pub fn on_test_runtime() -> Self {
        let directory = TempDir::new().unwrap();
        let host = Host::builder()
            .runtime(tokio::runtime::Handle::current())
            .state_directory(directory.path())
            .build()
            .unwrap();
        Self { host, directory }
    }

    /// On a supervisor thread of its own, as programs have it.
    pub fn on_own_thread() -> Self {
        in_real_time();
        let directory = TempDir::new().unwrap();
        let host = Host::builder().state_directory(directory.path()).build().unwrap();
        Self { host, directory }
    }

    /// The variable in the environment of this host's engines and their descendants.
    pub fn mark(&self) -> (&'static str, &Path) {
        ("LAB_TEST_HOST", self.directory.path())
    }

    /// The live processes that descend from this host's engines.
    pub fn processes(&self) -> Vec<i32> {
        let (name, value) = self.mark();
        processes::bearers(&format!("{name}={}", value.display()))
    }

    /// A file that scripts know as `$DIR/name`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The names of the lock files.
    pub fn lock_files(&self) -> Vec<String> {
        names_in(&self.directory.path().join("locks"))
    }

    /// Whether no session is locked, in this process or with a file.
    pub fn is_unlocked(&self) -> bool {
        self.host.local_locks().is_empty()
            && self.lock_files().is_empty()
            && self.host.session_locks().holder(&key("any")).now_or_never().flatten().is_none()
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        // A test that failed, or that left something behind on purpose.
        for pid in self.processes() {
            processes::signal(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// The names in a directory, which need not exist.
pub fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

pub fn token(value: &str) -> ResumeToken {
    ResumeToken::new(LAB, value)
}

pub fn key(value: &str) -> takopi_core::locks::SessionKey {
    takopi_core::locks::SessionKey::new(&token(value))
}

/// All events of a run. Checks what holds for every run: exactly one `Completed`, and it is last; at
/// most one `Started`.
pub async fn all(events: EventStream) -> Vec<TakopiEvent> {
    let all: Vec<_> = tokio::time::timeout(READ_LIMIT.get(), events.collect()).await.unwrap();
    let ends = all.iter().filter(|event| matches!(event, TakopiEvent::Completed(_))).count();
    let starts = all.iter().filter(|event| matches!(event, TakopiEvent::Started(_))).count();
    assert_eq!(ends, 1, "{all:#?}");
    assert!(starts <= 1, "{all:#?}");
    assert!(matches!(all.last(), Some(TakopiEvent::Completed(_))), "{all:#?}");
    all
}

/// The end of a run whose events do not matter.
pub async fn end(events: EventStream) -> Completed {
    end_of(&all(events).await).clone()
}

pub fn end_of(events: &[TakopiEvent]) -> &Completed {
    match events.last() {
        Some(TakopiEvent::Completed(end)) => end,
        other => panic!("not an end: {other:?}"),
    }
}

pub fn actions(events: &[TakopiEvent]) -> Vec<&ActionEvent> {
    events
        .iter()
        .filter_map(|event| match event {
            TakopiEvent::Action(action) => Some(action),
            _ => None,
        })
        .collect()
}

pub fn titles(events: &[TakopiEvent]) -> Vec<&str> {
    actions(events).into_iter().map(|event| event.action.title.as_str()).collect()
}

pub fn is_started(event: &TakopiEvent) -> bool {
    matches!(event, TakopiEvent::Started(_))
}

/// Reads up to and with `Started`.
pub async fn until_started(events: &mut EventStream) -> ResumeToken {
    let wait = async {
        while let Some(event) = events.next().await {
            match event {
                TakopiEvent::Started(started) => return started.resume,
                TakopiEvent::Completed(end) => panic!("ended before it started: {end:?}"),
                _ => {}
            }
        }
        panic!("no Started");
    };
    tokio::time::timeout(READ_LIMIT.get(), wait).await.unwrap()
}

/// Reads up to the action with this title.
pub async fn until_action(events: &mut EventStream, title: &str) -> ActionEvent {
    let wait = async {
        while let Some(event) = events.next().await {
            match event {
                TakopiEvent::Action(event) if event.action.title == title => return event,
                TakopiEvent::Completed(end) => panic!("ended before {title:?}: {end:?}"),
                _ => {}
            }
        }
        panic!("no {title:?}");
    };
    tokio::time::timeout(READ_LIMIT.get(), wait).await.unwrap()
}

/// Lets the other tasks of a runtime of one thread go as far as they can without time passing.
pub async fn settle_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Waits, in real time and without holding up the runtime, until something is so.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(3))).await.unwrap();
    }
}
