//! The line that carries a prompt.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};
use takopi_core::RunRequest;
use takopi_core::images::Image;
use takopi_core::runner::RunError;
use uuid::Uuid;

use crate::launch::InertPrompts;

/// A message of the user, as one line.
#[derive(Debug, Serialize)]
pub(crate) struct UserMessage {
    #[serde(rename = "type")]
    kind: &'static str,
    message: Body,
    parent_tool_use_id: Option<&'static str>,
    /// Names the message in its result.
    pub(crate) uuid: String,
    /// Nothing in it is expanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_composed: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Body {
    role: &'static str,
    content: Value,
}

impl UserMessage {
    /// A message that is text and nothing else.
    pub(crate) fn new(text: &str, inert: InertPrompts) -> Self {
        Self {
            kind: "user",
            message: Body { role: "user", content: inert_text(text, inert).into() },
            parent_tool_use_id: None,
            uuid: Uuid::new_v4().to_string(),
            client_composed: (inert == InertPrompts::Marked).then_some(true),
        }
    }

    /// The prompt of a request, with its images. Blocks on the file system.
    pub(crate) fn of(request: &RunRequest, inert: InertPrompts) -> Result<Self, RunError> {
        let mut message = Self::new(&request.prompt, inert);
        if !request.settings.images.is_empty() {
            let images = request.settings.images.iter().map(|file| image(file));
            let mut blocks = images.collect::<Result<Vec<Value>, RunError>>()?;
            let text = inert_text(&request.prompt, inert);
            blocks.push(json!({ "type": "text", "text": text }));
            message.message.content = blocks.into();
        }
        Ok(message)
    }
}

fn inert_text(text: &str, inert: InertPrompts) -> String {
    match inert {
        InertPrompts::Escaped if text.starts_with('/') => format!(" {text}"),
        _ => text.to_owned(),
    }
}

fn image(file: &Path) -> Result<Value, RunError> {
    let Image { bytes, media_type, .. } = Image::read(file)?;
    let data = STANDARD.encode(&bytes);
    let source = json!({ "type": "base64", "media_type": media_type, "data": data });
    Ok(json!({ "type": "image", "source": source }))
}

#[cfg(test)]
mod tests {
    use takopi_core::Reason;

    use super::*;

    #[test]
    fn a_prompt_is_text_whatever_it_begins_with() {
        let line = |text, inert| serde_json::to_value(UserMessage::new(text, inert)).unwrap();
        let marked = line("/clear @/etc/passwd", InertPrompts::Marked);
        assert_eq!(marked["message"]["content"], "/clear @/etc/passwd");
        assert_eq!(marked["client_composed"], true);
        let escaped = line("/clear", InertPrompts::Escaped);
        assert_eq!(escaped["message"]["content"], " /clear");
        assert_eq!(escaped.get("client_composed"), None);
        assert_eq!(line("a /b", InertPrompts::Escaped)["message"]["content"], "a /b");
    }

    #[test]
    fn images_go_ahead_of_the_text_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (png, other) = (dir.path().join("a.png"), dir.path().join("b.txt"));
        std::fs::write(&png, b"\x89PNG\r\n").unwrap();
        std::fs::write(&other, b"text").unwrap();
        let request = RunRequest::new("what is it?").image(&png);
        let line = UserMessage::of(&request, InertPrompts::Marked).unwrap();
        let content = &serde_json::to_value(line).unwrap()["message"]["content"];
        assert_eq!(content[0]["source"]["media_type"], "image/png");
        assert_eq!(content[0]["source"]["data"], "iVBORw0K");
        assert_eq!(content[1]["text"], "what is it?");
        let request = RunRequest::new("and this?").image(&other);
        let error = UserMessage::of(&request, InertPrompts::Marked).unwrap_err();
        assert_eq!(error.reason, Reason::InvalidRequest);
        assert!(error.message.contains("PNG, JPEG, GIF, WebP"), "{error}");
    }
}
