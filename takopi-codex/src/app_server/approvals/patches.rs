//! The patches of a turn, for the requests that name them by item only.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use takopi_core::runner::{ChangeKind, Excerpt, FileChange, Location, Unrecognized};

use crate::app_server::notification::Notification;

/// How much of a patch's diffs is kept.
const DIFF_BYTES: usize = 256 * 1024;
/// How many files of a patch are kept, and how many bytes of their paths.
const FILES: usize = 1000;
const PATH_BYTES: usize = 64 * 1024;
/// How many patches are kept that were started and have not ended.
const PATCHES: usize = 64;

/// The patches that were started and have not ended. Items of a turn and of its sub-agents may have the
/// same ids, so each is known by its thread, too.
#[derive(Debug, Default)]
pub(super) struct Patches {
    by_item: HashMap<(String, String), Stored>,
}

/// A patch, as much of it as is kept.
#[derive(Debug, Default)]
struct Stored {
    changes: Vec<Change>,
    unrecognized: Vec<Unrecognized>,
}

#[derive(Debug)]
struct Change {
    path: String,
    kind: ChangeKind,
    moved_to: Option<String>,
    diff: Option<Excerpt>,
}

#[derive(Deserialize)]
struct ItemParams {
    item: PatchItem,
}

#[derive(Deserialize)]
struct PatchItem {
    #[serde(default)]
    id: String,
    #[serde(default)]
    changes: Value,
}

/// A change on the wire.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireChange {
    path: String,
    kind: WireKind,
    diff: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, tag = "type", rename_all = "snake_case")]
enum WireKind {
    Add {},
    Delete {},
    Update {
        #[serde(alias = "movePath")]
        move_path: Option<String>,
    },
}

impl Patches {
    /// Remembers a patch of this thread that is about to be applied, and forgets one that was.
    pub(super) fn record(&mut self, thread: &str, notification: &Notification) {
        let starts = notification.method == "item/started";
        if !starts && notification.method != "item/completed" {
            return;
        }
        let Some(ItemParams { item }) = notification.parse() else { return };
        let key = (thread.to_owned(), item.id);
        if !starts {
            self.by_item.remove(&key);
        } else if self.by_item.len() < PATCHES {
            self.by_item.insert(key, Stored::read(&item.changes));
        }
    }

    /// The files of a patch of this thread, and what of it was not understood; no files if it is not known.
    pub(super) fn files(
        &self,
        thread: &str,
        item: &str,
        cwd: &Path,
    ) -> (Vec<FileChange>, Vec<Unrecognized>) {
        let key = (thread.to_owned(), item.to_owned());
        let Some(stored) = self.by_item.get(&key) else { return (Vec::new(), Vec::new()) };
        let files = stored.changes.iter().map(|change| {
            let moved_to = change.moved_to.as_ref().map(|path| Location::new(path, cwd));
            let mut file = FileChange::new(change.kind, &change.path, cwd).moved_to(moved_to);
            file.diff.clone_from(&change.diff);
            file
        });
        (files.collect(), stored.unrecognized.clone())
    }
}

impl Stored {
    fn read(changes: &Value) -> Self {
        let mut stored = Self::default();
        let Some(changes) = changes.as_array() else {
            stored.reject("changes", changes);
            return stored;
        };
        let (mut diffs_left, mut paths_left) = (DIFF_BYTES, PATH_BYTES);
        for (n, change) in changes.iter().enumerate() {
            let Ok(change) = WireChange::deserialize(change) else {
                stored.reject(&format!("changes[{n}]"), change);
                continue;
            };
            let (kind, moved_to) = match change.kind {
                WireKind::Add {} => (ChangeKind::Add, None),
                WireKind::Delete {} => (ChangeKind::Delete, None),
                WireKind::Update { move_path } => (ChangeKind::Update, move_path),
            };
            let size = change.path.len() + moved_to.as_ref().map_or(0, String::len);
            if n >= FILES || size > paths_left {
                let name = format!("{} more changes", changes.len() - n);
                stored.unrecognized.push(Unrecognized::new(name, Excerpt::left_out(size)));
                break;
            }
            paths_left -= size;
            let diff = change.diff.map(|diff| Excerpt::new(&as_diff(kind, diff), diffs_left));
            diffs_left -= diff.as_ref().map_or(0, |diff| diff.text.len());
            stored.changes.push(Change { path: change.path, kind, moved_to, diff });
        }
        stored
    }

    fn reject(&mut self, name: &str, value: &Value) {
        const EXCERPT_BYTES: usize = 4 * 1024;
        // Enough to see what it is; the rest would only fill memory.
        if self.unrecognized.len() < 8 {
            let value = Excerpt::new(&value.to_string(), EXCERPT_BYTES);
            self.unrecognized.push(Unrecognized::new(name, value));
        } else if let Some(last) = self.unrecognized.last_mut() {
            last.value.omitted += value.to_string().len();
        }
    }
}

/// Codex gives the content of files that are added or deleted; people want to see a diff.
fn as_diff(kind: ChangeKind, text: String) -> String {
    let sign = match kind {
        ChangeKind::Add => '+',
        ChangeKind::Delete => '-',
        _ => return text,
    };
    let lines = text.split_inclusive('\n').map(|line| format!("{sign}{line}"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn notification(method: &str, item: &Value) -> Notification {
        let params = to_raw_value(&json!({ "item": item })).unwrap();
        Notification::new(method.to_owned(), params)
    }

    fn stored(changes: &Value) -> (Vec<FileChange>, Vec<Unrecognized>) {
        let item = json!({ "type": "fileChange", "id": "c1", "changes": changes });
        let mut patches = Patches::default();
        patches.record("t", &notification("item/started", &item));
        patches.files("t", "c1", Path::new("/w"))
    }

    #[test]
    fn a_patch_is_kept_with_its_diffs_until_it_is_applied() {
        let item = json!({ "type": "fileChange", "id": "c1", "changes": [
            { "path": "/w/src/a.rs", "kind": { "type": "add" }, "diff": "x\ny\n" },
            { "path": "/w/b.rs", "kind": { "type": "update", "move_path": "/w/c.rs" }, "diff": "@@" },
            { "path": "/w/d.rs", "kind": { "type": "update", "move_path": null }, "diff": "@@" },
        ]});
        let mut patches = Patches::default();
        patches.record("t", &notification("item/started", &item));
        let (files, unrecognized) = patches.files("t", "c1", Path::new("/w"));
        assert_eq!(unrecognized, []);
        assert_eq!(files[0].path.to_string(), "src/a.rs");
        assert_eq!(files[0].diff, Some("+x\n+y\n".into()));
        assert_eq!(files[1].moved_to.as_ref().unwrap().to_string(), "c.rs");
        assert_eq!((files[2].kind, &files[2].moved_to), (ChangeKind::Update, &None));
        patches.record("t", &notification("item/completed", &item));
        assert!(patches.files("t", "c1", Path::new("/w")).0.is_empty());
    }

    #[test]
    fn a_change_that_is_not_understood_is_kept_as_such() {
        for odd in [
            json!({ "path": "a", "kind": { "type": "chmod" }, "diff": "" }),
            json!({ "path": "a", "kind": { "type": "add" }, "diff": "", "mode": "0777" }),
            json!({ "path": "a", "kind": { "type": "add", "mode": 7 }, "diff": "" }),
            json!({ "path": ["a"], "kind": { "type": "add" }, "diff": "" }),
            json!("a"),
        ] {
            let (files, unrecognized) = stored(&json!([odd]));
            assert_eq!((files.len(), unrecognized.len()), (0, 1), "{odd}");
            assert_eq!(unrecognized[0].field, "changes[0]");
        }
        assert_eq!(stored(&json!({ "a": 1 })).1[0].field, "changes");
    }

    #[test]
    fn a_patch_is_bounded_and_shows_that_something_is_missing() {
        let change = |n: usize, diff: &str| json!({ "path": format!("{n}"), "kind": { "type": "add" }, "diff": diff });
        let large = "x".repeat(DIFF_BYTES);
        let (files, unrecognized) = stored(&json!([change(0, &large), change(1, "y")]));
        assert_eq!(unrecognized, []);
        assert_eq!(files[0].diff.as_ref().unwrap().omitted, 1);
        assert!(!files[1].diff.as_ref().unwrap().is_whole());
        let many: Vec<Value> = (0..5000).map(|n| change(n, "y")).collect();
        let (files, unrecognized) = stored(&json!(many));
        assert_eq!((files.len(), unrecognized[0].field.as_str()), (FILES, "4000 more changes"));
        assert!(!unrecognized[0].value.is_whole());
    }

    #[test]
    fn a_diff_that_is_absent_is_missing_not_empty() {
        let (files, _) = stored(&json!([{ "path": "a", "kind": { "type": "delete" } }]));
        assert_eq!(files[0].diff, None);
    }
}
