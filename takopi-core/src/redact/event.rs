//! Which texts of an event are redacted.

use std::borrow::Cow;

use serde_json::Value;

use super::scan::is_secret;
use super::{REDACTED, redact};
use crate::model::{ActionEvent, ActionKind, Level, TakopiEvent};

/// Details that quote an engine's error, in actions of any kind.
const ERROR_DETAILS: [&str; 4] = ["stderr_tail", "error_message", "error", "reason"];

/// Removes credentials from the texts of an event that are about a failure.
pub(crate) fn redact_event(event: &mut TakopiEvent) {
    match event {
        TakopiEvent::Started(_) => {}
        TakopiEvent::Action(event) => redact_action(event),
        TakopiEvent::Completed(completed) => {
            if let Some(error) = &mut completed.error {
                redact_string(error);
            }
        }
    }
}

fn redact_action(event: &mut ActionEvent) {
    let action = &mut event.action;
    // What an approval asks for is shown as it is.
    if action.kind == ActionKind::Approval {
        return;
    }
    let warns = action.kind == ActionKind::Warning || event.level >= Some(Level::Warning);
    let failed = event.ok == Some(false);
    if warns {
        redact_string(&mut action.title);
    }
    if (warns || failed)
        && let Some(message) = &mut event.message
    {
        redact_string(message);
    }
    for (name, value) in action.detail.iter_mut() {
        if warns && action.kind == ActionKind::Warning || ERROR_DETAILS.contains(&name) {
            redact_member(name, value);
        }
    }
}

/// Removes credentials from every text in a JSON value; as in JSON that is text, names tell what is one.
pub fn redact_value(value: &mut Value) {
    match value {
        Value::String(text) => redact_string(text),
        Value::Array(values) => values.iter_mut().for_each(redact_value),
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| redact_member(name, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn redact_member(name: &str, value: &mut Value) {
    match value {
        Value::String(text) if is_secret(name, text) => REDACTED.clone_into(text),
        value => redact_value(value),
    }
}

fn redact_string(text: &mut String) {
    if let Cow::Owned(clean) = redact(text) {
        *text = clean;
    }
}
