//! Files between a chat and a project.
//!
//! Promises:
//! - nothing outside of the project is read or written, neither by `..` nor through a symbolic link;
//! - a file of a person never replaces another: it gets a name of its own;
//! - names that usually hold secrets, and git's own files, go neither in nor out.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use thiserror::Error;
use zip::write::SimpleFileOptions;

/// The most files of a zipped directory.
const MOST_FILES: usize = 2000;

/// The longest name of a file of a person, and of its ending, in bytes.
const LONGEST_NAME: usize = 200;
const LONGEST_ENDING: usize = 16;

/// Why a file is not moved. One line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is not in the project.
    #[error("{0} is not inside of the project")]
    Outside(String),
    /// It may hold a secret.
    #[error("{0} may hold secrets and is not transferred")]
    Denied(String),
    /// It does not exist.
    #[error("{0} does not exist")]
    Missing(String),
    /// It is too large.
    #[error("{0} is larger than {1} bytes")]
    TooLarge(String, u64),
    /// It is a directory with too many files.
    #[error("{0} has more than {MOST_FILES} files")]
    TooMany(String),
    /// It cannot be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why not.
        error: io::Error,
    },
}

/// Whether a path stays where it is put: relative, and without `..`.
pub(crate) fn is_plain(path: &Path) -> bool {
    !path.as_os_str().is_empty() && path.components().all(|it| matches!(it, Component::Normal(_)))
}

/// Whether a name is one of a secret, or of git.
fn is_denied(name: &str) -> bool {
    let name = name.trim().to_lowercase();
    let starts =
        [".env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".npmrc", ".pypirc"];
    let ends = [".pem", ".key", ".p12", ".pfx", ".keystore", ".kdbx"];
    let whole = [
        ".git",
        ".ssh",
        ".aws",
        ".gnupg",
        ".kube",
        ".docker",
        "credentials",
        "secrets.toml",
        "secrets.yaml",
        "secrets.yml",
        "secrets.json",
        ".htpasswd",
        ".git-credentials",
    ];
    starts.iter().any(|it| name.starts_with(it))
        || ends.iter().any(|it| name.ends_with(it))
        || whole.contains(&name.as_str())
}

fn denied_in(path: &Path) -> bool {
    path.components().any(|it| is_denied(&it.as_os_str().to_string_lossy()))
}

/// A name that is one component, visible and not too long.
fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ' | '(' | ')');
    let name: String = last.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let name = shortened(name.trim().trim_start_matches('.'));
    if name.is_empty() { "file".to_owned() } else { name }
}

/// A name that file systems accept, with room for a number. Its ending stays.
fn shortened(name: &str) -> String {
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if ending.len() <= LONGEST_ENDING => (stem, format!(".{ending}")),
        _ => (name, String::new()),
    };
    let most = LONGEST_NAME.saturating_sub(ending.len());
    let end = (0..=most.min(stem.len())).rev().find(|end| stem.is_char_boundary(*end));
    format!("{}{ending}", &stem[..end.unwrap_or_default()])
}

/// Writes a file of a person into a directory of the project, and returns its path.
pub fn store(
    project: &Path,
    uploads: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<PathBuf, FileError> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = safe_name(name);
    // The name that the file would get counts too: it may be shorter.
    if is_denied(last) || is_denied(&name) {
        return Err(FileError::Denied(last.to_owned()));
    }
    let fault = |path: &Path| {
        let path = path.display().to_string();
        move |error| FileError::Io { path, error }
    };
    let root = project.canonicalize().map_err(fault(project))?;
    if !is_plain(uploads) {
        return Err(FileError::Outside(uploads.display().to_string()));
    }
    // One level at a time: a link on the way must not lead outside.
    let mut directory = root.clone();
    for part in uploads.components() {
        directory.push(part);
        if directory.symlink_metadata().is_err() {
            std::fs::create_dir(&directory).map_err(fault(&directory))?;
        }
        let real = directory.canonicalize().map_err(fault(&directory))?;
        if !real.starts_with(&root) {
            return Err(FileError::Outside(uploads.display().to_string()));
        }
        directory = real;
    }
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => (stem.to_owned(), format!(".{ending}")),
        _ => (name.clone(), String::new()),
    };
    for number in 0..1000 {
        let name = if number == 0 { name.clone() } else { format!("{stem}-{number}{ending}") };
        let path = directory.join(name);
        // Never follows a link, never replaces a file.
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(bytes).map_err(fault(&path))?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(fault(&path)(error)),
        }
    }
    Err(FileError::Io { path: name, error: io::Error::from(io::ErrorKind::AlreadyExists) })
}

/// A file to send: its name and content.
#[derive(Debug)]
pub struct Outgoing {
    /// The name.
    pub name: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Reads a file of the project, or a directory as a zip archive.
pub fn fetch(project: &Path, path: &str, limit: u64) -> Result<Outgoing, FileError> {
    let shown = path.to_owned();
    let root = project.canonicalize().map_err(|_| FileError::Missing(shown.clone()))?;
    let asked = Path::new(path);
    let inside = asked.is_relative()
        && asked.components().all(|it| matches!(it, Component::Normal(_) | Component::CurDir));
    if !inside {
        return Err(FileError::Outside(shown));
    }
    let real = root.join(asked).canonicalize().map_err(|_| FileError::Missing(shown.clone()))?;
    let Ok(relative) = real.strip_prefix(&root) else { return Err(FileError::Outside(shown)) };
    if denied_in(relative) || denied_in(asked) {
        return Err(FileError::Denied(shown));
    }
    let fault = |error| FileError::Io { path: path.to_owned(), error };
    let name =
        real.file_name().map_or("project".into(), |name| name.to_string_lossy().into_owned());
    if real.is_dir() {
        let bytes = match archive(&real, limit).map_err(fault)? {
            Archive::Done(bytes) => bytes,
            Archive::TooLarge => return Err(FileError::TooLarge(shown, limit)),
            Archive::TooMany => return Err(FileError::TooMany(shown)),
        };
        return Ok(Outgoing { name: format!("{name}.zip"), bytes });
    }
    let metadata = real.metadata().map_err(fault)?;
    if !metadata.is_file() {
        return Err(FileError::Missing(shown));
    }
    if metadata.len() > limit {
        return Err(FileError::TooLarge(shown, limit));
    }
    Ok(Outgoing { name, bytes: std::fs::read(&real).map_err(fault)? })
}

/// What came of an archive.
enum Archive {
    Done(Vec<u8>),
    TooLarge,
    TooMany,
}

/// A directory as a zip archive, without links, secrets and git's files.
fn archive(root: &Path, limit: u64) -> io::Result<Archive> {
    let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let (mut directories, mut files, mut size) = (vec![root.to_owned()], 0, 0);
    while let Some(directory) = directories.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&directory)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (kind, path) = (entry.file_type()?, entry.path());
            if is_denied(&entry.file_name().to_string_lossy()) {
                continue;
            }
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                size += entry.metadata()?.len();
                files += 1;
                if files > MOST_FILES {
                    return Ok(Archive::TooMany);
                }
                if size > limit {
                    return Ok(Archive::TooLarge);
                }
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
                zip.start_file(name, options).map_err(io::Error::other)?;
                zip.write_all(&std::fs::read(&path)?)?;
            }
        }
    }
    Ok(Archive::Done(zip.finish().map_err(io::Error::other)?.into_inner()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn project() -> (TempDir, PathBuf) {
        let root = TempDir::new().unwrap();
        let project = root.path().join("web");
        std::fs::create_dir_all(project.join("src")).unwrap();
        std::fs::write(project.join("src/a.rs"), "a").unwrap();
        std::fs::write(project.join(".env"), "SECRET=1").unwrap();
        std::fs::write(root.path().join("outside"), "x").unwrap();
        (root, project)
    }

    #[test]
    fn files_stay_inside_of_the_project_and_replace_nothing() {
        let (root, project) = project();
        let uploads = Path::new("incoming");
        let path = store(&project, uploads, "../../etc/passwd", b"1").unwrap();
        assert!(path.ends_with("web/incoming/passwd"), "{}", path.display());
        let again = store(&project, uploads, "passwd", b"2").unwrap();
        assert!(again.ends_with("incoming/passwd-1"));
        assert_eq!(std::fs::read(&path).unwrap(), b"1");
        let cut_off = format!("{}.pem{}", "k".repeat(196), "x".repeat(200));
        let spaced = ["server.pem ", " .env", "id_rsa\u{a0}", &cut_off];
        for secret in [".env", "x/.env.local", "id_rsa", "server.PEM"].into_iter().chain(spaced) {
            assert!(
                matches!(store(&project, uploads, secret, b""), Err(FileError::Denied(_))),
                "{secret}"
            );
        }
        symlink(root.path(), project.join("link")).unwrap();
        assert!(matches!(store(&project, Path::new("link"), "a", b""), Err(FileError::Outside(_))));
        assert!(matches!(store(&project, Path::new("../x"), "a", b""), Err(FileError::Outside(_))));
        symlink(root.path().join("outside"), project.join("incoming/taken")).unwrap();
        assert!(store(&project, uploads, "taken", b"new").unwrap().ends_with("taken-1"));
        assert_eq!(std::fs::read(root.path().join("outside")).unwrap(), b"x");
    }

    #[test]
    fn only_files_of_the_project_are_fetched() {
        let (root, project) = project();
        symlink(root.path().join("outside"), project.join("leak")).unwrap();
        symlink(root.path(), project.join("up")).unwrap();
        symlink(project.join(".env"), project.join("harmless")).unwrap();
        let error = |path: &str| fetch(&project, path, 100).unwrap_err();
        for path in ["../outside", "/etc/passwd", "leak", "up/outside", "src/../../outside"] {
            assert!(matches!(error(path), FileError::Outside(_)), "{path}: {}", error(path));
        }
        for path in [".env", "./.env", "harmless", ".git/config"] {
            let error = error(path);
            assert!(
                matches!(error, FileError::Denied(_) | FileError::Missing(_)),
                "{path}: {error}"
            );
        }
        assert!(matches!(error("nope"), FileError::Missing(_)));
        assert_eq!(fetch(&project, "src/a.rs", 100).unwrap().bytes, b"a");
        assert!(matches!(fetch(&project, "src/a.rs", 0), Err(FileError::TooLarge(..))));
    }

    #[test]
    fn a_directory_becomes_an_archive_without_links_and_secrets() {
        let (root, project) = project();
        symlink(root.path().join("outside"), project.join("leak")).unwrap();
        let zipped = fetch(&project, ".", 1000).unwrap();
        let mut archive = zip::ZipArchive::new(io::Cursor::new(zipped.bytes)).unwrap();
        let names: Vec<String> = archive.file_names().map(|it| it.unwrap().into_owned()).collect();
        assert_eq!((names, zipped.name.as_str()), (vec!["src/a.rs".to_owned()], "web.zip"));
        assert!(archive.by_index(0).is_ok());
        assert!(matches!(fetch(&project, "src", 0), Err(FileError::TooLarge(..))));
    }

    #[test]
    fn a_directory_with_too_many_files_is_refused_as_such() {
        let (_root, project) = project();
        for n in 0..=MOST_FILES {
            std::fs::write(project.join(format!("src/{n}")), "").unwrap();
        }
        let error = fetch(&project, "src", 1_000_000).unwrap_err();
        assert_eq!(error.to_string(), "src has more than 2000 files");
    }

    #[test]
    fn a_long_name_is_cut_to_what_file_systems_accept_and_keeps_its_ending() {
        let (_root, project) = project();
        for name in [format!("{}.pdf", "a".repeat(246)), format!("{}.pdf", "𠀀".repeat(80))] {
            for _ in 0..2 {
                let path = store(&project, Path::new("incoming"), &name, b"x").unwrap();
                assert!(path.to_string_lossy().ends_with(".pdf"), "{}", path.display());
            }
        }
    }
}
