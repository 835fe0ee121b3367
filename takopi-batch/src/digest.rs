//! Sixteen-byte digests of ids and prompts.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The digest of a text. Two texts with the same digest count as the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Digest(Uuid);

impl Digest {
    /// The digest of a text. It is the same on every machine and in every version: files keep it.
    pub(crate) fn of(text: &str) -> Self {
        Self(Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()))
    }

    /// The digest of several texts; where one ends and the next begins counts.
    pub(crate) fn of_all(texts: &[Option<&str>]) -> Self {
        let mut bytes = Vec::new();
        for text in texts {
            match text {
                Some(text) => {
                    bytes.extend((text.len() as u64 + 1).to_le_bytes());
                    bytes.extend(text.as_bytes());
                }
                None => bytes.extend(0_u64.to_le_bytes()),
            }
        }
        Self(Uuid::new_v5(&Uuid::NAMESPACE_OID, &bytes))
    }

    /// A number between 0 and 1 that looks random and is always the same.
    pub(crate) fn fraction(self) -> f64 {
        let (high, _) = self.0.as_u64_pair();
        f64::from((high >> 32) as u32) / f64::from(u32::MAX)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_distinguished_by_where_they_end() {
        let digest = |a, b| Digest::of_all(&[a, b]);
        assert_ne!(digest(Some("ab"), Some("c")), digest(Some("a"), Some("bc")));
        assert_ne!(digest(Some(""), None), digest(None, Some("")));
        assert_eq!(digest(Some("a"), None), digest(Some("a"), None));
    }

    #[test]
    fn a_digest_on_disk_is_read_by_later_versions() {
        let text = serde_json::to_string(&Digest::of("a")).unwrap();
        assert_eq!(text, "\"d720e32d-4765-5177-b65b-42dd7f6e6445\"", "files keep this");
    }
}
