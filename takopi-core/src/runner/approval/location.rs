//! Where a file is, seen from the directory that an agent works in.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A path that an agent wants to write to. Shown relative to the working directory; whole, and
/// marked, when it is outside of it or leads there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Location {
    /// The path, joined to the working directory and without `.` and `..`.
    pub path: PathBuf,
    /// The path from the working directory; `None` if it is outside of it.
    pub relative: Option<PathBuf>,
    /// Where it really is, if symbolic links lead out of the working directory.
    pub leads_to: Option<PathBuf>,
    /// The path as the agent gave it, joined to the working directory. Behind a link `..` is not where the
    /// text suggests.
    given: PathBuf,
}

impl Location {
    /// The location of a path, as far as its text shows.
    pub fn new(path: impl AsRef<Path>, cwd: &Path) -> Self {
        let cwd = normal(cwd);
        let given = cwd.join(path);
        let path = normal(&given);
        let relative = below(&path, &cwd);
        Self { path, relative, leads_to: None, given }
    }

    /// Every path that may be written to: a program may remove `..` by the text, or leave it to the system.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let given = Some(&self.given).filter(|given| **given != self.path);
        std::iter::once(&self.path).chain(given).map(PathBuf::as_path)
    }

    /// Whether it is outside of the working directory.
    pub fn is_outside(&self) -> bool {
        self.relative.is_none() || self.leads_to.is_some()
    }

    /// Follows symbolic links. Blocks on the file system.
    pub(crate) fn resolve(&mut self, cwd: &Path) {
        let Ok(cwd) = cwd.canonicalize() else { return };
        let places: Vec<Option<PathBuf>> = self.paths().map(real_path).collect();
        if self.relative.is_none()
            && let Some(relative) =
                places.first().cloned().flatten().and_then(|it| below(&it, &cwd))
        {
            self.relative = Some(relative);
        }
        self.leads_to = places.into_iter().find_map(|place| match place {
            Some(real) if real.starts_with(&cwd) || real == self.path => None,
            Some(real) => Some(real),
            // A loop, or a directory that cannot be read: it may lead anywhere.
            None => self.path.ancestors().find_map(|part| part.read_link().ok()),
        });
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outside = "outside the working directory";
        let shown = self.relative.as_deref().unwrap_or(&self.path);
        let shown = if shown.as_os_str().is_empty() { Path::new(".") } else { shown };
        match &self.leads_to {
            Some(real) => write!(f, "{} (leads to {}, {outside})", shown.display(), real.display()),
            None if self.is_outside() => write!(f, "{} ({outside})", shown.display()),
            None => write!(f, "{}", shown.display()),
        }
    }
}

/// The rest of a path below a directory.
fn below(path: &Path, directory: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(directory).ok()?;
    let leaves = rest.is_absolute() || rest.components().next() == Some(Component::ParentDir);
    (!leaves).then(|| rest.to_owned())
}

/// A path without `.` and, as far as the text shows, `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match normal.components().next_back() {
                Some(Component::Normal(_)) => {
                    normal.pop();
                }
                // There is nothing above the root.
                Some(Component::RootDir) => {}
                _ => normal.push(".."),
            },
            part => normal.push(part),
        }
    }
    normal
}

/// How many links are followed before it counts as a loop, as in Linux.
const LINKS: usize = 40;

/// Where a path leads, though its end may not exist yet: links are followed, and `..` behind one leaves
/// the directory that it leads to. `None` if that is not certain.
pub(crate) fn real_path(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let parts = |path: &Path| path.components().rev().map(|it| it.as_os_str().to_owned()).collect();
    let mut left: Vec<OsString> = parts(path);
    let mut real = PathBuf::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next()? {
            Component::RootDir => real = PathBuf::from("/"),
            Component::ParentDir => {
                real.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) => return None,
            Component::Normal(name) => {
                let next = real.join(name);
                match next.read_link() {
                    Ok(target) => {
                        links += 1;
                        if links > LINKS {
                            return None;
                        }
                        left.extend::<Vec<_>>(parts(&target));
                    }
                    Err(error) if is_no_link(&error) => real = next,
                    Err(_) => return None,
                }
            }
        }
    }
    Some(real)
}

/// Whether there is something else than a link, or nothing yet.
fn is_no_link(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
    matches!(error.kind(), InvalidInput | NotADirectory | NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_inside_and_whole_and_marked_outside() {
        for (path, cwd, shown) in [
            ("/w/src/a.rs", "/w", "src/a.rs"),
            ("src/./a.rs", "/w", "src/a.rs"),
            ("/w/.git/hooks/pre-commit", "/w", ".git/hooks/pre-commit"),
            ("/w", "/w", "."),
            ("../x", "/w/sub", "/w/x (outside the working directory)"),
            ("/w/sub/../../etc/passwd", "/w", "/etc/passwd (outside the working directory)"),
            ("/w2/a", "/w", "/w2/a (outside the working directory)"),
            ("/../etc/passwd", "/w", "/etc/passwd (outside the working directory)"),
            ("src/lib.rs", ".", "src/lib.rs"),
            ("../lib.rs", ".", "../lib.rs (outside the working directory)"),
            ("/etc/passwd", ".", "/etc/passwd (outside the working directory)"),
        ] {
            assert_eq!(Location::new(path, Path::new(cwd)).to_string(), shown, "{path} in {cwd}");
        }
    }

    #[test]
    fn where_a_path_leads_that_cannot_be_looked_at_is_not_certain() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        assert_eq!(real_path(&directory.join("none")), Some(directory.join("none")));
        // Longer than a name can be.
        assert_eq!(real_path(&directory.join("x".repeat(1000)).join("..")), None);
    }

    #[test]
    fn forty_links_are_followed_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let at = |number: usize| directory.join(number.to_string());
        for number in 0..=LINKS {
            std::os::unix::fs::symlink(at(number), at(number + 1)).unwrap();
        }
        assert_eq!(real_path(&at(LINKS)), Some(at(0)));
        assert_eq!(real_path(&at(LINKS + 1)), None);
    }

    #[test]
    fn links_out_of_the_working_directory_are_shown() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (work, keys) = (root.join("work"), root.join("keys"));
        std::fs::create_dir(&work).unwrap();
        std::fs::create_dir(&keys).unwrap();
        std::os::unix::fs::symlink(&keys, work.join("docs")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", work.join("dangling")).unwrap();
        std::os::unix::fs::symlink(&work, root.join("alias")).unwrap();
        let shown = |path: &Path, cwd: &Path| {
            let mut location = Location::new(path, cwd);
            location.resolve(cwd);
            location.to_string()
        };
        let out = format!("docs/k (leads to {}/k, outside the working directory)", keys.display());
        assert_eq!(shown(Path::new("docs/k"), &work), out);
        assert_eq!(
            shown(Path::new("dangling"), &work),
            "dangling (leads to /nowhere/at/all, outside the working directory)"
        );
        assert_eq!(
            shown(Path::new("dangling/deeper"), &work),
            "dangling/deeper (leads to /nowhere/at/all/deeper, outside the working directory)"
        );
        assert_eq!(shown(Path::new("new/file"), &work), "new/file");
        let outside = format!("{}/k (outside the working directory)", keys.display());
        assert_eq!(shown(&keys.join("k"), &work), outside, "by no link");
        assert_eq!(shown(&work.join("file"), &root.join("alias")), "file", "by another name");
    }

    #[test]
    fn parent_directories_behind_a_link_are_those_of_its_target() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (work, deep) = (root.join("work"), root.join("keys/deep"));
        std::fs::create_dir(&work).unwrap();
        std::fs::create_dir_all(&deep).unwrap();
        std::os::unix::fs::symlink(&deep, work.join("docs")).unwrap();
        std::os::unix::fs::symlink("sub/missing", work.join("inside")).unwrap();
        std::os::unix::fs::symlink("../missing", work.join("above")).unwrap();
        std::os::unix::fs::symlink("loop", work.join("loop")).unwrap();
        let shown = |path: &str| {
            let mut location = Location::new(path, &work);
            location.resolve(&work);
            location.to_string()
        };
        let outside = |shown: &str, real: &str| {
            let real = root.join(real);
            format!("{shown} (leads to {}, outside the working directory)", real.display())
        };
        assert_eq!(shown("docs/../authorized"), outside("authorized", "keys/authorized"));
        assert_eq!(shown("sub/../a.rs"), "a.rs");
        assert_eq!(shown("inside"), "inside", "the target is in the directory");
        assert_eq!(shown("above"), outside("above", "missing"));
        assert!(shown("loop").contains("outside"), "where it leads is not known");
    }

    #[test]
    fn where_a_path_leads_is_known_only_if_it_is_absolute() {
        for (path, real) in
            [("/", "/"), ("/no/such", "/no/such"), ("/no/../such", "/such"), ("/../such", "/such")]
        {
            assert_eq!(real_path(Path::new(path)), Some(PathBuf::from(real)), "{path}");
        }
        for path in ["no/such", "../such"] {
            assert_eq!(real_path(Path::new(path)), None, "{path}");
        }
    }
}
