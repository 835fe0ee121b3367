//! The patches of a turn, for the questions that name them by item only.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::app_server::notification::Notification;

/// The changes of every patch whose item was started, without their texts.
#[derive(Debug, Default)]
pub(super) struct Patches {
    by_item: HashMap<String, Vec<Value>>,
}

#[derive(Deserialize)]
struct ItemTold {
    item: PatchItem,
}

#[derive(Deserialize)]
struct PatchItem {
    #[serde(default)]
    id: String,
    #[serde(default)]
    changes: Vec<Value>,
}

impl Patches {
    /// Remembers a patch that is about to be applied, and forgets one that was.
    pub(super) fn hear(&mut self, told: &Notification) {
        let starts = told.method == "item/started";
        if !starts && told.method != "item/completed" {
            return;
        }
        let Some(ItemTold { item }) = told.parse() else { return };
        if starts {
            self.by_item.insert(item.id, item.changes.iter().map(outline).collect());
        } else {
            self.by_item.remove(&item.id);
        }
    }

    /// The changes of a patch: `{path, kind, move_path}` each.
    pub(super) fn of(&self, item: &str) -> Option<&[Value]> {
        self.by_item.get(item).map(Vec::as_slice).filter(|changes| !changes.is_empty())
    }
}

/// A change without its text; its kind is a word.
fn outline(change: &Value) -> Value {
    let kind = change.get("kind");
    let word = kind.and_then(|kind| kind.as_str().or_else(|| kind.get("type")?.as_str()));
    let mut outline = json!({ "path": change.get("path"), "kind": word.unwrap_or("change") });
    let moved = kind.and_then(|kind| kind.get("move_path").or_else(|| kind.get("movePath")));
    if let Some(moved) = moved.filter(|moved| !moved.is_null()) {
        outline["move_path"] = moved.clone();
    }
    outline
}

/// `1 add, 1 update: a.rs, b.rs`
pub(super) fn summary(changes: &[Value]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names = Vec::new();
    for change in changes {
        *kinds.entry(change["kind"].as_str().unwrap_or("change")).or_default() += 1;
        if let Some(path) = change["path"].as_str() {
            let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
            names.push(name.unwrap_or_else(|| path.to_owned()));
        }
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("{}: {}", kinds.join(", "), names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn told(method: &str, item: &Value) -> Notification {
        let params = to_raw_value(&json!({ "item": item })).unwrap();
        Notification::new(method.to_owned(), params)
    }

    #[test]
    fn a_patch_is_summed_up_until_it_is_applied() {
        let item = json!({ "type": "fileChange", "id": "c1", "changes": [
            { "path": "/w/src/a.rs", "kind": { "type": "add" }, "diff": "x" },
            { "path": "/w/b.rs", "kind": { "type": "update", "move_path": "/w/c.rs" }, "diff": "y" },
        ]});
        let mut patches = Patches::default();
        patches.hear(&told("item/started", &item));
        let changes = patches.of("c1").unwrap();
        assert_eq!(summary(changes), "1 add, 1 update: a.rs, b.rs");
        assert_eq!(
            changes[1],
            json!({ "path": "/w/b.rs", "kind": "update", "move_path": "/w/c.rs" })
        );
        patches.hear(&told("item/completed", &item));
        assert!(patches.of("c1").is_none());
    }
}
