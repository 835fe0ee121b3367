//! A branch has one worktree.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use takopi_projects::{Git, Project, Repository};
use takopi_tests::executable::write_executable;

use crate::lab::{Lab, commit, git};

fn error(repository: &Repository, branch: &str) -> String {
    let error = repository.directory(branch).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

#[test]
fn a_branch_gets_a_worktree_and_keeps_it() {
    let lab = Lab::new();
    let repository = lab.repository();
    let first = repository.directory("fix/parser").unwrap();
    assert!(first.starts_with(lab.path().join(".worktrees")), "{}", first.display());
    assert_eq!(git(&first, &["branch", "--show-current"]), "fix/parser");
    assert_eq!(repository.directory("fix/parser").unwrap(), first);
    assert_eq!(Repository::open(&lab.project()).unwrap().directory("fix/parser").unwrap(), first);
    assert_eq!(lab.git(&["status", "--porcelain"]), "", "kept out of git's status");
    assert_eq!(repository.count(), 1);
}

#[test]
fn a_worktree_is_found_again_whoever_created_it() {
    let lab = Lab::new();
    let by_hand = lab.path().join(".worktrees/by-hand");
    lab.git(&["worktree", "add", "--quiet", "-b", "topic", by_hand.to_str().unwrap()]);
    assert_eq!(lab.repository().directory("topic").unwrap(), by_hand);
}

#[test]
fn the_branch_of_the_project_itself_runs_in_the_project() {
    let lab = Lab::new();
    assert_eq!(lab.repository().directory("main").unwrap(), lab.path());
}

#[test]
fn an_existing_branch_is_checked_out_and_a_new_one_starts_from_the_base() {
    let lab = Lab::new();
    lab.git(&["branch", "old"]);
    lab.commit("second");
    lab.git(&["branch", "dev"]);
    lab.commit("third");
    let head = |name: &str| lab.git(&["rev-parse", name]);
    let repository = Repository::open(&lab.project().base("dev")).unwrap();
    let old = repository.directory("old").unwrap();
    assert_eq!(git(&old, &["rev-parse", "HEAD"]), head("old"));
    let new = repository.directory("new").unwrap();
    assert_eq!(git(&new, &["rev-parse", "HEAD"]), head("dev"));
    let from_current = lab.repository().directory("newer").unwrap();
    assert_eq!(git(&from_current, &["rev-parse", "HEAD"]), head("main"));
}

#[test]
fn a_new_branch_starts_from_the_default_branch_of_the_remote() {
    let lab = Lab::new();
    lab.git(&["checkout", "--quiet", "-b", "theirs"]);
    lab.commit("theirs");
    lab.git(&["checkout", "--quiet", "main"]);
    let clone = lab.root.path().canonicalize().unwrap().join("clone");
    git(lab.root.path(), &["clone", "--quiet", lab.path().to_str().unwrap(), "clone"]);
    commit(&clone, "local only");
    let repository = Repository::open(&Project::new("clone", &clone)).unwrap();
    assert_eq!(repository.base(), "refs/remotes/origin/main");
    let new = repository.directory("new").unwrap();
    assert_eq!(git(&new, &["rev-parse", "HEAD"]), lab.git(&["rev-parse", "main"]));
    let theirs = repository.directory("theirs").unwrap();
    assert_eq!(git(&theirs, &["rev-parse", "HEAD"]), lab.git(&["rev-parse", "theirs"]));
    assert_eq!(git(&theirs, &["rev-parse", "--abbrev-ref", "@{upstream}"]), "origin/theirs");
}

#[test]
fn unusual_names_are_safe() {
    let lab = Lab::new();
    let repository = lab.repository();
    for branch in
        ["größe/日本", "a+b,c", "x@y", "percent%41", "semi;colon", "$(id)", "'quote'", "Fix"]
    {
        let directory = repository.directory(branch).unwrap();
        assert_eq!(directory.parent().unwrap(), lab.path().join(".worktrees"), "{branch}");
        assert_eq!(git(&directory, &["branch", "--show-current"]), branch);
    }
    assert_ne!(repository.directory("a/b").unwrap(), repository.directory("a-b").unwrap());
    for refused in [
        "-x", "--force", "..", "a..b", "a b", "x.lock", "/x", "x/", "@{-1}", "HEAD", "a\nb", "~x",
        "",
    ] {
        assert!(
            error(&repository, refused).contains("is not a name that git accepts"),
            "{refused}"
        );
    }
    assert!(error(&repository, &"x".repeat(251)).contains("is too long"));
    assert!(repository.directory(&format!("{}/y", "x".repeat(250))).unwrap().is_dir());
}

#[test]
fn a_branch_that_is_checked_out_elsewhere_is_named_with_its_place() {
    let lab = Lab::new();
    let elsewhere = lab.root.path().canonicalize().unwrap().join("elsewhere");
    lab.git(&["worktree", "add", "--quiet", "-b", "taken", elsewhere.to_str().unwrap()]);
    let said = error(&lab.repository(), "taken");
    assert_eq!(
        said,
        format!(
            "branch taken is checked out at {}; switch that to another branch, or work there",
            elsewhere.display()
        )
    );
}

#[test]
fn a_path_that_is_in_use_is_not_touched() {
    let lab = Lab::new();
    let occupied = lab.path().join(".worktrees/topic");
    std::fs::create_dir_all(&occupied).unwrap();
    std::fs::write(occupied.join("mine"), "x").unwrap();
    assert!(error(&lab.repository(), "topic").contains("exists and is not empty; move it away"));
    assert!(occupied.join("mine").exists());
    std::fs::remove_dir_all(&occupied).unwrap();
    symlink("/etc", &occupied).unwrap();
    assert!(
        error(&lab.repository(), "topic").contains("exists and is not empty"),
        "a link that leaves"
    );
}

#[test]
fn a_worktree_whose_directory_was_deleted_is_created_again() {
    let lab = Lab::new();
    let first = lab.repository().directory("topic").unwrap();
    commit(&first, "work");
    std::fs::remove_dir_all(&first).unwrap();
    let again = lab.repository().directory("topic").unwrap();
    assert!(again.join("work").exists(), "its commits are there");
}

#[test]
fn a_project_that_is_missing_or_no_repository_is_named() {
    let root = tempfile::TempDir::new().unwrap();
    let missing = Project::new("web", root.path().join("nope"));
    let said = Repository::open(&missing).unwrap_err().to_string();
    assert!(
        said.starts_with("project web: the directory ") && said.contains("does not exist"),
        "{said}"
    );
    let plain = Project::new("web", root.path());
    let said = Repository::open(&plain).unwrap_err().to_string();
    assert!(said.contains("is not a git repository"), "{said}");
    git(root.path(), &["init", "--quiet", "-b", "main"]);
    let said = error(&Repository::open(&plain).unwrap(), "topic");
    assert!(said.ends_with("the repository has no commits yet"), "{said}");
    git(root.path(), &["init", "--quiet", "--bare", "bare"]);
    let bare = Project::new("bare", root.path().join("bare"));
    assert!(Repository::open(&bare).unwrap_err().to_string().contains("with a work tree"));
}

#[test]
fn a_base_that_does_not_exist_is_named() {
    let lab = Lab::new();
    let repository = Repository::open(&lab.project().base("--output=x")).unwrap();
    assert!(error(&repository, "topic").contains("cannot start branch topic from --output=x"));
}

#[test]
fn a_worktree_is_never_inside_another_one() {
    let lab = Lab::new();
    let topic = lab.repository().directory("topic").unwrap();
    // A project that is itself a linked worktree: new ones go beside it.
    let inner = Repository::open(&Project::new("inner", &topic)).unwrap();
    let other = inner.directory("other").unwrap();
    assert_eq!(other.parent(), topic.parent());
    let nested = lab.project().worktrees(topic.join("deeper"));
    let said = error(&Repository::open(&nested).unwrap(), "third");
    assert!(said.contains("would be inside the worktree"), "{said}");
    // Nor through a link.
    symlink(&topic, lab.path().join("link")).unwrap();
    let linked = lab.project().worktrees("link/deeper");
    assert!(error(&Repository::open(&linked).unwrap(), "third").contains("would be inside"));
}

#[test]
fn a_project_below_the_top_of_its_repository_stays_there() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path().join("api")).unwrap();
    commit(&lab.path().join("api"), "api.rs");
    let repository = Repository::open(&Project::new("api", lab.path().join("api"))).unwrap();
    let directory = repository.directory("topic").unwrap();
    assert!(directory.ends_with("topic/api") && directory.join("api.rs").exists());
}

#[test]
fn variables_of_a_hook_do_not_point_git_at_another_repository() {
    // Set for a process of its own: the variables of this one belong to all tests.
    if std::env::var_os("GIT_DIR").is_some() {
        let path = std::env::var_os("TAKOPI_TEST_PROJECT").unwrap();
        Repository::open(&Project::new("web", path)).unwrap().directory("topic").unwrap();
        return;
    }
    let lab = Lab::new();
    let name = "variables_of_a_hook_do_not_point_git_at_another_repository";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("worktrees::{name}")]);
    command.env("GIT_DIR", "/nope").env("TAKOPI_TEST_PROJECT", lab.path());
    assert!(command.output().unwrap().status.success());
    assert_eq!(lab.repository().count(), 1);
}

#[test]
fn a_hook_gets_no_secrets() {
    const PATH: &str = "TAKOPI_TEST_SECRETS";
    // Set for a process of its own: the variables of this one belong to all tests.
    if let Some(path) = std::env::var_os(PATH) {
        Repository::open(&Project::new("web", path)).unwrap().directory("topic").unwrap();
        return;
    }
    let lab = Lab::new();
    let seen = lab.path().join("seen");
    let script = format!("#!/bin/sh\nenv > '{}'\n", seen.display());
    write_executable(&lab.path().join(".git/hooks/post-checkout"), &script);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worktrees::a_hook_gets_no_secrets"]).env(PATH, lab.path());
    for name in ["TAKOPI_TELEGRAM_TOKEN", "TAKOPI_TOKEN", "TAKOPI_FLEET", "PGPASSWORD"] {
        command.env(name, "hunter2");
    }
    assert!(command.output().unwrap().status.success());
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains(PATH) && !seen.contains("hunter2"), "{seen}");
}

/// Many processes at once: each test binary that is started creates the same worktree.
#[test]
fn processes_that_create_the_same_worktree_at_once_end_with_one() {
    const PATH: &str = "TAKOPI_TEST_RACE";
    if let Some(path) = std::env::var_os(PATH) {
        let directory =
            Repository::open(&Project::new("web", path)).unwrap().directory("race").unwrap();
        println!("DIRECTORY={}", directory.display());
        return;
    }
    let lab = Lab::new();
    let name = "worktrees::processes_that_create_the_same_worktree_at_once_end_with_one";
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(PATH, lab.path());
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..6).map(|_| start()).collect();
    let mut directories = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        directories
            .push(text.lines().find_map(|it| it.split_once("DIRECTORY=")).unwrap().1.to_owned());
    }
    directories.dedup();
    assert_eq!(directories.len(), 1);
    assert_eq!(lab.repository().count(), 1);
}

/// A git that fails as it does on a full disk, behind the branch; the real one cannot be made to everywhere.
#[test]
fn a_full_disk_is_one_clear_line_and_leaves_no_branch() {
    let lab = Lab::new();
    let script = lab.root.path().join("git");
    for said in ["unable to write file big", "cannot create directory: No space left on device"] {
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *'worktree add'*) git -C {} branch topic; \
             echo 'Preparing worktree' >&2; echo 'error: {said}' >&2; \
             echo \"fatal: Could not reset index file to revision 'HEAD'.\" >&2; exit 128;; esac\n\
             exec git \"$@\"\n",
            lab.path().display()
        );
        write_executable(&script, &text);
        let repository = Repository::open_with(&lab.project(), Git::at(&script)).unwrap();
        let directory = lab.path().join(".worktrees");
        assert_eq!(
            error(&repository, "topic"),
            format!(
                "cannot create the worktree of topic: {said}; is there room on the disk of {}?",
                directory.display()
            )
        );
        assert_eq!(lab.git(&["branch", "--list", "topic"]), "", "the branch is not left behind");
    }
}

#[test]
fn a_submodule_and_a_repository_with_a_separate_git_directory_are_their_own_directories() {
    let lab = Lab::new();
    let root = lab.root.path().canonicalize().unwrap();
    let file = ["-c", "protocol.file.allow=always"];
    let add = ["submodule", "--quiet", "add", root.join("web").to_str().unwrap(), "sub"]
        .map(str::to_owned);
    git(&root, &["init", "--quiet", "outer"]);
    let args: Vec<&str> = file.into_iter().chain(add.iter().map(String::as_str)).collect();
    git(&root.join("outer"), &args);
    let separate = ["init", "--quiet", "--separate-git-dir", "elsewhere.git", "apart"];
    git(&root, &separate);
    commit(&root.join("apart"), "README");
    for directory in [root.join("outer/sub"), root.join("apart")] {
        let repository = Repository::open(&Project::new("web", &directory)).unwrap();
        assert_eq!(repository.main_directory(), directory);
        let branch = repository.directory("topic").unwrap();
        assert_eq!(branch, directory.join(".worktrees/topic"));
        assert!(branch.join("README").exists());
        assert_eq!(git(&directory, &["status", "--porcelain"]), "", "worktrees are kept out");
        assert_eq!(repository.directory("topic").unwrap(), branch, "found again");
        assert_eq!(repository.count(), 1);
        // The branch of the directory itself runs there.
        let current = repository.current().unwrap();
        assert_eq!(repository.directory(&current).unwrap(), directory);
    }
    // Git knows where the submodule of a worktree is.
    let inside = Project::new("web", root.join("outer/sub/.worktrees/topic"));
    let inside = Repository::open(&inside).unwrap();
    assert_eq!(inside.main_directory(), root.join("outer/sub"));
}

#[test]
fn a_directory_is_kept_out_of_the_status_of_all_worktrees() {
    let lab = Lab::new();
    let top = lab.repository().directory("topic").unwrap();
    let below = top.join("a [b]");
    std::fs::create_dir(&below).unwrap();
    let excludes = || std::fs::read_to_string(lab.path().join(".git/info/exclude")).unwrap();
    for directory in [&top, &below] {
        std::fs::create_dir(directory.join("incoming*")).unwrap();
        std::fs::write(directory.join("incoming*/notes"), "x").unwrap();
        assert_ne!(git(&top, &["status", "--porcelain"]), "");
        takopi_projects::keep_out_of_status(directory, Path::new("incoming*")).unwrap();
        assert_eq!(git(&top, &["status", "--porcelain"]), "");
        let once = excludes();
        takopi_projects::keep_out_of_status(directory, Path::new("incoming*")).unwrap();
        assert_eq!(excludes(), once);
    }
    std::fs::write(lab.path().join("incoming-too"), "x").unwrap();
    assert_ne!(lab.git(&["status", "--porcelain"]), "", "only that name");
    // Where there is no repository there is nothing to do.
    takopi_projects::keep_out_of_status(lab.root.path(), Path::new("incoming")).unwrap();
}

#[test]
fn git_that_hangs_is_stopped_with_what_it_started() {
    let lab = Lab::new();
    let (git, started) = (lab.root.path().join("git"), lab.root.path().join("started"));
    let script = format!("#!/bin/sh\nsleep 1000 &\necho $! > {}\nwait\n", started.display());
    write_executable(&git, &script);
    let git = Git::at(&git).limit(Duration::from_millis(300));
    let error = Repository::open_with(&lab.project(), git).unwrap_err().to_string();
    assert!(error.contains("git rev-parse did not end within 0.3 s and was stopped"), "{error}");
    // On a busy machine the script may not have come that far.
    let pid = std::fs::read_to_string(started).unwrap_or_default();
    if let Ok(pid) = pid.trim().parse::<u32>() {
        while is_running(pid) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_worktree_that_git_could_not_complete_is_created_by_the_next_call() {
    let lab = Lab::new();
    let gate = lab.root.path().join("gate");
    let hook = lab.path().join(".git/hooks/post-checkout");
    let script = format!("#!/bin/sh\nif [ ! -e {} ]; then sleep 1000; fi\n", gate.display());
    write_executable(&hook, &script);
    // Long enough for all calls but the one with the hook, also on a busy machine.
    let ends_in_the_hook = [5, 50, 200].into_iter().any(|seconds| {
        let brief = Git::default().limit(Duration::from_secs(seconds));
        let hanging = Repository::open_with(&lab.project(), brief).unwrap();
        let error = hanging.directory("topic").unwrap_err().to_string();
        error.contains(&format!("git worktree did not end within {seconds} s"))
    });
    assert!(ends_in_the_hook);
    std::fs::write(gate, "").unwrap();
    let made = lab.repository().directory("topic").unwrap();
    assert!(made.join("README").is_file());
    assert_eq!(git(&made, &["status", "--porcelain"]), "");
}

/// Whether a process exists that is not only waiting for its parent.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|it| !it.trim().is_empty() && !it.trim().starts_with('Z'))
}
