//! What the service checks in a message before it accepts it. The texts of the errors are the service's.

use serde_json::Value;

/// The longest text, in UTF-16 units.
const LONGEST: usize = 4096;
/// The longest data of a button, in bytes.
const LONGEST_DATA: usize = 64;

const KINDS: [&str; 9] = [
    "bold",
    "italic",
    "underline",
    "strikethrough",
    "spoiler",
    "code",
    "pre",
    "text_link",
    "blockquote",
];

/// Checks text, entities and buttons.
pub(super) fn message(params: &Value) -> Result<(), String> {
    let text = params["text"].as_str().unwrap_or_default();
    if text.trim().is_empty() {
        return Err("Bad Request: message text is empty".to_owned());
    }
    if !params["parse_mode"].is_null() {
        return Err("Bad Request: can't parse entities: this fake reads `entities` only".to_owned());
    }
    let units = text.encode_utf16().count();
    if units > LONGEST {
        return Err("Bad Request: message is too long".to_owned());
    }
    entities(text, units, &params["entities"])?;
    buttons(&params["reply_markup"])
}

fn entities(text: &str, units: usize, entities: &Value) -> Result<(), String> {
    let cannot = |why: String| Err(format!("Bad Request: can't parse entities: {why}"));
    // Where characters begin and end.
    let mut seams = vec![false; units + 1];
    let mut at = 0;
    for c in text.chars() {
        seams[at] = true;
        at += c.len_utf16();
    }
    seams[units] = true;
    let mut open: Vec<(usize, usize, String)> = Vec::new();
    let mut before = 0;
    for entity in entities.as_array().into_iter().flatten() {
        let kind = entity["type"].as_str().unwrap_or_default();
        if !KINDS.contains(&kind) {
            return cannot(format!("unsupported type {kind:?}"));
        }
        let number = |name: &str| entity[name].as_u64().and_then(|it| usize::try_from(it).ok());
        let (Some(offset), Some(length)) = (number("offset"), number("length")) else {
            return cannot("offset and length must be numbers".to_owned());
        };
        let end = offset + length;
        if length == 0 || end > units || !seams[offset] || !seams[end] {
            return cannot(format!("entity {kind} at {offset}+{length} of {units}"));
        }
        if offset < before {
            return cannot("entities are not in order".to_owned());
        }
        before = offset;
        open.retain(|(_, outer_end, _)| *outer_end > offset);
        for (_, outer_end, outer) in &open {
            if end > *outer_end {
                return cannot(format!("{kind} overlaps {outer}"));
            }
            if outer == "code" || outer == "pre" {
                return cannot(format!("{kind} inside of {outer}"));
            }
        }
        if kind == "text_link" && entity["url"].as_str().is_none_or(str::is_empty) {
            return cannot("a link without a url".to_owned());
        }
        open.push((offset, end, kind.to_owned()));
    }
    Ok(())
}

fn buttons(markup: &Value) -> Result<(), String> {
    let rows = markup["inline_keyboard"].as_array().into_iter().flatten();
    for button in rows.filter_map(Value::as_array).flatten() {
        let label = button["text"].as_str().unwrap_or_default();
        let data = button["callback_data"].as_str().unwrap_or_default();
        if label.is_empty() {
            return Err("Bad Request: button text must be non-empty".to_owned());
        }
        if data.is_empty() || data.len() > LONGEST_DATA {
            return Err("Bad Request: BUTTON_DATA_INVALID".to_owned());
        }
    }
    Ok(())
}
