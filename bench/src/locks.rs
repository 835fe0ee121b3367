//! Session locks beside a bare `tokio::sync::Mutex`.
//!
//! The two sides alternate, so that a machine that slows down slows both; the table shows medians.

use std::sync::Arc;
use std::time::{Duration, Instant};

use takopi_core::ResumeToken;
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionKey, SessionLocks};
use tokio::sync::Mutex;

const ROUNDS: usize = 15;
const ACQUISITIONS: u32 = 100_000;
const TASKS: usize = 10_000;
const KEYS: usize = 100;

/// Prints the table.
pub(crate) fn bench() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let directory = tempfile::tempdir()?;
    let files = FileLocks::new(LocalLocks::new(), directory.path());

    println!("locks (medians of {ROUNDS} alternating rounds)");
    println!("{:<44} {:>12} {:>12} {:>7}", "", "bare mutex", "takopi", "ratio");
    let (bare, ours) = alternate(
        || runtime.block_on(bare_uncontended()),
        || runtime.block_on(local_uncontended()),
    );
    row("acquire and release, uncontended, in process", bare, ours, ACQUISITIONS);
    let (bare, ours) = alternate(|| runtime.block_on(bare_uncontended()), trait_uncontended);
    row("the same through the trait", bare, ours, ACQUISITIONS);
    let (bare, ours) =
        alternate(|| threads.block_on(bare_contended()), || threads.block_on(local_contended()));
    row("10,000 tasks over 100 keys", bare, ours, u32::try_from(TASKS)?);
    let (bare, ours) =
        alternate(|| runtime.block_on(bare_uncontended()) / 100, || file_uncontended(&files));
    row("acquire and release with the file lock", bare, ours, ACQUISITIONS / 100);
    Ok(())
}

/// Medians of both sides, measured in turn.
fn alternate(
    mut one: impl FnMut() -> Duration,
    mut other: impl FnMut() -> Duration,
) -> (Duration, Duration) {
    let mut ones = Vec::new();
    let mut others = Vec::new();
    for _ in 0..ROUNDS {
        ones.push(one());
        others.push(other());
    }
    (median(ones), median(others))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn row(what: &str, bare: Duration, ours: Duration, count: u32) {
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!("{what:<44} {:>9.1?} {:>12.1?} {ratio:>7.2}", bare / count, ours / count);
}

fn key(number: usize) -> SessionKey {
    SessionKey::new(&ResumeToken::new("bench", format!("session-{number}")))
}

fn holder() -> Holder {
    Holder::here("bench".into())
}

async fn bare_uncontended() -> Duration {
    let mutex = Mutex::new(());
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS {
        drop(std::hint::black_box(&mutex).lock().await);
    }
    begun.elapsed()
}

async fn local_uncontended() -> Duration {
    let (locks, key, holder) = (LocalLocks::new(), key(0), holder());
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS {
        drop(std::hint::black_box(&locks).acquire(key.clone(), holder.clone()).await);
    }
    begun.elapsed()
}

fn trait_uncontended() -> Duration {
    let (locks, key, holder) = (LocalLocks::new(), key(0), holder());
    let locks: &dyn SessionLocks = &locks;
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS {
        drop(std::hint::black_box(locks).try_lock(&key, &holder, &NoLeases));
    }
    begun.elapsed()
}

fn file_uncontended(locks: &FileLocks) -> Duration {
    let (key, holder) = (key(0), holder());
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS / 100 {
        drop(locks.try_lock(&key, &holder, &NoLeases));
    }
    begun.elapsed()
}

async fn bare_contended() -> Duration {
    let mutexes: Arc<Vec<Mutex<()>>> = Arc::new((0..KEYS).map(|_| Mutex::new(())).collect());
    contend(move |task| {
        let mutexes = mutexes.clone();
        async move {
            let guard = mutexes[task % KEYS].lock().await;
            tokio::task::yield_now().await;
            drop(guard);
        }
    })
    .await
}

async fn local_contended() -> Duration {
    let locks = LocalLocks::new();
    let keys: Arc<Vec<SessionKey>> = Arc::new((0..KEYS).map(key).collect());
    let holder = holder();
    contend(move |task| {
        let (locks, key, holder) = (locks.clone(), keys[task % KEYS].clone(), holder.clone());
        async move {
            let guard = locks.acquire(key, holder).await;
            tokio::task::yield_now().await;
            drop(guard);
        }
    })
    .await
}

async fn contend<F: Future<Output = ()> + Send + 'static>(task: impl Fn(usize) -> F) -> Duration {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..TASKS).map(|number| tokio::spawn(task(number))).collect();
    for task in tasks {
        let _ = task.await;
    }
    begun.elapsed()
}
