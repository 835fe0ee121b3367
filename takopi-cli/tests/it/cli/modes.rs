//! Standard output byte for byte, and what goes to standard error, in each mode.

use super::lab::{Lab, Ran, Running};
use super::terminal::still;

const ANSWER: &str =
    "This is the demo engine: no account, no model, nothing installed. You said: hello\n";

fn demo(args: &[&str]) -> Ran {
    let all: Vec<&str> = ["run", "--engine", "demo"].iter().chain(args).copied().collect();
    Lab::new().run(&all)
}

#[test]
fn the_answer_alone_is_on_standard_output() {
    let ran = demo(&["hello"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ANSWER));
    insta::assert_snapshot!(still(&ran.stderr), @r"
    ▸ todo 0/2: look around
    • I will look around first.
    ▸ ls
    ✓ ls
    ▸ search: why do octopuses have three hearts
    ✓ search: why do octopuses have three hearts
    ▸ tool: aquarium.feed
    ✓ tool: aquarium.feed
    ▸ subagent: review: the change below
    ✓ subagent: review: the change below
    ↻ todo 1/2: make the change
    ▸ asked: 1 update: src/lib.rs: waiting for a decision
    ✗ asked: 1 update: src/lib.rs: declined: --approve deny is the default here
    • I leave src/lib.rs as it is.
    ▸ cargo test
    ✗ cargo test (exit 101)
    ! one test fails; this is only a demo
    ✓ todo 2/2: nothing left
    ✓ Demo · Ns · 10 steps · 11 tokens in, 7 out
    hint: the agent asked for approval and was declined; --approve accept accepts every request
    takopi run --engine demo --resume demo-ID
    ");
}

#[test]
fn quiet_prints_the_answer_and_nothing_else() {
    let ran = demo(&["--quiet", "hello"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), ANSWER, ""));
}

#[test]
fn json_prints_events_and_nothing_else() {
    let ran = demo(&["--json", "hello"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let events: Vec<takopi_core::TakopiEvent> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(matches!(events.first(), Some(takopi_core::TakopiEvent::Started(_))));
    let Some(takopi_core::TakopiEvent::Completed(completed)) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(format!("{}\n", completed.answer), ANSWER);
    let again: Vec<String> =
        events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    assert_eq!(again.concat(), ran.stdout);
}

#[test]
fn an_answer_that_ends_a_line_gets_no_second_newline() {
    // The demo trims its prompt, so that the newline is in the middle of a code block here.
    let ran = demo(&["-q", "a\n\nb"]);
    assert!(ran.stdout.ends_with("You said: a\n\nb\n"), "{:?}", ran.stdout);
}

#[test]
fn colour_is_for_terminals_or_by_request_and_never_on_a_redirected_answer() {
    assert!(!demo(&["hello"]).stderr.contains('\x1b'));
    let painted = demo(&["--color", "always", "**hello**"]);
    assert!(painted.stderr.contains("\x1b[32m✓\x1b[0m ls"));
    assert!(painted.stdout.ends_with("You said: **hello**\n"), "{}", painted.stdout);
}

#[test]
fn the_prompt_comes_from_arguments_or_standard_input_or_both() {
    let lab = Lab::new();
    let said = |args: &[&str], input: &str| {
        let all: Vec<&str> = ["run", "--engine=demo", "-q"].iter().chain(args).copied().collect();
        let ran = lab.run_with(&all, input.as_bytes());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout.split_once("You said: ").unwrap().1.to_owned()
    };
    assert_eq!(said(&["two", "words"], ""), "two words\n");
    assert_eq!(said(&[], "from a pipe\n"), "from a pipe\n");
    assert_eq!(said(&["-"], "from a pipe\n"), "from a pipe\n");
    assert_eq!(said(&["review", "-"], "the diff\n"), "review\n\nthe diff\n");
    assert_eq!(said(&["--", "--json"], ""), "--json\n");
}

#[test]
fn with_a_prompt_and_no_dash_standard_input_is_not_read() {
    let lab = Lab::new();
    // A pipe that stays open: reading it would block for ever.
    let mut command = lab.takopi(&["run", "--engine", "demo", "-q", "hello"]);
    let (reader, writer) = std::io::pipe().unwrap();
    let ran = super::lab::ran(command.stdin(reader));
    drop(writer);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ANSWER));
}

#[test]
fn a_session_is_resumed_by_id_and_by_line() {
    for session in ["demo-abc", "see above\n`takopi run --engine demo --resume demo-abc`"] {
        let ran = demo(&["-q", "--resume", session, "hello"]);
        assert_eq!(ran.stdout, "Welcome back to demo-abc. You said: hello\n", "{}", ran.stderr);
    }
}

#[test]
fn settings_come_from_flag_then_variable_then_file() {
    let lab = Lab::new();
    lab.write("home/.config/takopi/config.toml", "engine = 'codex'\ncodex-bin = '/no/file'\n");
    let run = |variable: Option<&str>, args: &[&str]| {
        let mut command = lab.takopi(&["run", "hello"]);
        command.args(args).envs(variable.map(|value| ("TAKOPI_CODEX_BIN", value)));
        super::lab::ran(&mut command)
    };
    let error =
        |ran: Ran| ran.stderr.lines().find(|it| it.starts_with("error")).unwrap().to_owned();
    assert!(error(run(None, &[])).contains("/no/file "));
    assert!(error(run(Some("/no/variable"), &[])).contains("/no/variable "));
    assert!(error(run(Some("/no/variable"), &["--codex-bin", "/no/flag"])).contains("/no/flag "));
    assert_eq!(run(None, &["--engine", "demo", "-q"]).stdout, ANSWER);
}

#[test]
fn a_closed_pipe_gives_no_error_message() {
    let lab = Lab::new();
    // The pipe is closed long before the last event is written.
    let command = lab.takopi(&["run", "--engine", "demo", "--json", "-c", "pace=2s", "hello"]);
    let mut running = Running::start(command);
    let mut first = String::new();
    let mut stdout = std::io::BufReader::new(running.stdout());
    std::io::BufRead::read_line(&mut stdout, &mut first).unwrap();
    drop(stdout);
    let ran = running.end();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    assert!(first.starts_with("{\"type\":\"started\""));
}

#[test]
fn an_answer_to_a_closed_pipe_gives_no_error_message() {
    let lab = Lab::new();
    let mut running = Running::start(lab.takopi(&["run", "--engine", "demo", "-q", "hello"]));
    drop(running.stdout());
    let ran = running.end();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn logs_go_to_their_file_and_never_contain_the_prompt() {
    let lab = Lab::new();
    let mut command = lab.takopi(&["run", "--engine", "demo", "-q", "hush-hush"]);
    let log = lab.path("log");
    let ran = super::lab::ran(command.env("TAKOPI_LOG", "trace").env("TAKOPI_LOG_FILE", &log));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(!std::fs::read_to_string(log).unwrap().contains("hush-hush"));

    let mut command = lab.takopi(&["run", "--engine", "demo", "-q", "-vvv", "hush-hush"]);
    assert!(!super::lab::ran(&mut command).stderr.contains("hush-hush"));
}

#[test]
fn completions_and_help_are_printed() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = lab.run(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        for word in ["takopi", "idle-timeout", "codex-bin", "app-server", "demo"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
    }
    let help = lab.run(&["--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("Exit codes of run"));
    let version = lab.run(&["--version"]);
    assert_eq!(version.stdout, format!("takopi {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_demo_is_quick_without_a_terminal() {
    let ran = Lab::new().run(&["demo"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout.lines().count(), 2);
    let waits = "▸ waiting for the session, held by another run of this process";
    assert!(ran.stderr.contains(waits), "{}", ran.stderr);
}
