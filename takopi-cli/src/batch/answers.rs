//! One file per answer, for `--answers DIR`.
//!
//! The file is named after the job's id. Whatever the id is, the file is in the directory, and two ids never
//! share a file: characters that are not plain are written as `%` and their number.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

use takopi_batch::JobResult;

/// The longest name, without its ending. Most file systems take 255 bytes.
const NAME_BYTES: usize = 120;

/// Where answers are written.
#[derive(Debug)]
pub(super) struct Answers {
    directory: PathBuf,
}

impl Answers {
    /// Creates the directory if needed.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Whether the answer of this result, or a later text, is in its file.
    pub(super) fn has(&self, result: &JobResult) -> bool {
        let written = self.file(&result.id).metadata().and_then(|file| file.modified());
        written.is_ok_and(|written| written >= result.ended.into())
    }

    fn file(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{}.md", file_name(id)))
    }

    /// Writes the answer of a job that has one; an earlier one is replaced as a whole.
    pub(super) fn write(&self, result: &JobResult) -> io::Result<()> {
        if !result.ok {
            return Ok(());
        }
        let file = self.file(&result.id);
        let partial = file.with_extension("md.partial");
        let mut answer = result.answer.clone();
        if !answer.is_empty() && !answer.ends_with('\n') {
            answer.push('\n');
        }
        std::fs::write(&partial, answer)?;
        std::fs::rename(&partial, &file)
    }
}

/// The name of an id's file, without its ending.
fn file_name(id: &str) -> String {
    let mut name = String::new();
    for byte in id.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if plain || (byte == b'.' && !name.is_empty()) {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    if name.len() > NAME_BYTES {
        let mut hash = DefaultHasher::new();
        id.hash(&mut hash);
        name.truncate(NAME_BYTES);
        let _ = write!(name, "%{:016x}", hash.finish());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_in_the_directory_whatever_the_id_is() {
        for (id, name) in [
            ("a1", "a1"),
            ("src/lib.rs", "src%2Flib.rs"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
            (".", "%2E"),
            ("a b", "a%20b"),
            ("ä%", "%C3%A4%25"),
        ] {
            assert_eq!(file_name(id), name);
        }
        let (long, longer) = ("x".repeat(1000), "x".repeat(1001));
        assert!(file_name(&long).len() < 150);
        assert_ne!(file_name(&long), file_name(&longer));
    }
}
