//! A text with the entities of Telegram's Bot API.

use serde_json::{Value, json};

use super::{RichStyle, RichText};

/// A text for Telegram: `text` and `entities` of `sendMessage` and `editMessageText`, without a
/// `parse_mode`. Nothing in the text needs to be escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TelegramText {
    /// The text.
    pub text: String,
    /// By their offset; one comes before those that it contains. Telegram ignores all but the first
    /// hundred.
    pub entities: Vec<Entity>,
}

impl TelegramText {
    /// The entities as the Bot API expects them: an array.
    pub fn entities_json(&self) -> Value {
        self.entities.iter().map(Entity::to_json).collect()
    }
}

/// A styled part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entity {
    /// Its beginning, in UTF-16 units.
    pub offset: usize,
    /// Its length, in UTF-16 units; at least one.
    pub length: usize,
    /// Its style.
    pub style: RichStyle,
}

impl Entity {
    /// The `MessageEntity` of the Bot API.
    pub fn to_json(&self) -> Value {
        let mut entity = json!({
            "type": match self.style {
                RichStyle::Bold => "bold",
                RichStyle::Italic => "italic",
                RichStyle::Strikethrough => "strikethrough",
                RichStyle::Code => "code",
                RichStyle::CodeBlock { .. } => "pre",
                RichStyle::Link(_) => "text_link",
                RichStyle::Quote => "blockquote",
            },
            "offset": self.offset,
            "length": self.length,
        });
        match &self.style {
            RichStyle::Link(url) => entity["url"] = url.as_str().into(),
            RichStyle::CodeBlock { language: Some(language) } => {
                entity["language"] = language.as_str().into();
            }
            _ => {}
        }
        entity
    }
}

impl RichText {
    /// The text with entities.
    pub fn telegram(&self) -> TelegramText {
        let mut places: Vec<usize> =
            self.spans.iter().flat_map(|span| [span.range.start, span.range.end]).collect();
        places.sort_unstable();
        places.dedup();
        // One pass over the text, however many ranges there are.
        let (mut bytes, mut units) = (0, 0);
        let units: Vec<usize> = places
            .iter()
            .map(|place| {
                units += self.text[bytes..*place].encode_utf16().count();
                bytes = *place;
                units
            })
            .collect();
        let unit = |place: usize| places.binary_search(&place).map_or(0, |at| units[at]);
        let entities = self.spans.iter().map(|span| {
            let offset = unit(span.range.start);
            Entity { offset, length: unit(span.range.end) - offset, style: span.style.clone() }
        });
        TelegramText { text: self.text.clone(), entities: entities.collect() }
    }
}
