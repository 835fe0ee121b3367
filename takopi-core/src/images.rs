//! Images that go with a prompt, for engines that send them and not their paths.

use std::path::Path;

use crate::model::Reason;
use crate::runner::RunError;

/// An image of a kind that every model takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Image {
    /// All of the file.
    pub bytes: Vec<u8>,
    /// Its kind, such as `image/png`.
    pub media_type: &'static str,
}

impl Image {
    /// Reads a file; its kind is told by how it begins. Blocks on the file system.
    pub fn read(file: &Path) -> Result<Self, RunError> {
        let refused = |error: String| {
            let error = format!("the image {} {error}", file.display());
            RunError::new(Reason::InvalidRequest, error)
        };
        let bytes =
            std::fs::read(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
        let media_type = media_type(&bytes).ok_or_else(|| {
            refused("is of no kind that can be sent: PNG, JPEG, GIF, WebP".to_owned())
        })?;
        Ok(Self { bytes, media_type })
    }
}

fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}
