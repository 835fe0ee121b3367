//! Where a file is, seen from the directory that an agent works in.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A path that an agent wants to write to. Shown relative to the working directory; whole, and
/// marked, when it is outside of it or leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The path, joined to the working directory and without `.` and `..`.
    pub path: PathBuf,
    /// The path from the working directory; `None` if it is outside of it.
    pub relative: Option<PathBuf>,
    /// Where it really is, if symbolic links lead out of the working directory.
    pub leads_to: Option<PathBuf>,
}

impl Location {
    /// The location of a path, as far as its text shows.
    pub fn new(path: impl AsRef<Path>, cwd: &Path) -> Self {
        let cwd = normal(cwd);
        let path = normal(&cwd.join(path));
        let relative = below(&path, &cwd);
        Self { path, relative, leads_to: None }
    }

    /// Whether it is outside of the working directory.
    pub fn is_outside(&self) -> bool {
        self.relative.is_none() || self.leads_to.is_some()
    }

    /// Follows symbolic links. Blocks on the file system.
    pub(crate) fn resolve(&mut self, cwd: &Path) {
        let Ok(cwd) = cwd.canonicalize() else { return };
        match real_path(&self.path) {
            Some(real) if real.starts_with(&cwd) => {
                if self.relative.is_none() {
                    self.relative = below(&real, &cwd);
                }
            }
            Some(real) if real != self.path => self.leads_to = Some(real),
            Some(_) => {}
            // A link to nowhere: what is written there may still arrive somewhere.
            None => self.leads_to = self.path.ancestors().find_map(|part| part.read_link().ok()),
        }
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

/// Where a path leads, though its end may not exist yet; `None` if that is not certain.
pub(crate) fn real_path(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let there = path.ancestors().find(|part| part.symlink_metadata().is_ok())?;
    let rest = path.strip_prefix(there).ok()?;
    let there = there.canonicalize().ok()?;
    // Joining nothing would add a slash.
    Some(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
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
            "dangling/deeper (leads to /nowhere/at/all, outside the working directory)"
        );
        assert_eq!(shown(Path::new("new/file"), &work), "new/file");
        let outside = format!("{}/k (outside the working directory)", keys.display());
        assert_eq!(shown(&keys.join("k"), &work), outside, "by no link");
        assert_eq!(shown(&work.join("file"), &root.join("alias")), "file", "by another name");
    }

    #[test]
    fn where_a_path_leads_is_known_only_if_it_is_absolute_and_goes_straight() {
        assert_eq!(real_path(Path::new("/")), Some(PathBuf::from("/")));
        assert_eq!(real_path(Path::new("/no/such")), Some(PathBuf::from("/no/such")));
        for path in ["no/such", "/no/../such", "../such"] {
            assert_eq!(real_path(Path::new(path)), None, "{path}");
        }
    }
}
