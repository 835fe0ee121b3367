//! Placeholders of a script and what stands for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The values of placeholders, ready to stand inside a JSON string.
#[derive(Clone, Debug, Default)]
pub struct Vars {
    values: HashMap<&'static str, String>,
    sequence: Arc<AtomicU64>,
}

impl Vars {
    /// Values that share a `$SEQ` with all other values of the process.
    pub(crate) fn new(sequence: Arc<AtomicU64>) -> Self {
        Self { values: HashMap::new(), sequence }
    }

    /// Lets `$name` stand for a text, escaped as in a JSON string.
    pub fn set(&mut self, name: &'static str, text: &str) {
        let quoted = serde_json::to_string(text).expect("a string is JSON");
        self.set_json(name, quoted[1..quoted.len() - 1].to_owned());
    }

    /// Lets `$name` stand for JSON, as it is.
    pub fn set_json(&mut self, name: &'static str, json: String) {
        self.values.insert(name, json);
    }

    /// Replaces the placeholders that are known; any other `$` stays.
    pub fn fill(&self, template: &str) -> String {
        let mut filled = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(at) = rest.find('$') {
            let (before, behind) = rest.split_at(at);
            filled.push_str(before);
            let name = &behind[1..];
            let end = name.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(name.len());
            let (name, after) = name.split_at(end);
            match self.values.get(name) {
                Some(value) => filled.push_str(value),
                None if name == "SEQ" => {
                    let next = self.sequence.fetch_add(1, Ordering::Relaxed);
                    filled.push_str(&next.to_string());
                }
                None => {
                    filled.push('$');
                    filled.push_str(name);
                }
            }
            rest = after;
        }
        filled.push_str(rest);
        filled
    }
}
