//! Every exit code of `takopi run`.

#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt as _;

use futures::FutureExt as _;
use nix::sys::signal::Signal;
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionKey, SessionLocks as _};
use takopi_core::{EngineId, ResumeToken};

use super::lab::{Lab, Running, SESSION, codex, neutral};

/// A demo that takes an hour over its first step.
const SLOW: [&str; 5] = ["run", "--engine", "demo", "-c", "pace=1h"];

fn slow<'a>(args: &[&'a str]) -> Vec<&'a str> {
    SLOW.iter().chain(args).copied().collect()
}

#[test]
fn ok_is_0() {
    assert_eq!(Lab::new().run(&["run", "--engine", "demo", "hello"]).code, Some(0));
}

#[test]
fn a_failed_turn_is_1() {
    let lab = Lab::new();
    let ran = lab.run(&["run", "--transport", "exec", "--codex-bin", &codex("failing"), "hello"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("error: the model said no\n"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with(&format!("codex resume {SESSION}\n")), "{}", ran.stderr);
}

#[test]
fn errors_are_printed_with_quiet_too() {
    let lab = Lab::new();
    let program = codex("failing");
    let ran = lab.run(&["run", "-q", "--transport", "exec", "--codex-bin", &program, "hello"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert_eq!(ran.stderr, "error: the model said no\n");
}

#[test]
fn usage_is_2_and_nothing_is_on_standard_output() {
    let lab = Lab::new();
    for (args, said) in [
        (&["run", "--engine", "demo", "  "][..], "error: the prompt is empty"),
        (&["run", "--engine", "demo"], "error: the prompt is empty"),
        (&["run", "--no-such-flag", "x"], "unexpected argument"),
        (&["run", "--wait", "soon", "x"], "expected a length of time"),
        (&["run", "-c", "novalue", "x"], "expected KEY=VALUE"),
        (&["run", "--engine", "demo", "--cd", "/no/such", "x"], "does not exist"),
        (&["run", "--engine", "demo", "--resume", "no-token", "x"], "is not a session id of demo"),
        (&["run", "--resume", "no-token", "x"], "is not a session id of codex"),
        (&["run", "--resume", "two words", "x"], "the text has no line such as `codex resume ID`"),
        (&["run", "--resume", "a", "--last", "x"], "cannot be used with"),
        (&["run", "--engine", "demo", "--last", "x"], "demo stores no sessions"),
        (&["run", "--image", "/no/such.png", "x"], "the image /no/such.png does not exist"),
        (&["run", "--output-schema", "/no/such", "x"], "the output schema /no/such does not exist"),
        (
            &["run", "--transport", "exec", "--approve", "ask", "x"],
            "codex cannot ask for approval over exec",
        ),
        (
            &["run", "--transport", "exec", "--approve", "accept", "x"],
            "codex cannot ask for approval over exec",
        ),
        (&["run", "--engine", "demo", "-c", "pace=soon", "x"], "-c pace: expected a length"),
        (&["run", "--config", "/no/such", "x"], "cannot read /no/such"),
        (&["dance"], "unrecognized subcommand"),
        (&[], "Usage:"),
    ] {
        let ran = lab.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_flag_that_the_engine_does_not_understand_is_refused_by_name() {
    let lab = Lab::new();
    for flag in [
        &["--model", "m"][..],
        &["--effort", "high"],
        &["--sandbox", "read-only"],
        &["--permission-mode", "plan"],
        &["--image", "work"],
        &["--output-schema", "work"],
        &["--codex-bin", "/bin/true"],
        &["--claude-bin", "/bin/true"],
    ] {
        for command in ["run", "batch"] {
            let ran = lab.run(&[&[command, "--engine", "demo"], flag].concat());
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
            let expected = format!("error: {} is not an option of demo; ", flag[0]);
            assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
        }
    }
    for (args, message) in [
        (
            ["--engine", "abacus"],
            "error: unknown engine `abacus`; known engines: codex, claude, pi, opencode, gemini, qwen, codex-acp, claude-acp, demo\n",
        ),
        (
            ["--transport", "post"],
            "error: codex has no transport `post`; it has app-server, exec\n",
        ),
        (
            ["--engine=demo", "--transport=exec"],
            "error: demo has no transport `exec`; it has in-process\n",
        ),
        (["--engine=demo", "-cspeed=1"], "error: -c speed: the demo has only `pace`\n"),
    ] {
        let ran = lab.run(&[&["run", "hello"], &args[..]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), message));
    }
}

#[test]
fn defaults_that_the_engine_does_not_understand_do_not_apply_to_it() {
    let lab = Lab::new();
    lab.write("home/.config/takopi/config.toml", "transport = 'exec'\nmodel = 'm'\n");
    let mut command = lab.takopi(&["run", "--engine", "demo", "-q", "hello"]);
    command.envs([("TAKOPI_CODEX_BIN", "/no/such"), ("TAKOPI_EFFORT", "high")]);
    let ran = super::lab::ran(&mut command);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_session_that_was_never_confirmed_gets_no_resume_line() {
    let lab = Lab::new();
    let args = ["run", "--codex-bin", "/no/such/codex", "--resume", SESSION, "hello"];
    let ran = lab.run(&args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(!ran.stderr.contains("codex resume"), "{}", ran.stderr);
}

#[test]
fn a_missing_directory_gives_no_hint_about_the_installation() {
    let lab = Lab::new();
    for args in [&["run", "x"][..], &["chat"], &["serve", "--listen", "127.0.0.1:0"]] {
        let ran = lab.run(&[args, &["-C", "/nope"]].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert_eq!(ran.stderr, "error: the directory /nope does not exist\n");
        let ran = lab.run(&[args, &["-C", "/dev/null"]].concat());
        assert_eq!(ran.stderr, "error: /dev/null is not a directory\n");
    }
}

#[test]
fn a_bad_configuration_file_is_2_with_its_line() {
    let lab = Lab::new();
    let file = lab.write("config.toml", "# mine\nmodle = 'x'\n");
    let ran = lab.run(&["--config", file.to_str().unwrap(), "run", "--engine", "demo", "x"]);
    assert_eq!(ran.code, Some(2));
    let expected = format!("error: {}:2: unknown setting `modle`", file.display());
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
}

#[test]
fn a_malformed_token_still_ends_the_stream_of_events() {
    let ran = Lab::new().run(&["run", "--json", "--resume", "no-token", "x"]);
    assert_eq!(ran.code, Some(2));
    let event: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(event["type"], "completed");
    assert_eq!(event["reason"], "invalid_request");
}

#[test]
fn an_engine_that_is_missing_or_not_executable_is_3() {
    let lab = Lab::new();
    let plain = lab.write("codex.txt", "not a program");
    for program in ["/no/such/codex", plain.to_str().unwrap()] {
        for transport in ["exec", "app-server"] {
            let ran = lab.run(&["run", "--transport", transport, "--codex-bin", program, "hello"]);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{}", ran.stderr);
            let hint = "hint: install it with `npm install -g @openai/codex`";
            assert!(ran.stderr.contains(hint), "{}", ran.stderr);
        }
    }
    let ran = lab.run(&["run", "--codex-bin", "/usr", "hello"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("error: /usr is a directory, not a program\n"), "{}", ran.stderr);
}

#[test]
fn an_engine_that_is_too_old_is_3() {
    let lab = Lab::new();
    let ran = lab.run(&["run", "--transport", "exec", "--codex-bin", &codex("old"), "hello"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("0.100.0") && ran.stderr.contains("npm install"), "{}", ran.stderr);
}

#[test]
fn a_session_in_use_is_4_with_its_holder() {
    let lab = Lab::new();
    let locks = FileLocks::new(LocalLocks::new(), lab.path("state/locks"));
    let engine = EngineId::from_static("codex");
    let key = SessionKey::new(&ResumeToken::new(engine.clone(), SESSION));
    let guard = locks
        .try_lock(&key, &Holder::here(engine), &NoLeases)
        .now_or_never()
        .unwrap()
        .unwrap()
        .unwrap();
    for wait in ["0", "50ms"] {
        for transport in ["exec", "app-server"] {
            let args = ["run", "--transport", transport, "--wait", wait, "--resume", SESSION, "x"];
            let ran = lab.run(&args);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{}", ran.stderr);
            let who = format!("held by pid {} since ", std::process::id());
            assert!(ran.stderr.contains(&who), "{}", ran.stderr);
        }
    }
    drop(guard);
}

#[test]
fn a_limit_that_is_reached_is_124_and_named() {
    let lab = Lab::new();
    let ran = lab.run(&slow(&["--timeout", "100ms", "hello"]));
    assert_eq!(ran.code, Some(124));
    assert!(ran.stderr.contains("100ms (wall-clock limit)"), "{}", ran.stderr);
    // Whether its engine was known by then or not.
    assert!(ran.stderr.contains("emo · timeout · "), "{}", ran.stderr);
    let ran = lab.run(&slow(&["--idle-timeout", "0.1", "hello"]));
    assert_eq!(ran.code, Some(124));
    assert!(ran.stderr.contains("100ms (idle limit)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("emo · idle timeout · "), "{}", ran.stderr);
}

#[test]
fn signals_stop_the_run_in_order_with_their_code() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let lab = Lab::new();
        let args = ["run", "--engine", "demo", "-c", "pace=1s", "hello"];
        let mut running = Running::start(lab.takopi(&args));
        running.wait_for("todo 0/2");
        running.signal(signal);
        let ran = running.end();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("\n✗ Demo · interrupted · "), "{}", ran.stderr);
        let resume = "takopi run --engine demo --resume demo-ID\n";
        assert!(neutral(&ran.stderr).ends_with(resume), "{}", ran.stderr);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_is_handled_as_soon_as_its_handler_is_installed() {
    use nix::sys::{ptrace, wait::waitpid};
    // Without the signal the demo would end by itself, with code 0.
    let lab = Lab::new();
    let mut command = lab.takopi(&["run", "--engine", "demo", "-c", "pace=2s", "hello"]);
    // SAFETY: the closure makes a system call only.
    unsafe {
        command.pre_exec(|| Ok(ptrace::traceme()?));
    }
    let running = Running::start(command);
    let pid = running.pid();
    waitpid(pid, None).unwrap();
    // Its main thread is held right behind the system call that installs the handler.
    while !running.has_signal("SigCgt", Signal::SIGTERM) {
        ptrace::syscall(pid, None).unwrap();
        waitpid(pid, None).unwrap();
    }
    running.signal(Signal::SIGTERM);
    // Some other thread takes the signal, and has time to do with it what it does.
    while running.has_signal("ShdPnd", Signal::SIGTERM) {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    ptrace::detach(pid, None).unwrap();
    assert_eq!(running.end().code, Some(143));
}

#[test]
#[cfg(target_os = "linux")]
fn under_nohup_a_hangup_is_ignored_and_other_signals_are_not() {
    let lab = Lab::new();
    let mut command = lab.takopi(&slow(&["hello"]));
    // SAFETY: the closure makes a system call only.
    unsafe {
        command.pre_exec(|| {
            nix::sys::signal::signal(Signal::SIGHUP, nix::sys::signal::SigHandler::SigIgn)?;
            Ok(())
        });
    }
    let running = Running::start(command);
    running.wait_for_handler(Signal::SIGTERM);
    running.signal(Signal::SIGHUP);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code, Some(143));
}

#[test]
fn the_second_signal_kills() {
    let lab = Lab::new();
    let args = ["run", "--transport", "exec", "--codex-bin", &codex("stubborn"), "hello"];
    let mut running = Running::start(lab.takopi(&args));
    running.wait_for("▸ sleep");
    running.signal(Signal::SIGINT);
    running.wait_for("stopping the run");
    running.signal(Signal::SIGINT);
    let ran = running.end();
    // How the killed run ended may or may not be printed: takopi is exiting.
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    let doctor = lab.run(&["doctor", "--codex-bin", &codex("good")]);
    assert!(doctor.stdout.contains("✓ strays   none"), "{}", doctor.stdout);
}

#[test]
#[cfg(target_os = "linux")]
fn when_takopi_is_killed_codex_exec_is_interrupted_by_the_kernel() {
    let lab = Lab::new();
    let args = ["run", "--transport", "exec", "--codex-bin", &codex("waiting"), "hello"];
    let mut running = Running::start(lab.takopi(&args));
    running.wait_for("▸ sleep");
    running.signal(Signal::SIGKILL);
    // It neither reads nor writes: the end of its input would not end it, nor would a broken pipe.
    assert_eq!(running.end().code, None);
    let pid = std::fs::read_to_string(lab.path("codex/pid")).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let is_alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while is_alive() {
        assert!(std::time::Instant::now() < deadline, "codex lives on");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(std::fs::read_to_string(lab.path("codex/signal")).unwrap(), "INT\n");
}

#[test]
fn an_invalid_value_of_a_variable_is_blamed_on_the_variable() {
    let lab = Lab::new();
    for (variable, flag) in [("TAKOPI_APPROVE", "--approve"), ("TAKOPI_TIMEOUT", "--timeout")] {
        let mut command = lab.takopi(&["run", "--engine", "demo", "hello"]);
        let ran = super::lab::ran(command.env(variable, "maybe"));
        assert_eq!(ran.code, Some(2));
        let expected = format!("invalid value 'maybe' for '{variable} (environment variable)'");
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
        let mut command = lab.takopi(&["run", "--engine", "demo", flag, "maybe", "hello"]);
        let ran = super::lab::ran(command.env(variable, "maybe"));
        assert!(ran.stderr.contains(&format!("for '{flag}")), "{}", ran.stderr);
    }
}

#[test]
fn an_answer_that_cannot_be_written_fails_and_the_rest_is_still_shown() {
    let lab = Lab::new();
    let program = env!("CARGO_BIN_EXE_takopi");
    for (redirection, problem) in [
        (">/dev/full", "error: cannot write to standard output: No space left on device"),
        (">&-", "error: cannot write to standard output: it is closed"),
    ] {
        let mut command = std::process::Command::new("sh");
        let script = format!("exec \"$0\" run --engine demo hello {redirection}");
        command.args(["-c", &script, program]).current_dir(lab.path("work"));
        command.env_clear().envs(lab.env());
        let ran = super::lab::ran(&mut command);
        assert_eq!(ran.code, Some(1), "{redirection}: {}", ran.stderr);
        assert!(ran.stderr.contains("✓ Demo · "), "{}", ran.stderr);
        assert!(ran.stderr.contains("takopi run --engine demo --resume demo-"), "{}", ran.stderr);
        assert!(ran.stderr.contains(problem), "{}", ran.stderr);
    }
}

#[test]
fn help_that_cannot_be_written_fails() {
    let lab = Lab::new();
    for (redirection, problem) in [
        (">/dev/full", "error: cannot write to standard output: No space left on device"),
        (">&-", "error: cannot write to standard output: it is closed"),
    ] {
        for arguments in ["--help", "run -h", "--version"] {
            let mut command = std::process::Command::new("sh");
            let script = format!("exec \"$0\" {arguments} {redirection}");
            command.args(["-c", &script, env!("CARGO_BIN_EXE_takopi")]);
            command.env_clear().envs(lab.env());
            let ran = super::lab::ran(&mut command);
            assert_eq!(ran.code, Some(1), "{script}: {}", ran.stderr);
            assert!(ran.stderr.starts_with(problem), "{script}: {}", ran.stderr);
        }
    }
}

#[test]
fn signals_that_come_together_are_one_and_the_report_is_still_written() {
    let lab = Lab::new();
    let args = ["run", "--engine", "demo", "-c", "pace=1s", "hello"];
    let mut running = Running::start(lab.takopi(&args));
    running.wait_for("todo 0/2");
    for _ in 0..3 {
        running.signal(Signal::SIGTERM);
    }
    let ran = running.end();
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    assert!(ran.stderr.contains("✗ Demo · interrupted"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--resume demo-"), "{}", ran.stderr);
}
