//! A git repository to work in.

use std::path::{Path, PathBuf};
use std::process::Command;

use takopi_projects::{Project, Repository};
use tempfile::TempDir;

pub(crate) struct Lab {
    pub(crate) root: TempDir,
}

impl Lab {
    /// A repository with one commit on `main`.
    pub(crate) fn new() -> Self {
        let lab = Self { root: TempDir::new().unwrap() };
        std::fs::create_dir(lab.path()).unwrap();
        lab.git(&["init", "--quiet", "-b", "main"]);
        lab.commit("README");
        lab
    }

    /// The project's directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("web")
    }

    pub(crate) fn project(&self) -> Project {
        Project::new("web", self.path())
    }

    pub(crate) fn repository(&self) -> Repository {
        Repository::open(&self.project()).unwrap()
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(&self.path(), args)
    }

    pub(crate) fn commit(&self, file: &str) {
        commit(&self.path(), file);
    }
}

pub(crate) fn commit(directory: &Path, file: &str) {
    std::fs::write(directory.join(file), file).unwrap();
    git(directory, &["add", "."]);
    git(directory, &["commit", "--quiet", "-m", file]);
}

pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let identity =
        ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
    let output =
        Command::new("git").arg("-C").arg(directory).args(identity).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
