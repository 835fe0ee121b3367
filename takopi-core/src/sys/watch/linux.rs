//! Files are watched with inotify: one instance and one thread for all of a process, so that neither the
//! number of instances a user may have nor the caller's runtime matters. The thread starts with the first
//! watch and sleeps while nothing changes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::sync::Notify;

/// Watches one file.
#[derive(Debug)]
pub(crate) struct FileWatch {
    /// `None` if it cannot be watched.
    place: Option<WatchDescriptor>,
    changed: Arc<Notify>,
}

impl FileWatch {
    /// Watches the file that is at this path now.
    pub(crate) fn new(path: &Path) -> Self {
        let changed = Arc::new(Notify::new());
        let place = watcher().and_then(|watcher| watcher.add(path, &changed));
        Self { place, changed }
    }

    /// Resolves when the file was changed since the last call, or since it is watched. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        self.changed.notified().await;
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        if let (Some(place), Some(watcher)) = (self.place, watcher()) {
            watcher.remove(place, &self.changed);
        }
    }
}

/// All watches of the process.
struct Watcher {
    inotify: Inotify,
    /// Two watches of one file share its place.
    watches: Mutex<HashMap<WatchDescriptor, Vec<Arc<Notify>>>>,
}

/// The watcher; `None` if there can be none.
fn watcher() -> Option<&'static Watcher> {
    static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();
    static THREAD: OnceLock<bool> = OnceLock::new();
    let watcher = WATCHER.get_or_init(|| {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).ok()?;
        Some(Watcher { inotify, watches: Mutex::default() })
    });
    let watcher = watcher.as_ref()?;
    let runs = THREAD.get_or_init(|| {
        let thread = std::thread::Builder::new().name("takopi-watch".to_owned());
        thread.spawn(|| watcher.run()).is_ok()
    });
    runs.then_some(watcher)
}

impl Watcher {
    fn watches(&self) -> MutexGuard<'_, HashMap<WatchDescriptor, Vec<Arc<Notify>>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &Path, changed: &Arc<Notify>) -> Option<WatchDescriptor> {
        let changes = AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_DELETE_SELF;
        // Under the mutex: the watch of another waiter for the file must not be removed in between.
        let mut watches = self.watches();
        let place = self.inotify.add_watch(path, changes).ok()?;
        watches.entry(place).or_default().push(changed.clone());
        Some(place)
    }

    fn remove(&self, place: WatchDescriptor, changed: &Arc<Notify>) {
        let mut watches = self.watches();
        let Some(waiting) = watches.get_mut(&place) else { return };
        waiting.retain(|other| !Arc::ptr_eq(other, changed));
        if waiting.is_empty() {
            watches.remove(&place);
            // Of a file that was removed there is no watch any more.
            let _ = self.inotify.rm_watch(place);
        }
    }

    /// Passes changes on, for as long as the process lives.
    fn run(&self) {
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            let watches = self.watches();
            for event in events {
                for changed in watches.get(&event.wd).into_iter().flatten() {
                    changed.notify_one();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn changes_by_others_are_noticed_by_all_who_watch() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let mut watches = [FileWatch::new(&path), FileWatch::new(&path)];
        for change in ["touch", "close", "remove"] {
            match change {
                "touch" => file.set_modified(SystemTime::UNIX_EPOCH).unwrap(),
                "close" => drop(File::options().write(true).open(&path).unwrap()),
                _ => std::fs::remove_file(&path).unwrap(),
            }
            for watch in &mut watches {
                timeout(LIMIT, watch.changed()).await.expect(change);
            }
        }
    }

    #[tokio::test]
    async fn a_watch_that_is_dropped_does_not_end_the_other_one_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let (first, mut second) = (FileWatch::new(&path), FileWatch::new(&path));
        let place = first.place.unwrap();
        drop(first);
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        timeout(LIMIT, second.changed()).await.unwrap();
        drop(second);
        assert!(!watcher().unwrap().watches().contains_key(&place));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_watched_is_never_changed() {
        let mut watch = FileWatch::new(Path::new("/nonexistent/file"));
        assert!(futures::FutureExt::now_or_never(watch.changed()).is_none());
    }
}
