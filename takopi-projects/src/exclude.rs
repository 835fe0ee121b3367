//! Keeps directories out of `git status`, without a change to the project's files: they are named in the
//! repository's own `info/exclude`, which all its worktrees share.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use crate::git::{Git, GitError};

/// Where a repository lists what git ignores, in what its worktrees share.
pub(crate) const FILE: &str = "info/exclude";

/// Keeps a directory out of `git status`: `inside` of `directory`, which is a worktree or lies in one. Does nothing if
/// it is not in a repository, or if git ignores it already. Blocks for a moment.
pub fn keep_out_of_status(directory: &Path, inside: &Path) -> io::Result<()> {
    let git = Git::default();
    let asked = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-prefix"];
    let answer = match git.run(directory, asked) {
        Ok(answer) => answer,
        Err(error @ GitError::TimedOut { .. }) => return Err(io::Error::other(error)),
        Err(GitError::Failed(_) | GitError::Missing { .. }) => return Ok(()),
    };
    let mut lines = answer.lines();
    let common = lines.next().unwrap_or_default();
    let prefix = lines.next().unwrap_or_default();
    let Some(inside) = inside.to_str() else { return Ok(()) };
    exclude(&git, directory, Path::new(common), prefix, inside)
}

/// The same, if this is known: the directory is `prefix` of its worktree, which shares `common`.
pub(crate) fn exclude(
    git: &Git,
    directory: &Path,
    common: &Path,
    prefix: &str,
    inside: &str,
) -> io::Result<()> {
    if git.agrees(directory, &["check-ignore", "--quiet", "--", &format!("{inside}/x")]) {
        return Ok(());
    }
    let line = format!("/{}{}/", literal(prefix), literal(inside));
    let path = common.join(FILE);
    std::fs::create_dir_all(common.join("info"))?;
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    if before.lines().any(|it| it == line) {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let newline = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{newline}{line}\n").as_bytes())
}

/// A pattern that means these characters and no others.
fn literal(path: &str) -> String {
    let escaped = |c: char| {
        let special = matches!(c, '\\' | '*' | '?' | '[');
        special.then_some('\\').into_iter().chain([c])
    };
    path.chars().flat_map(escaped).collect()
}
