//! Session files on their way between machines, and versions of engines.
//!
//! A session's files are stored in pieces: with each result what was appended to them since the one before, compressed. A file that
//! was not only appended to is stored anew. A session must not reach an older engine than the one that wrote it
//! ([`version_number`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use takopi_core::catalog::PortableFile;
use takopi_core::version::Version;

use crate::board::Piece;

/// How much of a file is read at once.
const CHUNK: usize = 64 * 1024;

/// A version as one number, for comparisons: `0.166.0` is 166,000,000. Anything behind a dash is ignored.
///
/// ```
/// use takopi_fleet::files::version_number;
///
/// assert!(version_number("0.166.0") > version_number("0.125.3"));
/// assert!(version_number("1.0.0-beta.2") > version_number("0.999.999"));
/// assert_eq!(version_number("unknown"), 0);
/// ```
pub fn version_number(version: &str) -> u64 {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = plain.split('.').map(|part| part.parse::<u64>().unwrap_or(0).min(999_999));
    let mut next = || parts.next().unwrap_or(0);
    next() * 1_000_000_000_000 + next() * 1_000_000 + next()
}

/// [`version_number`] of a version.
pub fn number_of(version: Version) -> u64 {
    version_number(&version.to_string())
}

/// Whole files as pieces, to import a session.
pub fn pack(files: &[PortableFile]) -> io::Result<Vec<Piece>> {
    match appended(files, &Inventory::new(), u64::MAX)? {
        Appended::Pieces(pieces, _) => Ok(pieces),
        Appended::TooLarge => Err(io::Error::other("the files are too large")),
    }
}

/// What is stored of the files of a session, by their names.
pub(crate) type Inventory = BTreeMap<String, Stored>;

/// What is stored of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// How long it is.
    bytes: u64,
    /// Of all these bytes, in hexadecimal digits.
    sha256: String,
    /// How many bytes its pieces have.
    packed: u64,
}

/// What has to be stored of the files as they are.
pub(crate) enum Appended {
    /// The pieces, and all that is stored with them.
    Pieces(Vec<Piece>, Inventory),
    /// More than may be stored of one session.
    TooLarge,
}

/// What was appended to files since they were stored. Blocks.
pub(crate) fn appended(
    files: &[PortableFile],
    stored: &Inventory,
    limit: u64,
) -> io::Result<Appended> {
    let (mut pieces, mut now) = (Vec::new(), stored.clone());
    for file in files {
        let (piece, entry) = append(file, stored.get(&file.name), limit)?;
        pieces.extend(piece);
        now.insert(file.name.clone(), entry);
        if now.values().map(|entry| entry.packed).sum::<u64>() > limit {
            return Ok(Appended::TooLarge);
        }
    }
    Ok(Appended::Pieces(pieces, now))
}

fn append(
    file: &PortableFile,
    stored: Option<&Stored>,
    limit: u64,
) -> io::Result<(Option<Piece>, Stored)> {
    let mut content = File::open(&file.path)?;
    let mut hash = Sha256::new();
    let mut start = 0;
    if let Some(stored) = stored {
        start = feed(&mut (&content).take(stored.bytes), |chunk| hash.update(chunk))?;
        if start != stored.bytes || digits(hash.clone()) != stored.sha256 {
            // Not what was stored: all of it again.
            (hash, start) = (Sha256::new(), 0);
            content = File::open(&file.path)?;
        }
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let mut appended = 0;
    let mut chunk = vec![0; CHUNK];
    // One that is too large is not packed to its end.
    while packed.get_ref().len() as u64 <= limit {
        let count = content.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        hash.update(&chunk[..count]);
        packed.write_all(&chunk[..count])?;
        appended += count as u64;
    }
    let data = packed.finish()?;
    let before = stored.filter(|_| start > 0).map_or(0, |stored| stored.packed);
    let is_new = appended > 0 || (start == 0 && stored.is_none_or(|stored| stored.bytes > 0));
    let entry = Stored {
        bytes: start + appended,
        sha256: digits(hash),
        packed: before + if is_new { data.len() as u64 } else { 0 },
    };
    let piece = is_new.then(|| Piece {
        path: file.name.clone(),
        start: i64::try_from(start).unwrap_or(i64::MAX),
        data,
    });
    Ok((piece, entry))
}

/// Writes one stored file, the pieces of which are given in order, to a path. Blocks.
pub(crate) fn unpack(pieces: &[Piece], path: &Path) -> io::Result<Stored> {
    let mut file = File::create(path)?;
    let (mut hash, mut bytes, mut packed) = (Sha256::new(), 0, 0);
    for piece in pieces {
        if u64::try_from(piece.start) != Ok(bytes) {
            let error = format!("a piece of {} is missing at {bytes}", piece.path);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        packed += piece.data.len() as u64;
        let mut failed = Ok(());
        bytes += feed(&mut MultiGzDecoder::new(piece.data.as_slice()), |chunk| {
            hash.update(chunk);
            if failed.is_ok() {
                failed = file.write_all(chunk);
            }
        })?;
        failed?;
    }
    file.sync_all()?;
    Ok(Stored { bytes, sha256: digits(hash), packed })
}

/// How a file is to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// There is none.
    Absent,
    /// They are the same.
    Same,
    /// The other one begins with it.
    Behind,
    /// It begins with the other one.
    Ahead,
    /// None of these.
    Differs,
}

/// How a file, which need not exist, is to another one. Blocks.
pub(crate) fn relation(file: &Path, other: &Path) -> io::Result<Relation> {
    let file = match File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Relation::Absent),
        Err(error) => return Err(error),
    };
    let other = File::open(other)?;
    let (length, of_other) = (file.metadata()?.len(), other.metadata()?.len());
    let common = length.min(of_other);
    let (mut one, mut two) = (file.take(common), other.take(common));
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            break;
        }
        two.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Ok(Relation::Differs);
        }
    }
    Ok(match length.cmp(&of_other) {
        std::cmp::Ordering::Equal => Relation::Same,
        std::cmp::Ordering::Less => Relation::Behind,
        std::cmp::Ordering::Greater => Relation::Ahead,
    })
}

/// Reads to the end and returns how many bytes there were.
fn feed(from: &mut impl io::Read, mut take: impl FnMut(&[u8])) -> io::Result<u64> {
    let (mut chunk, mut bytes) = (vec![0; CHUNK], 0);
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return Ok(bytes);
        }
        take(&chunk[..count]);
        bytes += count as u64;
    }
}

/// A digest in hexadecimal digits.
pub(crate) fn digits(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lab {
        dir: tempfile::TempDir,
        board: BTreeMap<i64, Piece>,
        stored: Inventory,
    }

    impl Lab {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { dir, board: BTreeMap::new(), stored: Inventory::new() }
        }

        /// Stores the file as it is now; how many pieces that took.
        fn store(&mut self, content: &[u8]) -> usize {
            let path = self.dir.path().join("a");
            std::fs::write(&path, content).unwrap();
            let files = [PortableFile { name: "a".to_owned(), path }];
            let Appended::Pieces(pieces, stored) =
                appended(&files, &self.stored, u64::MAX).unwrap()
            else {
                panic!("too large")
            };
            self.stored = stored;
            let count = pieces.len();
            for piece in pieces {
                if piece.start == 0 {
                    self.board.clear();
                }
                self.board.insert(piece.start, piece);
            }
            count
        }

        fn placed(&self) -> Vec<u8> {
            let path = self.dir.path().join("b");
            let pieces: Vec<Piece> = self.board.values().cloned().collect();
            let stored = unpack(&pieces, &path).unwrap();
            assert_eq!(Some(&stored), self.stored.get("a"));
            std::fs::read(path).unwrap()
        }
    }

    #[test]
    fn only_what_was_appended_is_stored_and_all_of_it_comes_back() {
        let mut lab = Lab::new();
        let mut content = Vec::new();
        for turn in 0..5_u8 {
            content.extend(vec![turn; 100_000]);
            assert_eq!(lab.store(&content), 1);
            assert_eq!(lab.board.len(), usize::from(turn) + 1);
            assert_eq!(lab.placed(), content);
            assert_eq!(lab.store(&content), 0, "nothing was appended");
        }
    }

    #[test]
    fn a_file_that_was_changed_or_shortened_is_stored_anew() {
        let mut lab = Lab::new();
        lab.store(b"one two");
        lab.store(b"one two three");
        for content in [b"ONE two three four".as_slice(), b"ONE", b""] {
            assert_eq!(lab.store(content), 1);
            assert_eq!((lab.board.len(), lab.placed()), (1, content.to_vec()));
        }
    }

    #[test]
    fn what_is_larger_than_may_be_stored_is_known_before_it_is_packed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        // Which cannot be compressed.
        let noise: Vec<u8> =
            (0..400_000_u32).flat_map(|n| Sha256::digest(n.to_le_bytes())[..1].to_vec()).collect();
        std::fs::write(&path, noise).unwrap();
        let files = [PortableFile { name: "a".to_owned(), path }];
        let too_large = |limit| {
            matches!(appended(&files, &Inventory::new(), limit).unwrap(), Appended::TooLarge)
        };
        assert!(too_large(1000) && too_large(300_000) && !too_large(500_000));
    }

    #[test]
    fn a_missing_piece_is_an_error() {
        let mut lab = Lab::new();
        lab.store(b"one");
        lab.store(b"one two");
        lab.board.remove(&0);
        let pieces: Vec<Piece> = lab.board.values().cloned().collect();
        assert!(unpack(&pieces, &lab.dir.path().join("b")).is_err());
    }

    #[test]
    fn files_are_compared_by_how_they_begin() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let other = write("other", "abc");
        let of = |text: &str| relation(&write("file", text), &other).unwrap();
        assert_eq!(relation(&dir.path().join("none"), &other).unwrap(), Relation::Absent);
        assert_eq!(of("abc"), Relation::Same);
        assert_eq!(of("ab"), Relation::Behind);
        assert_eq!(of("abcd"), Relation::Ahead);
        assert_eq!(of("abx"), Relation::Differs);
        assert_eq!(of("xbcd"), Relation::Differs);
    }
}
