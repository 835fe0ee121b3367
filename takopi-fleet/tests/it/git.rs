//! Places in git: the tree of a session goes with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use futures::future::BoxFuture;
use takopi_core::model::{Completed, EngineId, Started};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, SessionScope};
use takopi_core::{EngineRunner, Host, ResumeToken, RunRequest, Runner};
use takopi_fleet::submit::{FleetEngine, FleetOptions};
use takopi_fleet::work::{Served, Travels, Worker, WorkerOptions};
use takopi_tests::runs::{Seen, run};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::lab::{LEASE, Lab};

/// Runs its prompt as a script in its directory; its output is the answer.
struct Shell;

impl Engine for Shell {
    fn id(&self) -> EngineId {
        EngineId::from("shell")
    }

    fn resume_codec(&self) -> ResumeCodec {
        ResumeCodec::new(self.id(), "shell resume", |id| Some(id.to_owned()))
    }

    fn session_scope(&self) -> SessionScope {
        SessionScope::Process
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let token = run.resume.clone();
            let token =
                token.unwrap_or_else(|| ResumeToken::new("shell", Uuid::new_v4().to_string()));
            let _ = run.emit(Started::new(token)).await;
            let directory = run.request.settings.cwd.clone().unwrap();
            let answer = sh(&directory, &run.request.prompt);
            let _ = run.emit(Completed::success("shell", answer)).await;
        })
    }
}

fn sh(directory: &Path, script: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "T")
            .env(format!("GIT_{who}_EMAIL"), "t@example.org");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

struct Fleet {
    lab: Lab,
    dir: tempfile::TempDir,
    origin: PathBuf,
    host: Host,
    stop: CancellationToken,
}

impl Fleet {
    /// Two workers, and a repository with one file in it.
    async fn new() -> Option<Self> {
        let lab = Lab::pg().await?;
        let dir = tempfile::tempdir().unwrap();
        let origin = dir.path().join("origin.git");
        sh(
            dir.path(),
            "git init -q -b main src; cd src; echo 1 >a; git add a; git commit -qm first; git clone -q --bare . ../origin.git",
        );
        let host = Host::builder().state_directory(dir.path().join("host")).build().unwrap();
        let stop = CancellationToken::new();
        for name in ["a", "b"] {
            let mut options = WorkerOptions::new(name, dir.path().join(name));
            options.offers = vec![format!("label:{name}")];
            options.git = ["file".to_owned()].into();
            // What a script did would be done twice if its worker lost the lease.
            options.lease = LEASE;
            let runner = Arc::new(EngineRunner::new(Shell).on(host.clone()));
            let served = Served { runner, version: 0, travels: Travels::Freely };
            let worker = Worker::new(lab.board(), options).engine(served);
            tokio::spawn(worker.serve(stop.clone()));
        }
        Some(Self { lab, dir, origin, host, stop })
    }

    /// Runs a script on a machine, in the repository.
    async fn on(
        &self,
        name: &str,
        session: Option<&ResumeToken>,
        script: &str,
    ) -> (ResumeToken, String) {
        let seen = self.run_in(&self.origin, name, session, script).await;
        (seen.session(), seen.ok().answer.clone())
    }

    /// Runs a script on a machine, in a repository.
    async fn run_in(
        &self,
        repository: &Path,
        name: &str,
        session: Option<&ResumeToken>,
        script: &str,
    ) -> Seen {
        let here = self.dir.path().join("src");
        let mut options = FleetOptions::default();
        options.needs = vec![format!("label:{name}")];
        options.places = vec![(here.clone(), format!("git:file://{}@main", repository.display()))];
        let engine = FleetEngine::new(self.lab.board(), Shell.id(), Shell.resume_codec());
        let runner = engine.options(options).runner().on(self.host.clone());
        let request = RunRequest::new(script).cwd(here);
        let request = match session {
            Some(session) => request.resume(session.clone()),
            None => request,
        };
        run(&runner as &dyn Runner, request).await
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_changes_and_new_files_of_a_session_go_where_it_goes() {
    let Some(fleet) = Fleet::new().await else { return };
    let work =
        "echo 2 >>a; git commit -qam second; echo 3 >>a; echo new >b; mkdir c; echo deep >c/d";
    let (session, _) = fleet.on("a", None, work).await;
    let look = "cat a b c/d; git log --format=%s; git status --porcelain";
    let (_, found) = fleet.on("b", Some(&session), look).await;
    assert_eq!(found, "1\n2\n3\nnew\ndeep\nsecond\nfirst\n M a\n?? b\n?? c/\n");
    fleet.on("b", Some(&session), "rm b; git commit -qam third; echo 4 >>a").await;
    let (_, found) = fleet.on("a", Some(&session), "cat a; ls; git log --format=%s").await;
    assert_eq!(found, "1\n2\n3\n4\na\nc\nthird\nsecond\nfirst\n");
    // Another session begins with what is in the repository.
    let (other, found) = fleet.on("b", None, "cat a; ls; git status --porcelain").await;
    assert_eq!(found, "1\na\n");
    assert_ne!(other, session);
    let sessions = fleet.lab.sql("select count(*) from takopi.session where stays is null").await;
    assert_eq!(sessions, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_tree_cannot_be_pushed_stays() {
    let Some(fleet) = Fleet::new().await else { return };
    let hook = fleet.origin.join("hooks/pre-receive");
    sh(
        fleet.dir.path(),
        &format!("printf '#!/bin/sh\\nexit 1\\n' >{0}; chmod +x {0}", hook.display()),
    );
    let (session, _) = fleet.on("a", None, "echo new >b").await;
    let stays = fleet.lab.sql("select stays from takopi.session").await;
    assert!(stays.contains("its tree could not be pushed"), "{stays}");
    let (_, found) = fleet.on("a", Some(&session), "cat b").await;
    assert_eq!(found, "new\n", "it goes on where it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_an_agent_put_in_the_place_of_its_own_is_not_obeyed() {
    let Some(fleet) = Fleet::new().await else { return };
    let replace = "rm .git; git init -q -b other .; git config core.pager evil; echo new >b";
    let (session, _) = fleet.on("a", None, replace).await;
    let stays = fleet.lab.sql("select count(*) from takopi.session where stays is null").await;
    assert_eq!(stays, "1", "its tree was pushed from the right one");
    let look = "cat a b; git log --format=%s; git status --porcelain";
    let (_, found) = fleet.on("b", Some(&session), look).await;
    assert_eq!(found, "1\nnew\nfirst\n?? b\n");
    fleet.on("b", Some(&session), "git add b; git commit -qm second").await;
    let (_, found) = fleet.on("a", Some(&session), "git log --format=%s").await;
    assert_eq!(found, "second\nfirst\n", "and is gone when the session comes back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_configures_in_git_is_for_its_session_and_not_for_the_worker() {
    let Some(fleet) = Fleet::new().await else { return };
    let ran = fleet.dir.path().join("ran");
    let run = format!("touch {};", ran.display());
    let remote = format!("remote.file://{}", fleet.origin.display());
    let configure = format!(
        "git config user.name Ann
        git config filter.x.clean '{run} cat'; git config filter.x.smudge '{run} cat'
        git config {remote}.uploadpack '{run} git-upload-pack'
        git config {remote}.receivepack '{run} git-receive-pack'
        git config extensions.worktreeConfig true
        git config --worktree core.fsmonitor '{run} false'
        hooks=$(git rev-parse --git-path hooks); mkdir -p $hooks
        for hook in post-checkout pre-push; do
            printf '#!/bin/sh\n{run}' >$hooks/$hook; chmod +x $hooks/$hook
        done
        # As well where one that looks for it finds the worker's own.
        git config --file $(git rev-parse --git-dir)/../../config filter.x.smudge '{run} cat'
        echo new >b; echo '* filter=x' >.gitattributes"
    );
    let (session, _) = fleet.on("a", None, &configure).await;
    assert!(!ran.exists(), "while the tree was pushed");
    let (_, name) = fleet.on("a", None, "git config user.name || echo nobody").await;
    assert_eq!(name, "nobody\n", "another session on that machine");
    assert!(!ran.exists(), "while the repository was fetched and checked out");
    let (_, found) = fleet.on("a", Some(&session), "git config user.name; cat b").await;
    assert_eq!(found, "Ann\nnew\n", "the agent's own settings stay");
    // With its attributes, and placed again where the filter is.
    fleet.on("b", Some(&session), "git config user.name || echo 2 >>b").await;
    let (_, found) = fleet.on("a", Some(&session), "cat b").await;
    assert_eq!(found, "new\n2\n");
    assert!(!ran.exists(), "while the tree came back");
    let stays = fleet.lab.sql("select count(*) from takopi.session where stays is not null").await;
    assert_eq!(stays, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_has_branches_tags_and_worktrees_as_in_any_repository() {
    let Some(fleet) = Fleet::new().await else { return };
    let work = "git checkout -q -b topic; echo 2 >>a; git commit -qam second; git tag v1
        git worktree add -q ../more-$$ v1; cat ../more-$$/a; git worktree remove ../more-$$
        git pack-refs --all; git gc -q; git fsck >/dev/null 2>&1
        git branch --format='%(refname:short)'; git log --format=%s origin/main";
    let (session, found) = fleet.on("a", None, work).await;
    assert_eq!(found, "1\n2\ntopic\nfirst\n");
    let (_, found) = fleet.on("a", Some(&session), "git status --short --branch").await;
    assert_eq!(found, "## topic\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_stashed_is_there_after_another_session_stashed_too() {
    let Some(fleet) = Fleet::new().await else { return };
    let (session, _) = fleet.on("a", None, "echo 2 >>a; git stash -q").await;
    fleet.on("a", None, "echo 3 >>a; git stash -q; git stash pop -q").await;
    let (_, found) = fleet.on("a", Some(&session), "git stash pop -q; cat a").await;
    assert_eq!(found, "1\n2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_git_directory_is_gone_gets_it_again_and_keeps_its_tree() {
    let Some(fleet) = Fleet::new().await else { return };
    let stays = "select count(*) from takopi.session where stays is not null";
    let gone = "rm -r \"$(git rev-parse --git-dir)\"; echo new >b";
    let look = "cat a b; git log --format=%s; git status --porcelain";
    // Before anything of it was stored.
    let (session, _) = fleet.on("a", None, gone).await;
    assert_eq!(fleet.lab.sql(stays).await, "1", "nothing can be pushed");
    let (_, found) = fleet.on("a", Some(&session), look).await;
    assert_eq!(found, "1\nnew\nfirst\n?? b\n");
    assert_eq!(fleet.lab.sql(stays).await, "0");
    // And behind commits of its own, with the worker's whole copy of the repository.
    fleet.on("a", Some(&session), "echo 2 >>a; git commit -qam second; git config x.y z").await;
    let gone = "echo 3 >>a; rm -r \"$(realpath $(git rev-parse --git-dir)/../..)\"";
    fleet.on("a", Some(&session), gone).await;
    let look = "cat a b; git log --format=%s; git status --porcelain; git config x.y";
    let (_, found) = fleet.on("a", Some(&session), look).await;
    assert_eq!(found, "1\n2\n3\nnew\nsecond\nfirst\n M a\n?? b\nz\n");
    let (_, found) = fleet.on("b", Some(&session), "cat a b").await;
    assert_eq!(found, "1\n2\n3\nnew\n", "and travels");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_run_on_a_mirror_that_git_stored_in_another_way() {
    let Some(fleet) = Fleet::new().await else { return };
    fleet.on("a", None, "true").await;
    let mirrors = fleet.dir.path().join("a/git/mirrors");
    let mirror = std::fs::read_dir(mirrors).unwrap().next().unwrap().unwrap().path();
    // As one of before, in the format that its git was configured for; an older git does not know that one.
    let again = format!(
        "rm -r {0}; GIT_DEFAULT_REF_FORMAT=reftable git init -q --bare {0}; git --git-dir {0} config user.name Eve",
        mirror.display()
    );
    sh(fleet.dir.path(), &again);
    let work = "echo 2 >>a; git commit -qam second; git branch topic; git config user.name || true
        git for-each-ref --format='%(refname)' refs/heads; git log --format=%s";
    let (session, found) = fleet.on("a", None, work).await;
    assert_eq!(found, "refs/heads/topic\nsecond\nfirst\n");
    let (_, found) = fleet.on("a", Some(&session), "git log --format=%s topic; cat a").await;
    assert_eq!(found, "second\nfirst\n1\n2\n");
    let stays = fleet.lab.sql("select count(*) from takopi.session where stays is not null").await;
    assert_eq!(stays, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_cannot_be_fetched_is_the_fault_of_the_job_and_not_of_the_machine() {
    let Some(fleet) = Fleet::new().await else { return };
    // `spawn_failed` would make the worker rest, for twice as long each time.
    for number in 0..5 {
        let missing = fleet.dir.path().join(format!("missing{number}.git"));
        let seen = fleet.run_in(&missing, "a", None, "true").await;
        let error = seen.failed("invalid_request").error.clone().unwrap();
        assert!(error.contains(&format!("missing{number}.git cannot be fetched")), "{error}");
    }
    let (_, found) = fleet.on("a", None, "cat a").await;
    assert_eq!(found, "1\n");
}
