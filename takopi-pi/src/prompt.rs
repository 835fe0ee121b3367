//! The line that carries a prompt, and how it is kept plain text.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use takopi_core::RunRequest;
use takopi_core::images::Image;
use takopi_core::runner::RunError;

/// A prompt as pi is to get it. pi takes a slash at the very beginning for a command, a skill or a
/// template; a space ahead of it keeps the text what it is.
pub(crate) fn inert(text: &str) -> String {
    if text.starts_with('/') { format!(" {text}") } else { text.to_owned() }
}

/// The fields of a `prompt` command. Blocks on the file system.
pub(crate) fn prompt(request: &RunRequest) -> Result<Value, RunError> {
    let mut fields = json!({ "message": inert(&request.prompt) });
    if !request.settings.images.is_empty() {
        let images = request.settings.images.iter().map(|file| image(file));
        fields["images"] = images.collect::<Result<Vec<Value>, RunError>>()?.into();
    }
    Ok(fields)
}

fn image(file: &Path) -> Result<Value, RunError> {
    let Image { bytes, media_type, .. } = Image::read(file)?;
    Ok(json!({ "type": "image", "data": STANDARD.encode(&bytes), "mimeType": media_type }))
}

#[cfg(test)]
mod tests {
    use takopi_core::Reason;

    use super::*;

    #[test]
    fn a_prompt_is_text_whatever_it_begins_with() {
        assert_eq!(inert("/skill:x"), " /skill:x");
        assert_eq!(inert("@file and !ls"), "@file and !ls");
        assert_eq!(inert("a /b"), "a /b");
    }

    #[test]
    fn images_go_with_the_text_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (png, other) = (dir.path().join("a.png"), dir.path().join("b.txt"));
        std::fs::write(&png, b"\x89PNG\r\n").unwrap();
        std::fs::write(&other, b"text").unwrap();
        let fields = prompt(&RunRequest::new("what is it?").image(&png)).unwrap();
        assert_eq!(fields["images"][0]["mimeType"], "image/png");
        assert_eq!(fields["images"][0]["data"], "iVBORw0K");
        let error = prompt(&RunRequest::new("and this?").image(&other)).unwrap_err();
        assert_eq!(error.reason, Reason::InvalidRequest);
        assert!(error.message.contains("PNG, JPEG, GIF, WebP"), "{error}");
    }
}
