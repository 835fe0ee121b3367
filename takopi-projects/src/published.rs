//! What of a directory other machines can get: the repository's address, and the commit that is checked out.
//!
//! It is refused if they would work with something else than what is here: changes that are not committed, a commit that no branch of the
//! remote has. What the remote has is what was last fetched or pushed; nothing is asked over the network. Credentials in an
//! address are left out.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::git::{Git, GitError};

/// A commit that other machines can get.
///
/// ```no_run
/// use takopi_projects::{Git, Published};
///
/// let found = Published::of(&Git::default(), "/home/me/app/src".as_ref())?;
/// println!("{} at {}", found.commit, found.url);
/// # Ok::<(), takopi_projects::PublishedError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The top directory of the repository here.
    pub root: PathBuf,
    /// The address of the remote: `https://…`, `ssh://…`, `git@HOST:…` or `file:///…`.
    pub url: String,
    /// The commit that is checked out.
    pub commit: String,
}

/// Why other machines cannot work with what is in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// It is in no git repository, or nothing is committed there.
    #[error("{} has no commit of a git repository: {error}", .path.display())]
    NoCommit {
        /// The directory.
        path: PathBuf,
        /// What git says.
        error: GitError,
    },
    /// Something is not committed.
    #[error("{} has changes that are not committed, such as {change}: commit and push them first", .path.display())]
    Dirty {
        /// The repository.
        path: PathBuf,
        /// One of the changed files.
        change: String,
    },
    /// There is no remote.
    #[error("the repository {} has no remote: add one, and push", .0.display())]
    NoRemote(PathBuf),
    /// No branch of the remote has the commit.
    #[error("{} is at a commit that {remote} does not have: push it first", .path.display())]
    NotPushed {
        /// The repository.
        path: PathBuf,
        /// The name of the remote.
        remote: String,
    },
    /// The address of the remote is of a kind that is not supported.
    #[error("the address of {0} is not https://, ssh://, HOST:PATH or a directory")]
    Address(String),
}

impl Published {
    /// What other machines can get of the repository of this directory.
    pub fn of(git: &Git, directory: &Path) -> Result<Self, PublishedError> {
        let none = |error| PublishedError::NoCommit { path: directory.to_owned(), error };
        let ask = |args: &[&str]| git.run(directory, args).map(|text| text.trim_end().to_owned());
        let root = PathBuf::from(ask(&["rev-parse", "--show-toplevel"]).map_err(none)?);
        let commit = ask(&["rev-parse", "--verify", "HEAD^{commit}"]).map_err(none)?;
        let changes = git.run(&root, ["status", "--porcelain"]).map_err(none)?;
        if let Some(change) = changes.lines().next() {
            let change = change.get(3..).unwrap_or(change).to_owned();
            return Err(PublishedError::Dirty { path: root, change });
        }
        let branch = ask(&["branch", "--show-current"]).unwrap_or_default();
        let upstream = ask(&["config", "--get", &format!("branch.{branch}.remote")]);
        let remotes = ask(&["remote"]).unwrap_or_default();
        let known = |name: &String| remotes.lines().any(|remote| remote == name);
        let remote = upstream.ok().filter(known);
        let remote = remote.or_else(|| Some("origin".to_owned()).filter(known));
        let remote = remote.or_else(|| remotes.lines().next().map(str::to_owned));
        let remote = remote.ok_or_else(|| PublishedError::NoRemote(root.clone()))?;
        let branches = format!("refs/remotes/{remote}/");
        let with =
            ["for-each-ref", "--count=1", "--contains=HEAD", "--format=%(refname)", &branches];
        if ask(&with).unwrap_or_default().is_empty() {
            return Err(PublishedError::NotPushed { path: root, remote });
        }
        let url = ask(&["remote", "get-url", "--", &remote]).ok();
        let url = url.and_then(|url| address(&url, &root));
        let url = url.ok_or(PublishedError::Address(remote))?;
        Ok(Self { root, url, commit })
    }
}

/// The address of a remote without credentials, as others can use it.
fn address(url: &str, root: &Path) -> Option<String> {
    if let Some((scheme @ ("https" | "ssh"), rest)) = url.split_once("://") {
        let (host, path) = rest.split_once('/')?;
        let (user, host) = host.rsplit_once('@').unwrap_or(("", host));
        // The name of an account is part of an address of ssh; a password is part of none.
        let user = user.split(':').next().filter(|user| scheme == "ssh" && !user.is_empty());
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        return Some(format!("{scheme}://{user}{host}/{path}"));
    }
    if let Some(path) = url.strip_prefix("file://") {
        return Some(format!("file://{path}"));
    }
    let before = url.split('/').next().unwrap_or_default();
    if before.contains(':') {
        let is_plain = !url.contains("://") && !url.contains("::");
        return is_plain.then(|| url.to_owned());
    }
    let path = root.join(url).canonicalize().ok()?;
    path.to_str().map(|path| format!("file://{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_credentials() {
        let shown = |url: &str| address(url, Path::new("/"));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown("https://me:secret@h/acme/app.git"), some("https://h/acme/app.git"));
        assert_eq!(shown("https://token@h:8443/acme/app"), some("https://h:8443/acme/app"));
        assert_eq!(shown("ssh://git:secret@h/acme/app"), some("ssh://git@h/acme/app"));
        assert_eq!(shown("git@h:acme/app.git"), some("git@h:acme/app.git"));
        assert_eq!(shown("/tmp"), some("file:///tmp"));
        assert_eq!(shown("tmp"), some("file:///tmp"));
        for url in ["http://h/acme/app", "ext::sh -c id", "git://h/a/b", "/no/such/directory"] {
            assert_eq!(shown(url), None, "{url}");
        }
    }
}
