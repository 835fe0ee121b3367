//! The content of a prompt.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use takopi_core::RunRequest;
use takopi_core::images::Image;
use takopi_core::runner::RunError;

use crate::Agent;

/// The prompt of a request, with its images. Blocks on the file system.
pub(crate) fn content(agent: &Agent, request: &RunRequest) -> Result<Vec<Value>, RunError> {
    let images = request.settings.images.iter().map(|file| image(file));
    let mut content = images.collect::<Result<Vec<Value>, RunError>>()?;
    content.push(text(agent, &request.prompt));
    Ok(content)
}

/// A text that is nothing else: one that begins like a command of the agent is kept from being one.
pub(crate) fn text(agent: &Agent, text: &str) -> Value {
    // JavaScript takes a byte order mark for white space.
    let is_space = |c: char| c.is_whitespace() || c == '\u{feff}';
    let is_command = text.trim_start_matches(is_space).starts_with('/');
    let prefix = if is_command { agent.quirks.slash_prefix } else { "" };
    json!({ "type": "text", "text": format!("{prefix}{text}") })
}

fn image(file: &Path) -> Result<Value, RunError> {
    let Image { bytes, media_type, .. } = Image::read(file)?;
    Ok(json!({ "type": "image", "mimeType": media_type, "data": STANDARD.encode(&bytes) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_looks_like_a_command_is_text() {
        let opencode = Agent::preset("opencode").unwrap();
        for prompt in ["/etc/hosts: why?", "  /init", "\u{feff}/init", " \u{feff}\n/init"] {
            assert_eq!(text(&opencode, prompt)["text"], format!("\u{200b}{prompt}"));
        }
        assert_eq!(text(&opencode, "and/or")["text"], "and/or");
    }

    #[test]
    fn images_go_ahead_of_the_text_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (png, other) = (dir.path().join("a.png"), dir.path().join("b.txt"));
        std::fs::write(&png, b"\x89PNG\r\n").unwrap();
        std::fs::write(&other, b"text").unwrap();
        let agent = Agent::preset("gemini").unwrap();
        let content_of = |file: &Path| content(&agent, &RunRequest::new("what?").image(file));
        let sent = content_of(&png).unwrap();
        assert_eq!(
            (&sent[0]["mimeType"], &sent[1]["text"]),
            (&json!("image/png"), &json!("what?"))
        );
        let error = content_of(&other).unwrap_err();
        assert!(error.message.contains("PNG, JPEG, GIF, WebP"), "{error}");
    }
}
