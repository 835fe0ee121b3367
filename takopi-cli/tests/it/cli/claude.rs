//! Claude Code in the command: its checks, its sessions, its flags, and beside codex.

use serde_json::{Value, json};

use super::lab::{Lab, Ran, SESSION, claude, codex, ran};

const OTHER: &str = "01a1e24e-9471-4c92-a579-69c96b096128";

fn doctor(lab: &Lab, program: &str, env: &[(&str, &str)], args: &[&str]) -> Ran {
    let all = [&["doctor", "--engine", "claude", "--claude-bin", program], args].concat();
    ran(lab.takopi(&all).envs(env.iter().copied()))
}

/// The lines of doctor about the engine.
fn about(lab: &Lab, ran: &Ran) -> String {
    let shown = ran.stdout.replace(&claude("good"), "CLAUDE");
    let shown = shown.replace(lab.path("").to_str().unwrap(), "LAB/");
    let from = shown.find("config.toml)\n").unwrap() + "config.toml)\n".len();
    let to = ["✓ state", "! state"].iter().find_map(|state| shown.find(state)).unwrap();
    shown[from..to].to_owned()
}

#[test]
fn a_good_installation_has_no_problems() {
    let lab = Lab::new();
    let ran = doctor(&lab, &claude("good"), &[("LAB_LOGIN", "max")], &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    insta::assert_snapshot!(about(&lab, &ran), @r"
    ✓ claude   CLAUDE
    ✓ version  2.1.325
    ✓ login    logged in (claude.ai, max)
    ");
}

#[test]
fn what_is_wrong_with_an_installation_is_named_with_a_hint() {
    let lab = Lab::new();
    let program = claude("good");
    let told = |env: &[(&str, &str)], code: i32| {
        let ran = doctor(&lab, &program, env, &[]);
        assert_eq!(ran.code, Some(code), "{}", ran.stdout);
        about(&lab, &ran).replacen("✓ claude   CLAUDE\n", "", 1)
    };
    insta::assert_snapshot!(told(&[], 1), @r"
    ✓ version  2.1.325
    ✗ login    not logged in
               → log in with `claude auth login`, or set ANTHROPIC_API_KEY
    ");
    let key = ("ANTHROPIC_API_KEY", "dummy");
    insta::assert_snapshot!(told(&[key], 0), @r"
    ✓ version  2.1.325
    ✓ login    API key (ANTHROPIC_API_KEY)
    ");
    insta::assert_snapshot!(told(&[key, ("LAB_LOGIN", "pro")], 0), @r"
    ✓ version  2.1.325
    ! login    ANTHROPIC_API_KEY is set: runs are billed to the key, not to the login
               → unset ANTHROPIC_API_KEY to use the login
    ");
    insta::assert_snapshot!(told(&[("LAB_BROKEN", "1")], 1), @r"
    ✓ version  2.1.325
    ✗ login    Claude configuration file is corrupted: Expected }
               → run `claude auth status` for details
    ");
    insta::assert_snapshot!(told(&[("LAB_LOGIN", "max"), ("LAB_VERSION", "2.1.81")], 0), @r"
    ! version  2.1.81
               → before 2.1.105 Claude Code does not report when it is done: what background agents answer after the first result is not seen; update it with `npm install -g @anthropic-ai/claude-code@latest`
    ✓ login    logged in (claude.ai, max)
    ");
    lab.write("config/settings.json", "{ broken");
    let config = lab.path("config");
    let home = ("CLAUDE_CONFIG_DIR", config.to_str().unwrap());
    insta::assert_snapshot!(told(&[key, home], 0), @r"
    ! home     LAB/config/settings.json: key must be a string at line 1 column 3
               → Claude Code ignores all of this file until it is corrected
    ✓ version  2.1.325
    ✓ login    API key (ANTHROPIC_API_KEY)
    ");
    let file = lab.write("file", "");
    insta::assert_snapshot!(told(&[key, ("CLAUDE_CONFIG_DIR", file.to_str().unwrap())], 1), @r"
    ✗ home     LAB/file cannot be read: Not a directory (os error 20)
               → make it a directory of yours, or set CLAUDE_CONFIG_DIR to another one
    ");
}

/// They would take the question for a prompt.
#[test]
fn old_releases_are_not_asked_for_their_login() {
    let lab = Lab::new();
    for (version, code) in [("2.0.44", 1), ("2.0.45", 0)] {
        let ran = doctor(&lab, &claude("good"), &[("LAB_VERSION", version)], &[]);
        assert_eq!(ran.code, Some(code), "{}", ran.stdout);
        let login = format!("! login    not checked: {version} cannot report it\n");
        assert!(ran.stdout.contains(&login), "{}", ran.stdout);
    }
    assert!(!lab.path("home/asked").exists());
    let ran = doctor(&lab, &claude("good"), &[("LAB_VERSION", "2.0.44")], &[]);
    assert!(ran.stdout.contains("✗ version  2.0.44 is older than 2.0.45\n"), "{}", ran.stdout);
}

#[test]
fn another_program_does_not_pass_as_claude_code() {
    let lab = Lab::new();
    for program in ["/bin/true", &codex("good")] {
        let ran = doctor(&lab, program, &[], &[]);
        assert_eq!(ran.code, Some(1), "{}", ran.stdout);
        let expected = format!("✗ version  {program} printed no version of Claude Code: ");
        assert!(ran.stdout.contains(&expected), "{}", ran.stdout);
        assert!(!ran.stdout.contains("login"), "{}", ran.stdout);
    }
}

#[test]
fn an_engine_that_is_neither_installed_nor_chosen_is_no_problem() {
    let lab = Lab::new();
    let empty = lab.path("work");
    let (codex, claude) = (codex("good"), claude("good"));
    let doctor = |args: &[&str]| {
        let mut command = lab.takopi(&[&["doctor"], args].concat());
        ran(command.env("PATH", &empty).env("LAB_LOGIN", "max"))
    };
    let only_codex = doctor(&["--codex-bin", &codex]);
    assert_eq!(only_codex.code, Some(0), "{}", only_codex.stdout);
    let missing = "! claude   not installed\n           → install it with \
                   `npm install -g @anthropic-ai/claude-code`, or name it with --claude-bin PATH\n";
    assert!(only_codex.stdout.contains(missing), "{}", only_codex.stdout);
    assert_eq!(doctor(&["--codex-bin", &codex, "--engine", "claude"]).code, Some(1));
    let named = doctor(&["--codex-bin", &codex, "--claude-bin", "/no/such"]);
    assert!(named.stdout.contains("✗ claude   /no/such was not found\n"), "{}", named.stdout);
    assert_eq!(named.code, Some(1));

    let only_claude = doctor(&["--claude-bin", &claude]);
    assert_eq!(only_claude.code, Some(1), "codex is the default: {}", only_claude.stdout);
    let use_it =
        "; to use Claude Code by default, set TAKOPI_ENGINE=claude or `engine = \"claude\"` in";
    assert!(only_claude.stdout.contains(use_it), "{}", only_claude.stdout);
    lab.write("home/.config/takopi/config.toml", "engine = 'claude'\n");
    let chosen = doctor(&["--claude-bin", &claude]);
    assert_eq!(chosen.code, Some(0), "{}", chosen.stdout);
    assert!(chosen.stdout.contains("! codex    not installed\n"), "{}", chosen.stdout);

    let json = doctor(&["--codex-bin", &codex, "--claude-bin", &claude, "--json"]);
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    let findings = found["findings"].as_array().unwrap();
    let logins = findings.iter().filter(|it| it["check"] == "login");
    let engines: Vec<_> = logins.map(|it| it["engine"].as_str().unwrap()).collect();
    assert_eq!(engines, ["codex", "claude"]);
    assert_eq!(doctor(&["--engine", "abacus"]).code, Some(1));
}

/// Writes a session of Claude Code.
fn write(lab: &Lab, id: &str, cwd: &str, prompt: &str) {
    let line = |uuid: &str, parent: Option<&str>, kind: &str, content: Value| {
        json!({
            "type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": false, "cwd": cwd,
            "timestamp": "2026-11-16T02:45:30.449Z", "sessionId": id, "version": "2.1.325",
            "message": { "role": kind, "id": "msg_1", "content": content },
        })
    };
    let answer = json!([{ "type": "text", "text": "There are **3**." }]);
    let lines = [
        json!({ "type": "queue-operation", "operation": "enqueue" }),
        line("a", None, "user", prompt.into()),
        line("b", Some("a"), "assistant", answer),
    ];
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    let name = format!("home/.claude/projects/-srv-project/{id}.jsonl");
    let path = lab.write(&name, &text.join("\n"));
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_794_796_010);
    std::fs::File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

/// Writes an older session of codex.
fn write_codex(lab: &Lab, id: &str) {
    let lines = [
        json!({ "type": "session_meta", "payload": { "id": id, "cwd": "/srv", "source": "exec" } }),
        json!({ "type": "event_msg", "payload": { "type": "user_message", "message": "hi" } }),
    ];
    let lines = lines.map(|line| line.to_string()).join("\n");
    let name = format!("codex/sessions/2026/11/16/rollout-2026-11-16T02-45-30-{id}.jsonl");
    let path = lab.write(&name, &lines);
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_794_796_000);
    std::fs::File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

#[test]
fn sessions_of_both_engines_are_listed_together_or_by_engine() {
    let lab = Lab::new();
    write(&lab, OTHER, "/srv/project", "count the files\nhere");
    write_codex(&lab, SESSION);
    let listed = lab.run(&["sessions"]).stdout;
    let claude = format!("{OTHER}\tclaude\t2026-11-16 02:26\t/srv/project\tcount the files here\n");
    let codex = format!("{SESSION}\tcodex\t2026-11-16 02:26\t/srv\thi\n");
    assert_eq!(listed, format!("{claude}{codex}"));
    assert_eq!(lab.run(&["sessions", "--engine", "claude"]).stdout, claude);
    assert_eq!(lab.run(&["sessions", "--engine", "codex"]).stdout, codex);
    let demo = lab.run(&["sessions", "--engine", "demo"]);
    assert_eq!((demo.code, demo.stderr.as_str()), (Some(2), "error: demo stores no sessions\n"));
    let shown = lab.run(&["sessions", "show", &OTHER[..9]]);
    assert_eq!(shown.stdout, "> count the files\n> here\n\nThere are **3**.\n\n");
    let hidden = lab.run(&["sessions", "show", "--engine", "codex", OTHER]);
    assert!(hidden.stderr.contains("no session"), "{}", hidden.stderr);
}

/// The engine that a run chose, from the error about its program.
fn engine(lab: &Lab, args: &[&str]) -> String {
    let mut command = lab.takopi(&[&["run", "hello"], args].concat());
    command.env("TAKOPI_CODEX_BIN", "/no/codex").env("TAKOPI_CLAUDE_BIN", "/no/claude");
    let ran = ran(&mut command);
    assert_eq!(ran.code, Some(3), "{args:?}: {}", ran.stderr);
    let error = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    ["codex", "claude"].into_iter().find(|it| error.contains(&format!("/no/{it}"))).unwrap().into()
}

#[test]
fn a_resumed_session_chooses_its_engine() {
    let lab = Lab::new();
    write(&lab, OTHER, "/srv/project", "count");
    write_codex(&lab, SESSION);
    assert_eq!(engine(&lab, &[]), "codex");
    assert_eq!(engine(&lab, &["--engine", "claude"]), "claude");
    assert_eq!(engine(&lab, &["--resume", &format!("claude --resume {OTHER}")]), "claude");
    assert_eq!(engine(&lab, &["--resume", &format!("codex resume {SESSION}")]), "codex");
    assert_eq!(engine(&lab, &["--resume", OTHER]), "claude", "it has stored the session");
    assert_eq!(engine(&lab, &["--resume", SESSION]), "codex");
    let unknown = "01a1e24e-9471-4c92-a579-000000000000";
    assert_eq!(engine(&lab, &["--resume", unknown]), "codex", "the default");
    assert_eq!(engine(&lab, &["--engine", "codex", "--resume", OTHER]), "codex", "as was typed");
    lab.write("home/.config/takopi/config.toml", "engine = 'claude'\n");
    assert_eq!(engine(&lab, &["--resume", unknown]), "claude");
    assert_eq!(engine(&lab, &["--resume", &format!("codex resume {SESSION}")]), "codex");
}

#[test]
fn an_invalid_use_of_claude_is_2() {
    let lab = Lab::new();
    let program = claude("good");
    let line = format!("codex resume {SESSION}");
    for (args, said) in [
        (&["--sandbox", "read-only"][..], "--sandbox is not an option of claude; "),
        (&["--codex-bin", "/bin/true"], "--codex-bin is not an option of claude; "),
        (&["--transport", "exec"], "claude has no transport `exec`; it has stream-json"),
        (&["--permission-mode", "yolo"], "unknown permission mode `yolo`; claude has default, "),
        (&["-c", "background=perhaps"], "-c background: expected true or false"),
        (&["--resume", "My-Title"], "is not a session id of claude"),
        (&["--resume", &line], "the text has no line such as `claude --resume ID`"),
    ] {
        let all = [&["run", "--engine", "claude", "--claude-bin", &program, "x"], args].concat();
        let ran = lab.run(&all);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    let ran = lab.run(&["run", "--permission-mode", "plan", "x"]);
    let expected = "error: --permission-mode is not an option of codex; ";
    assert!(ran.code == Some(2) && ran.stderr.starts_with(expected), "{}", ran.stderr);
}

#[test]
fn a_missing_claude_is_3_with_installation_advice() {
    let ran = Lab::new().run(&["run", "--engine", "claude", "--claude-bin", "/no/such", "x"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("npm install -g @anthropic-ai/claude-code"), "{}", ran.stderr);
}

#[test]
fn a_chat_reaches_every_engine_by_name_and_by_resume_line() {
    let lab = Lab::new();
    let chat = |input: &str| {
        let mut command = lab.takopi(&["chat", "--engine", "demo", "--claude-bin", "/no/claude"]);
        command.env("TAKOPI_CODEX_BIN", "/no/codex");
        super::lab::fed(command, input.as_bytes())
    };
    let ran = chat(&format!(
        "/claude hello\n/codex hello\nclaude --resume {OTHER}\ncodex resume {SESSION}\n/demo hello\n"
    ));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("/no/claude").count(), 2, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("/no/codex").count(), 2, "{}", ran.stderr);
    assert!(ran.stdout.ends_with("You said: hello\n"), "{}", ran.stdout);
    let help = chat("/help\n").stderr;
    assert!(
        help.contains("in a session of its own: /demo, /codex, /claude, /pi, /opencode"),
        "{help}"
    );
}

#[test]
fn completions_and_help_know_claude() {
    let lab = Lab::new();
    let script = lab.run(&["completions", "bash"]).stdout;
    for word in ["claude", "claude-bin", "permission-mode"] {
        assert!(script.contains(word), "{word}");
    }
    let help = lab.run(&["run", "--help"]).stdout;
    for text in ["Claude Code", "--permission-mode", "--claude-bin", "`claude"] {
        assert!(help.contains(text), "{text}: {help}");
    }
}

#[test]
fn the_hint_about_a_missing_engine_names_another_that_is_installed() {
    let lab = Lab::new();
    let missing = |args: &[&str], other: (&str, &str)| {
        let mut command = lab.takopi(&[&["run"], args, &["hello"]].concat());
        let ran = ran(command.env("PATH", lab.path("work")).env(other.0, other.1));
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        ran.stderr
    };
    let said = missing(&[], ("TAKOPI_CLAUDE_BIN", &claude("good")));
    assert!(
        said.contains("; Claude Code is installed: choose it with --engine claude\n"),
        "{said}"
    );
    let said = missing(&["--engine", "claude"], ("TAKOPI_CODEX_BIN", &codex("good")));
    assert!(
        said.contains("; OpenAI Codex is installed: choose it with --engine codex\n"),
        "{said}"
    );
    let said = missing(&[], ("TAKOPI_CLAUDE_BIN", "/no/such"));
    assert!(!said.contains("is installed"), "{said}");
    let said = missing(
        &["--resume", SESSION, "--engine", "codex"],
        ("TAKOPI_CLAUDE_BIN", &claude("good")),
    );
    assert!(!said.contains("is installed"), "a session has its engine: {said}");
}

#[test]
fn last_names_another_engine_that_has_a_session_of_the_directory() {
    let lab = Lab::new();
    let work = lab.path("work").canonicalize().unwrap();
    let ran = lab.run(&["run", "--last", "hello"]);
    let none = format!(
        "error: no OpenAI Codex session of {} was found; start one without",
        work.display()
    );
    assert!(ran.stderr.contains(&none), "{}", ran.stderr);
    write(&lab, SESSION, work.to_str().unwrap(), "hello");
    let ran = lab.run(&["run", "--last", "hello"]);
    let other = "; Claude Code has one: choose it with --engine claude\n";
    assert!(ran.code == Some(1) && ran.stderr.contains(other), "{}", ran.stderr);
}
