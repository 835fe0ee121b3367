//! The fields of a request, read strictly: what is not understood is kept, never dropped.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use takopi_core::runner::{Excerpt, Unrecognized};

/// How long a text may be that people read besides what is asked.
pub(super) const TEXT_BYTES: usize = 16 * 1024;
/// How much of a value that was not understood is kept, and of how many.
const EXCERPT_BYTES: usize = 4 * 1024;
const EXCERPTS: usize = 32;

/// The fields that were not read yet, and what was not understood so far.
#[derive(Debug)]
pub(super) struct Fields {
    left: Map<String, Value>,
    unrecognized: Vec<Unrecognized>,
}

impl Fields {
    pub(super) fn new(fields: Map<String, Value>) -> Self {
        Self { left: fields, unrecognized: Vec::new() }
    }

    /// A text; `None` if it is absent or empty. One that is no text or too long is not understood.
    pub(super) fn text(&mut self, key: &str, max: usize) -> Option<String> {
        let value = self.left.remove(key)?;
        match value {
            Value::Null => None,
            Value::String(text) if text.len() <= max => Some(text).filter(|text| !text.is_empty()),
            odd => {
                self.reject(key, &odd);
                None
            }
        }
    }

    /// A value of a known shape; `None` if it is absent. One of another shape, or too large, is not
    /// understood.
    pub(super) fn typed<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let value = self.left.remove(key).filter(|value| !value.is_null())?;
        let small = value.to_string().len() <= TEXT_BYTES;
        let read = small.then(|| T::deserialize(&value).ok()).flatten();
        if read.is_none() {
            self.reject(key, &value);
        }
        read
    }

    /// Passes over fields that grant nothing, whatever they hold.
    pub(super) fn ignore(&mut self, keys: &[&str]) {
        for key in keys {
            self.left.remove(*key);
        }
    }

    /// Notes a value that was not understood.
    pub(super) fn reject(&mut self, key: &str, value: &Value) {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.unrecognized.push(Unrecognized::new(
            Excerpt::new(key, TEXT_BYTES).text,
            Excerpt::new(&text, EXCERPT_BYTES),
        ));
    }

    /// Notes what was not understood elsewhere.
    pub(super) fn reject_all(&mut self, parts: impl IntoIterator<Item = Unrecognized>) {
        self.unrecognized.extend(parts);
    }

    /// Everything that was not understood, unread fields included. Null is no value.
    pub(super) fn finish(mut self) -> Vec<Unrecognized> {
        for (key, value) in std::mem::take(&mut self.left) {
            if !value.is_null() {
                self.reject(&key, &value);
            }
        }
        let more = self.unrecognized.split_off(self.unrecognized.len().min(EXCERPTS));
        if !more.is_empty() {
            let size = more.iter().map(|part| part.value.text.len() + part.value.omitted).sum();
            let name = format!("{} more fields", more.len());
            self.unrecognized.push(Unrecognized::new(name, Excerpt::left_out(size)));
        }
        self.unrecognized
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: &Value) -> Fields {
        Fields::new(value.as_object().cloned().unwrap())
    }

    #[test]
    fn what_is_odd_long_or_not_read_is_kept_as_not_understood() {
        let long = "x".repeat(TEXT_BYTES + 1);
        let mut fields = fields(&json!({
            "text": "yes", "odd": 7, "long": long, "null": null, "id": { "a": 1 }, "new": [true],
            "number": "seven",
        }));
        assert_eq!(fields.text("text", 3).as_deref(), Some("yes"));
        assert_eq!(fields.text("odd", 9), None);
        assert_eq!(fields.text("long", TEXT_BYTES), None);
        assert_eq!(fields.text("absent", 9), None);
        assert_eq!(fields.typed::<u64>("number"), None);
        fields.ignore(&["id"]);
        let unrecognized = fields.finish();
        let names: Vec<&str> = unrecognized.iter().map(|part| part.field.as_str()).collect();
        assert_eq!(names, ["odd", "long", "number", "new"]);
        assert_eq!(unrecognized[0].value.text, "7");
        assert_eq!(unrecognized[1].value.omitted, TEXT_BYTES + 1 - EXCERPT_BYTES);
        assert_eq!(unrecognized[3].value.text, "[true]");
    }

    #[test]
    fn ten_thousand_unknown_fields_are_counted_and_not_whole() {
        let many: Map<String, Value> = (0..10_000).map(|n| (format!("f{n}"), json!(""))).collect();
        let unrecognized = Fields::new(many).finish();
        assert_eq!(unrecognized.len(), EXCERPTS + 1);
        assert!(!unrecognized[EXCERPTS].value.is_whole());
    }
}
