//! Session locks inside one process: the keyed mutex, and the files under it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::engines::{lab_with_files, started, success};
use crate::common::{LAB, TestHost, end, key, names_in};
use futures::FutureExt;
use proptest::prelude::*;
use takopi_core::locks::{
    FileLocks, Holder, LeaseHolder, LocalLocks, LockError, NoLeases, SessionGuard, SessionKey,
    SessionLease, SessionLocks,
};
use takopi_core::{RunRequest, Runner};
use tempfile::TempDir;
use tokio::task::JoinSet;

fn here() -> Holder {
    Holder::here(LAB)
}

fn files(directory: &Path) -> FileLocks {
    FileLocks::new(LocalLocks::new(), directory)
}

fn try_lock(locks: &dyn SessionLocks, name: &str) -> Option<SessionGuard> {
    locks.try_lock(&key(name), &here(), &NoLeases).now_or_never().unwrap().unwrap()
}

async fn lock(locks: &dyn SessionLocks, name: &str) -> SessionGuard {
    locks.lock(key(name), here(), Arc::new(NoLeases)).await.unwrap()
}

fn holder_now(locks: &dyn SessionLocks, name: &str) -> Option<Holder> {
    locks.holder(&key(name)).now_or_never().unwrap()
}

/// Both back ends.
fn back_ends(directory: &Path) -> [Arc<dyn SessionLocks>; 2] {
    [Arc::new(LocalLocks::new()), Arc::new(files(directory))]
}

#[tokio::test(start_paused = true)]
async fn a_key_counts_while_it_is_held() {
    let directory = TempDir::new().unwrap();
    let local = LocalLocks::new();
    let locks = FileLocks::new(local.clone(), directory.path());
    assert!(local.is_empty());
    let guard = try_lock(&locks, "a").unwrap();
    assert!(!local.is_empty());
    assert_eq!((local.len(), format!("{guard:?}").as_str()), (1, "SessionGuard"));
    drop(guard);
    assert!(local.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_same_key_is_held_once_and_different_keys_do_not_touch() {
    let directory = TempDir::new().unwrap();
    for locks in back_ends(directory.path()) {
        let guard = try_lock(&*locks, "a").unwrap();
        assert!(try_lock(&*locks, "a").is_none());
        assert!(lock(&*locks, "a").now_or_never().is_none());
        let other = lock(&*locks, "b").now_or_never().unwrap();
        drop(guard);
        drop((try_lock(&*locks, "a").unwrap(), other));
    }
    assert!(names_in(directory.path()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiters_are_served_in_the_order_they_came() {
    let directory = TempDir::new().unwrap();
    for locks in back_ends(directory.path()) {
        let guard = try_lock(&*locks, "a").unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = JoinSet::new();
        for number in 0..1000 {
            let (locks, order) = (locks.clone(), order.clone());
            waiters.spawn(async move {
                let _guard = lock(&*locks, "a").await;
                order.lock().unwrap().push(number);
                tokio::task::yield_now().await;
            });
            // Each is in line before the next comes.
            tokio::task::yield_now().await;
        }
        assert!(try_lock(&*locks, "a").is_none());
        drop(guard);
        waiters.join_all().await;
        assert!(order.lock().unwrap().iter().copied().eq(0..1000));
        assert_eq!(holder_now(&*locks, "a"), None);
    }
    assert!(names_in(directory.path()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_in_line_leaves_no_trace() {
    let locks = LocalLocks::new();
    let guard = locks.try_acquire(&key("a"), &here()).unwrap();
    let mut line: Vec<_> = (0..5).map(|_| Box::pin(locks.acquire(key("a"), here()))).collect();
    for waiter in &mut line {
        assert!(waiter.as_mut().now_or_never().is_none());
    }
    let last = line.pop().unwrap();
    drop(line);
    drop(guard);
    drop(last.now_or_never().expect("nobody stands before the last any more"));
    assert!(locks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_at_the_very_moment_it_is_granted_passes_the_key_on() {
    let locks = LocalLocks::new();
    let guard = locks.try_acquire(&key("a"), &here()).unwrap();
    let mut first = Box::pin(locks.acquire(key("a"), here()));
    let mut second = Box::pin(locks.acquire(key("a"), here()));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    drop(guard);
    // The first has been handed the key and does not know yet.
    drop(first);
    drop(second.now_or_never().expect("the key was passed on"));
    assert!(locks.is_empty());

    let guard = locks.try_acquire(&key("a"), &here()).unwrap();
    let mut only = Box::pin(locks.acquire(key("a"), here()));
    assert!(only.as_mut().now_or_never().is_none());
    drop(guard);
    drop(only);
    assert!(locks.is_empty(), "and forgotten, if nobody else wants it");
}

#[test]
fn a_hundred_thousand_keys_used_once_leave_an_empty_map() {
    let locks = LocalLocks::new();
    let keys: Vec<_> = (0..100_000).map(|number| key(&number.to_string())).collect();
    let held: Vec<_> = keys.iter().map(|key| locks.try_acquire(key, &here()).unwrap()).collect();
    assert_eq!(locks.len(), 100_000);
    drop(held);
    assert!(locks.is_empty());
}

#[test]
fn keys_used_once_leave_an_empty_directory() {
    let directory = TempDir::new().unwrap();
    let locks = files(directory.path());
    for batch in 0..20 {
        let held: Vec<_> = (0..100)
            .map(|number| try_lock(&locks, &format!("{batch}-{number}")).unwrap())
            .collect();
        assert_eq!(names_in(directory.path()).len(), 100);
        drop(held);
    }
    assert!(names_in(directory.path()).is_empty());
}

#[tokio::test]
async fn two_instances_in_one_process_exclude_each_other_through_the_file() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (files(directory.path()), files(directory.path()));
    let guard = try_lock(&one, "a").unwrap();
    assert!(try_lock(&two, "a").is_none());
    let mut waiter = Box::pin(lock(&two, "a"));
    assert!(waiter.as_mut().now_or_never().is_none());
    drop(guard);
    let guard = waiter.await;
    assert!(try_lock(&one, "a").is_none());
    drop(guard);
    assert!(names_in(directory.path()).is_empty());
}

#[tokio::test]
async fn a_waiter_for_a_file_goes_before_later_ones() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (files(directory.path()), files(directory.path()));
    let guard = try_lock(&one, "a").unwrap();
    let mut waiter = Box::pin(lock(&two, "a"));
    assert!(waiter.as_mut().now_or_never().is_none());
    drop(guard);
    assert!(try_lock(&one, "a").is_none(), "free, but spoken for");
    let guard = waiter.await;
    drop(guard);
    assert!(try_lock(&one, "a").is_some());
}

#[tokio::test]
async fn a_waiter_for_a_file_that_is_dropped_leaves_no_trace() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (files(directory.path()), files(directory.path()));
    let guard = try_lock(&one, "a").unwrap();
    let mut waiter = Box::pin(lock(&two, "a"));
    assert!(waiter.as_mut().now_or_never().is_none());
    drop(waiter);
    assert!(try_lock(&two, "a").is_none(), "it took nothing with it");
    drop(guard);
    assert!(names_in(directory.path()).is_empty());

    // The holder leaves the file to the waiter, and the waiter leaves, too.
    let guard = try_lock(&one, "a").unwrap();
    let mut waiter = Box::pin(lock(&two, "a"));
    assert!(waiter.as_mut().now_or_never().is_none());
    drop(guard);
    drop(waiter);
    assert!(names_in(directory.path()).is_empty());
    assert!(try_lock(&one, "a").is_some());
}

#[test]
fn a_lock_file_is_private_named_by_a_hash_and_names_its_holder() {
    let state = TempDir::new().unwrap();
    let directory = state.path().join("locks");
    let locks = files(&directory);
    let guard = try_lock(&locks, "my-secret-session").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = locks.path(&key("my-secret-session"));
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&path), 0o600);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(names_in(&directory), [name]);
    let stem = name.strip_suffix(".lock").unwrap();
    assert!(stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_ne!(path, locks.path(&key("my-secret-session2")));

    let text: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(text["pid"], std::process::id());
    assert_eq!(text["engine"], "lab");
    assert!(text["since"].as_u64().unwrap() > 1_600_000_000);

    let seen = holder_now(&files(&directory), "my-secret-session").unwrap();
    assert_eq!(seen.pid, std::process::id());
    drop(guard);
    assert_eq!(holder_now(&locks, "my-secret-session"), None);
}

#[test]
fn the_name_in_a_lock_file_is_believed_only_while_it_is_locked() {
    let directory = TempDir::new().unwrap();
    let locks = files(directory.path());
    // What a crash leaves: a file with a name in it, and no lock.
    std::fs::write(locks.path(&key("a")), serde_json::to_string(&here()).unwrap()).unwrap();
    assert_eq!(holder_now(&locks, "a"), None);
    let guard = try_lock(&locks, "a").unwrap();
    assert_eq!(holder_now(&locks, "a").map(|holder| holder.pid), Some(std::process::id()));
    drop(guard);
    // Nonsense in it costs the name only.
    std::fs::write(locks.path(&key("a")), "\u{0}nonsense").unwrap();
    drop(try_lock(&locks, "a").unwrap());
}

#[tokio::test]
async fn a_lock_file_removed_by_hand_is_not_taken_from_its_next_owner() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (files(directory.path()), files(directory.path()));
    let first = try_lock(&one, "a").unwrap();
    std::fs::remove_file(one.path(&key("a"))).unwrap();
    let second = try_lock(&two, "a").unwrap();
    drop(first);
    assert!(try_lock(&one, "a").is_none(), "the second still holds it");
    drop(second);
    assert!(try_lock(&one, "a").is_some());
}

#[test]
fn a_lock_directory_that_cannot_be_made_is_an_error_that_names_it() {
    let state = TempDir::new().unwrap();
    let directory = state.path().join("file");
    std::fs::write(&directory, "").unwrap();
    let locks = files(&directory);
    let locked = locks.try_lock(&key("a"), &here(), &NoLeases).now_or_never().unwrap();
    let Err(error) = locked else { panic!("locked in a file") };
    assert!(matches!(&error, LockError::File { .. }));
    let text = error.to_string();
    assert!(text.contains(directory.to_str().unwrap()) && text.contains("TAKOPI_STATE_DIR"));
}

/// Keeps a lease, as an engine does whose process stays warm.
#[derive(Default)]
struct Warm(Mutex<Option<SessionLease>>);

impl LeaseHolder for Warm {
    fn take_lease(&self, _: &SessionKey) -> Option<SessionLease> {
        // One that others wait for is given up.
        self.0.lock().unwrap().take().filter(|lease| !lease.is_wanted())
    }
}

/// Keeps the lease of a run through the runner, which alone can split it off.
async fn leave_warm(test_host: &TestHost, warm: &Arc<Warm>) {
    let keeper = warm.clone();
    let runner = lab_with_files(&test_host.host, move |run| {
        let keeper = keeper.clone();
        async move {
            run.emit(started("a")).await.unwrap();
            *keeper.0.lock().unwrap() = run.keep_lease();
            run.emit(success("")).await.unwrap();
        }
    });
    assert!(end(runner.run(RunRequest::new("go"))).await.ok);
    test_host.host.settle().await;
}

#[tokio::test]
async fn a_lease_keeps_others_out_and_is_taken_over_at_once_by_its_own() {
    let test_host = TestHost::on_test_runtime();
    let warm = Arc::new(Warm::default());
    leave_warm(&test_host, &warm).await;
    let inside = &**test_host.host.session_locks();
    let outside = files(&test_host.directory.path().join("locks"));
    assert!(try_lock(&outside, "a").is_none(), "another process must wait");
    assert!(try_lock(inside, "a").is_none(), "another runner must wait, too");
    let guard =
        inside.try_lock(&key("a"), &here(), &*warm).await.unwrap().expect("the next of its own");
    assert!(warm.0.lock().unwrap().is_none());
    drop(guard);
    assert!(test_host.is_unlocked());
}

#[tokio::test]
async fn a_lease_knows_of_waiters_and_is_given_up_rather_than_handed_on() {
    let test_host = TestHost::on_test_runtime();
    let warm = Arc::new(Warm::default());
    leave_warm(&test_host, &warm).await;
    let is_wanted = || warm.0.lock().unwrap().as_ref().unwrap().is_wanted();
    let outside = files(&test_host.directory.path().join("locks"));
    assert!(!is_wanted());
    let mut waiter = Box::pin(lock(&outside, "a"));
    assert!(waiter.as_mut().now_or_never().is_none());
    assert!(is_wanted());
    // The next run of its own finds it wanted: the lease goes, and the waiter is first.
    let inside = &**test_host.host.session_locks();
    assert!(inside.try_lock(&key("a"), &here(), &*warm).await.unwrap().is_none());
    let guard = waiter.await;
    drop(guard);
    assert!(test_host.is_unlocked());
}

#[tokio::test]
async fn a_run_in_line_takes_the_lease_over_when_its_turn_comes() {
    let test_host = TestHost::on_test_runtime();
    let warm = Arc::new(Warm::default());
    leave_warm(&test_host, &warm).await;
    let inside = test_host.host.session_locks().clone();
    let leases: Arc<dyn LeaseHolder> = warm.clone();
    let guard = inside.lock(key("a"), here(), leases).now_or_never().unwrap().unwrap();
    assert!(warm.0.lock().unwrap().is_none());
    drop(guard);
    assert!(test_host.is_unlocked());
}

/// What one task of the storm does with its key.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Lock,
    TryLock,
    /// Joins the line and leaves it after so many looks.
    GiveUp(u8),
}

fn deeds() -> impl Strategy<Value = Vec<(u8, u8, Deed)>> {
    let deed = prop_oneof![
        3 => Just(Deed::Lock),
        1 => Just(Deed::TryLock),
        2 => (0..4u8).prop_map(Deed::GiveUp),
    ];
    proptest::collection::vec((0..3u8, 0..4u8, deed), 1..60)
}

/// Plays the deeds at once and asserts that no key is ever held twice.
async fn storm(back_ends: Vec<Arc<dyn SessionLocks>>, deeds: Vec<(u8, u8, Deed)>) {
    let inside: Arc<[AtomicUsize; 3]> = Arc::default();
    let mut tasks = JoinSet::new();
    for (number, (name, stay, deed)) in deeds.into_iter().enumerate() {
        let locks = back_ends[number % back_ends.len()].clone();
        let inside = inside.clone();
        tasks.spawn(async move {
            let key = key(&name.to_string());
            let guard = match deed {
                Deed::TryLock => locks.try_lock(&key, &here(), &NoLeases).await.unwrap(),
                Deed::Lock => Some(locks.lock(key, here(), Arc::new(NoLeases)).await.unwrap()),
                Deed::GiveUp(looks) => {
                    let mut waiting = locks.lock(key, here(), Arc::new(NoLeases));
                    let mut guard = None;
                    for _ in 0..=looks {
                        guard = (&mut waiting).now_or_never().map(Result::unwrap);
                        if guard.is_some() {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    guard
                }
            };
            if let Some(guard) = guard {
                let room = &inside[usize::from(name)];
                assert_eq!(room.fetch_add(1, Ordering::SeqCst), 0, "two in one room");
                for _ in 0..stay {
                    tokio::task::yield_now().await;
                }
                room.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
            }
        });
    }
    tasks.join_all().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_interleaving_one_task_at_a_time_and_nothing_is_left(deeds in deeds()) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        let local = LocalLocks::new();
        runtime.block_on(storm(vec![Arc::new(local.clone())], deeds.clone()));
        prop_assert!(local.is_empty());

        let directory = TempDir::new().unwrap();
        let instances = (0..3)
            .map(|_| Arc::new(files(directory.path())) as Arc<dyn SessionLocks>)
            .collect();
        runtime.block_on(storm(instances, deeds));
        prop_assert!(names_in(directory.path()).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_file_is_no_busy_loop() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (files(directory.path()), files(directory.path()));
    let guard = try_lock(&one, "a").unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    let counter = looks.clone();
    let waiter = tokio::spawn(async move {
        let mut waiting = Box::pin(lock(&two, "a"));
        let counted = std::future::poll_fn(|cx| {
            counter.fetch_add(1, Ordering::SeqCst);
            waiting.as_mut().poll(cx)
        });
        counted.await
    });
    tokio::time::sleep(Duration::from_mins(1)).await;
    drop(guard);
    drop(waiter.await.unwrap());
    assert!(looks.load(Ordering::SeqCst) < 60 * 25, "{looks:?} looks in a minute");
}
