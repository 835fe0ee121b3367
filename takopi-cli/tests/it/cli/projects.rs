//! `takopi projects`, `--project`, `--branch`, and directives before a prompt.

use std::process::{Command, Stdio};

use super::lab::{Lab, Ran};

fn git(lab: &Lab, args: &[&str]) {
    let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
    let mut command = Command::new("git");
    command.arg("-C").arg(lab.path("work")).args(identity).args(args);
    assert!(command.output().unwrap().status.success(), "{args:?}");
}

/// A repository in the working directory.
fn lab() -> Lab {
    let lab = Lab::new();
    git(&lab, &["init", "--quiet", "-b", "main"]);
    git(&lab, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
    lab
}

fn run(lab: &Lab, args: &[&str]) -> Ran {
    let all: Vec<&str> = ["run", "--engine", "demo"].iter().chain(args).copied().collect();
    lab.run(&all)
}

#[test]
fn a_repository_is_added_listed_and_used() {
    let lab = lab();
    let none = lab.run(&["projects"]);
    assert!(none.stderr.contains("no projects; `takopi projects add`"), "{none:?}");
    let added = lab.run(&["projects", "add", "web"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let again = lab.run(&["projects", "add", "web"]);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("project web exists: "), "{again:?}");
    let taken = lab.run(&["projects", "add", "codex"]);
    assert!(taken.stderr.contains("has the name of an engine"), "{taken:?}");
    let listed = lab.run(&["projects"]);
    assert!(listed.stdout.starts_with("web ") && listed.stdout.contains("on main, 0 worktrees"));

    let ran = run(&lab, &["/web", "@fix/parser", "hello", "there"]);
    assert!(ran.stdout.contains("You said: hello there"), "{ran:?}");
    let ran = run(&lab, &["/web @fix/parser hello"]);
    assert!(ran.stdout.contains("You said: hello\n"), "{ran:?}");
    let ran = run(&lab, &["\n\n  /web @lines\n\nhello\nthere"]);
    assert!(ran.stdout.contains("You said: hello\nthere"), "{ran:?}");
    assert!(lab.path("work/.worktrees/lines").is_dir());
    let ran = run(&lab, &["--project", "WEB", "--branch", "other", "/web hello"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(lab.run(&["projects"]).stdout.contains("3 worktrees"));
    let pruned = lab.run(&["projects", "prune"]);
    assert_eq!(pruned.stdout.matches("web: removed ").count(), 3, "{pruned:?}");
    assert!(lab.run(&["projects"]).stdout.contains("0 worktrees"));
}

const FILE: &str = "home/.config/takopi/config.toml";

#[test]
fn the_engine_of_the_prompt_or_of_the_session_counts_more_than_that_of_the_project() {
    let lab = lab();
    let path = lab.path("work");
    lab.write(FILE, &format!("[projects.web]\npath = {path:?}\nengine = \"codex\"\n"));
    let ran = lab.run(&["run", "/web /demo hello"]);
    assert!(ran.stdout.contains("You said: hello"), "{ran:?}");
    // The last lines, as a person copies them.
    let begin = ran.stderr.find("ctx: web").expect("where it ran");
    let again = lab.run(&["run", "--resume", &ran.stderr[begin..], "again"]);
    assert!(again.stdout.contains("You said: again"), "{again:?}");
    let typed = lab.run(&["run", "--engine", "codex", "/web /demo hello"]);
    assert_eq!(typed.code, Some(2), "{typed:?}");
    assert!(typed.stderr.contains("the engine is codex, and the prompt names demo; name one"));
}

#[test]
fn names_that_an_agent_gave_to_files_do_not_control_the_terminal() {
    let lab = lab();
    lab.run(&["projects", "add", "web"]);
    run(&lab, &["/web @done hello"]);
    git(&lab, &["config", "core.excludesFile", lab.write("ignored", "*.log\n").to_str().unwrap()]);
    lab.write("work/.worktrees/done/x\x1b]52;c;eA==\x07.log", "");
    let pruned = lab.run(&["projects", "prune"]);
    assert!(pruned.stdout.contains("ignored files went with it: x"), "{pruned:?}");
    assert!(pruned.stdout.chars().all(|it| it == '\n' || !it.is_control()), "{pruned:?}");
}

#[test]
fn projects_that_are_added_at_once_leave_one_valid_configuration() {
    let lab = lab();
    let mut add: Vec<_> = (0..12)
        .map(|n| {
            let name = format!("web{}", n % 6);
            let mut command = lab.takopi(&["projects", "add", &name]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let ended = add.iter_mut().map(|it| it.wait().unwrap().code());
    let added = ended.filter(|code| *code == Some(0)).count();
    assert_eq!(added, 6, "of two with one name one is added");
    let listed = lab.run(&["projects"]);
    assert_eq!((listed.code, listed.stdout.lines().count()), (Some(0), 6), "{listed:?}");
}

#[test]
fn a_project_is_added_only_if_the_configuration_stays_valid() {
    let lab = lab();
    let inline = "projects = { other = { path = \"/srv/other\" } }\n";
    let file = lab.write(FILE, inline);
    let refused = lab.run(&["projects", "add", "web"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("[projects.web] cannot be added to the file as it is"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), inline);
    lab.write(FILE, "");
    for name in ["new", "cancel", "file", "switch"] {
        let taken = lab.run(&["projects", "add", name]);
        assert_eq!(taken.code, Some(2), "{taken:?}");
        assert!(taken.stderr.contains("is a command of takopi's chats"), "{taken:?}");
    }
    // A link to the file of another directory stays one.
    let real = lab.write("home/dotfiles/takopi.toml", "model = 'm'");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();
    assert_eq!(lab.run(&["projects", "add", "web"]).code, Some(0));
    assert!(file.symlink_metadata().unwrap().is_symlink());
    let written = std::fs::read_to_string(&real).unwrap();
    assert!(written.starts_with("model = 'm'\n\n[projects.web]\npath = "), "{written}");
}

#[test]
fn what_cannot_be_is_one_line_and_a_usage_error() {
    let lab = lab();
    lab.run(&["projects", "add", "web"]);
    lab.run(&["projects", "add", "clone"]);
    git(&lab, &["worktree", "add", "--quiet", "-b", "taken", "../elsewhere"]);
    lab.write("work/.worktrees/used/mine", "x");
    for (args, said) in [
        (&["/wbe fix it"][..], "/wbe is no engine, project or command; did you mean /web?"),
        (&["--project", "nope", "x"], "there is no project nope; known projects: clone, web"),
        (&["--branch", "a..b", "x"], "\"a..b\" is not a name that git accepts for a branch"),
        (&["--branch=--force", "x"], "\"--force\" is not a name that git accepts for a branch"),
        (&["/web @-x fix it"], "\"-x\" is not a name that git accepts for a branch"),
        (&["/web @taken fix it"], "branch taken is checked out at "),
        (&["/web @used fix it"], ".worktrees/used exists and is not empty; move it away"),
        (
            &["--project", "web", "--branch", "b1", "/clone x"],
            "the project is web, and the prompt names clone; name one",
        ),
        (
            &["--project", "web", "--branch", "b1", "@b2 x"],
            "the branch is b1, and the prompt names b2; name one",
        ),
        (&["/web", "/clone", "x"], "the project is web, and the prompt names clone; name one"),
        (&["--project", "web", "--cd", "/", "x"], "--cd and --project both name a directory"),
    ] {
        let ran = run(&lab, args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(said) && ran.stderr.trim().lines().count() == 1, "{ran:?}");
    }
    let path = run(&lab, &["/usr/bin/env", "is", "missing"]);
    assert!(path.stdout.contains("You said: /usr/bin/env is missing"), "{path:?}");
    let here = run(&lab, &["--branch", "topic", "hello"]);
    assert_eq!(here.code, Some(0), "{here:?}");
    assert!(lab.path("work/.worktrees/topic").is_dir());
}

#[test]
fn a_message_of_a_chat_names_a_project() {
    let lab = lab();
    lab.run(&["projects", "add", "web"]);
    let ran = lab.run_with(&["chat", "--engine", "demo"], b"/web @topic hello\n/wbe x\n");
    assert!(ran.stdout.contains("You said: hello"), "{ran:?}");
    assert!(ran.stderr.contains("/wbe"), "{ran:?}");
    assert!(lab.path("work/.worktrees/topic").is_dir());
}

#[test]
fn a_conversation_of_a_chat_stays_where_it_began() {
    let lab = lab();
    lab.run(&["projects", "add", "web"]);
    let typed = b"/web @one hello\n/web @two elsewhere\n/new\n/web @three again\n";
    let ran = lab.run_with(&["chat", "--engine", "demo"], typed);
    assert!(ran.stdout.contains("You said: hello") && ran.stdout.contains("You said: again"));
    assert!(!ran.stdout.contains("elsewhere"), "{ran:?}");
    assert!(
        ran.stderr.contains("this conversation runs in ctx: web @one, not in ctx: web @two"),
        "{ran:?}"
    );
    assert_eq!(ran.code, Some(1));
}

#[test]
fn a_space_before_a_line_of_a_chat_protects_it_from_names() {
    let lab = lab();
    lab.run(&["projects", "add", "web"]);
    let ran = lab.run_with(&["chat", "--engine", "demo"], b" /web @topic hello\n /nope x\n");
    assert!(ran.stdout.contains("You said: /web @topic hello"), "{ran:?}");
    assert!(ran.stdout.contains("You said: /nope x"), "{ran:?}");
    assert!(!lab.path("work/.worktrees/topic").exists());
}

#[test]
fn the_last_lines_of_a_run_name_where_it_ran_and_are_read_back() {
    let lab = lab();
    lab.run(&["projects", "add", "web"]);
    let last = |ran: &Ran| {
        let lines: Vec<&str> = ran.stderr.lines().collect();
        lines[lines.len().saturating_sub(2)..].join("\n")
    };
    let first = run(&lab, &["/web @größe/x hello"]);
    let lines = last(&first);
    assert!(
        lines.starts_with("ctx: web @größe/x\ntakopi run --engine demo --resume demo-"),
        "{first:?}"
    );
    let next = run(&lab, &["--resume", &lines, "/wbe is text in a session"]);
    assert_eq!((next.code, last(&next)), (Some(0), lines.clone()), "{next:?}");
    // What stands elsewhere in a pasted text is part of an answer, and what is behind the lines does not matter.
    let line = lines.lines().last().unwrap();
    let answer = run(&lab, &["--resume", &format!("done\n`ctx: web @no`\n\n{line}"), "hello"]);
    assert!(answer.code == Some(0) && !answer.stderr.contains("ctx:"), "{answer:?}");
    let pasted = run(&lab, &["--resume", &format!("ctx: web @no\n\n{lines}\n$ "), "hello"]);
    assert_eq!((pasted.code, last(&pasted)), (Some(0), lines.clone()), "{pasted:?}");
    // A place on the command line wins.
    let other = run(&lab, &["--project", "web", "--resume", &lines, "hello"]);
    assert!(other.stderr.contains("\nctx: web\n"), "{other:?}");
    // The directory here has no name that a line could hold.
    let here = run(&lab, &["--branch", "topic", "hello"]);
    assert!(!here.stderr.contains("ctx:"), "{here:?}");
    lab.write("home/.config/takopi/config.toml", "");
    let gone = run(&lab, &["--resume", &lines, "hello"]);
    assert_eq!(gone.code, Some(2));
    assert!(gone.stderr.contains("there is no project web"), "{gone:?}");
}

#[test]
fn lines_of_a_batch_name_projects_and_branches() {
    let lab = lab();
    lab.run(&["projects", "add", "web"]);
    let jobs = "{\"id\":\"a\",\"prompt\":\"one\",\"project\":\"web\",\"branch\":\"fix/a\"}\n\
                {\"id\":\"b\",\"prompt\":\"two\",\"branch\":\"b\"}\n\
                {\"id\":\"c\",\"prompt\":\"three\",\"branch\":\"b..c\"}\n\
                {\"id\":\"d\",\"prompt\":\"four\"}\n";
    lab.write("work/p.jsonl", jobs);
    let batch = |args: &[&str]| {
        let all: Vec<&str> =
            ["batch", "--engine", "demo", "p.jsonl"].iter().chain(args).copied().collect();
        lab.run(&all)
    };
    let planned = batch(&["--dry-run"]);
    assert_eq!(planned.code, Some(0), "{planned:?}");
    assert!(lab.run(&["projects"]).stdout.contains("0 worktrees"), "a dry run creates nothing");
    let ran = batch(&["--project", "web", "--branch", "all", "--jobs", "4"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let result = |id: &str| {
        let line = ran.stdout.lines().find(|line| line.contains(&format!("\"id\":\"{id}\"")));
        serde_json::from_str::<serde_json::Value>(line.unwrap()).unwrap()
    };
    for id in ["a", "b", "d"] {
        assert_eq!(result(id)["ok"], true, "{ran:?}");
    }
    let refused = result("c");
    assert_eq!(refused["reason"], "invalid_request");
    assert_eq!(refused["error"], "\"b..c\" is not a name that git accepts for a branch");
    let listed = lab.run(&["projects"]).stdout;
    assert!(listed.contains("3 worktrees"), "one for each branch: {listed}");
    assert!(lab.path("work/.worktrees/b").is_dir() && lab.path("work/.worktrees/all").is_dir());

    for (line, said) in [
        (
            "{\"prompt\":\"x\",\"project\":\"nope\"}",
            "p.jsonl: line 1: there is no project nope; known projects: web",
        ),
        (
            "{\"prompt\":\"x\",\"project\":\"web\",\"cwd\":\"/\"}",
            "line 1: `cwd` and `project` both name a directory",
        ),
    ] {
        lab.write("work/p.jsonl", line);
        let ran = batch(&[]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
}
