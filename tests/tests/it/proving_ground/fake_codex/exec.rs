//! Steps of an exec script.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal as Posix;
use serde_json::json;
use takopi_tests::codex::fake::report::Mode;
use takopi_tests::codex::fake::{self, Control, Script, Signal, Step, exec};
use tokio::io::AsyncWriteExt;

use super::{Live, command, run, run_exec};

const EXEC: [&str; 3] = ["exec", "--json", "-"];

#[tokio::test]
async fn hello_looks_like_the_recording() {
    let control = Control::new();
    let ended = run_exec(&control, &exec::session("s-1", "Hello from the mock."), "hi").await;
    let recording = include_str!("../../../../../fixtures/codex-0.166.0/exec/hello.jsonl");
    let recording = recording.replace("01a1e21b-26e5-7eb0-9d27-459e98f10b74", "s-1");
    let recorded: Vec<serde_json::Value> =
        recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ended.lines(), recorded);
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn arguments_environment_directory_and_stdin_are_recorded() {
    let control = Control::new();
    let id = "01A1E21B-26E5-7EB0-9D27-459E98F10B74";
    let args = ["-c", "notify=[]", "exec", "--json", "resume", id, "-"];
    let mut env = control.env(&exec::echo());
    env.push(("MARK".to_owned(), "here".to_owned()));
    let prompt = "a \"quoted\" prompt\nof two lines: ü";
    let ended = run(env, &args, prompt.as_bytes()).await;
    assert_eq!(ended.lines()[0]["thread_id"], id.to_lowercase());
    assert_eq!(ended.lines()[2]["item"]["text"], prompt);
    let started = control.started(0).await;
    assert_eq!(started.args, args);
    assert_eq!(control.args(0), args);
    assert_eq!(started.mode, Mode::Exec);
    assert_eq!(started.env["MARK"], "here");
    assert_eq!(started.cwd, std::env::current_dir().unwrap());
    assert_eq!(control.stdin(0), prompt.as_bytes());
    assert_eq!(control.pids(), [started.pid]);
}

#[tokio::test]
async fn a_new_session_gets_a_new_id() {
    let control = Control::new();
    let one = run_exec(&control, &exec::hello("hi"), "").await;
    let two = run_exec(&control, &exec::hello("hi"), "").await;
    assert_ne!(one.lines()[0]["thread_id"], two.lines()[0]["thread_id"]);
}

#[tokio::test]
async fn bytes_are_written_as_they_are() {
    let script = Script::exec([
        Step::raw(*b"\xff\xfe\n"),
        Step::line(r#"{"id":"a","id":"b"}"#),
        Step::line("not json, $HOME stays, $SEQ and $SEQ count"),
        Step::raw(*b"{\"partial\":"),
    ]);
    let ended = run(script.env(), &EXEC, b"").await;
    let expected = b"\xff\xfe\n{\"id\":\"a\",\"id\":\"b\"}\n\
        not json, $HOME stays, 0 and 1 count\n{\"partial\":";
    assert_eq!(ended.stdout, expected);
}

#[tokio::test]
async fn huge_lines_have_the_length_asked_for() {
    let length = 3 * 1024 * 1024 + 1;
    let script = Script::exec([Step::huge_junk(length), exec::huge_message(length)]);
    let ended = run(script.env(), &EXEC, b"").await;
    let lines: Vec<&str> = ended.text().lines().collect();
    assert_eq!((lines.len(), lines[0].len(), lines[1].len()), (2, length, length));
    let message: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(message["item"]["type"], "agent_message");
}

#[tokio::test]
async fn stderr_is_written_and_flooded() {
    let script = Script::exec([Step::stderr("first"), Step::FloodStderr(1024 * 1024)]);
    let ended = run(script.env(), &EXEC, b"").await;
    assert!(ended.stderr.starts_with(b"first\n"));
    assert!(ended.stderr.len() > 1024 * 1024);
    assert!(ended.stdout.is_empty());
}

#[tokio::test]
async fn it_can_print_before_it_reads_its_prompt() {
    let control = Control::new();
    let mut steps = vec![exec::flood(2000)];
    steps.extend(exec::answering("done"));
    let prompt = "p".repeat(1024 * 1024);
    let ended = run_exec(&control, &Script::exec(steps), &prompt).await;
    assert_eq!(ended.lines().len(), 2004);
    assert_eq!(control.stdin(0).len(), prompt.len());
}

#[tokio::test]
async fn it_can_read_a_part_of_stdin_and_close_it() {
    let control = Control::new();
    let script = Script::exec([
        Step::ReadStdinBytes(4),
        Step::CloseStdin,
        Step::reached("closed"),
        Step::gate("go"),
        exec::message("$PROMPT"),
    ]);
    let mut live = Live::start(&control, &script, &EXEC);
    let mut stdin = live.child.stdin.take().unwrap();
    stdin.write_all(b"four and more").await.unwrap();
    control.reached("closed").await;
    let error = stdin.write_all(b"too late").await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(control.stdin(0), b"four");
    control.open("go");
    assert_eq!(live.next().await["item"]["text"], "four");
}

#[tokio::test]
async fn it_can_close_stdout_and_live_on() {
    let control = Control::new();
    let script = Script::exec([exec::turn_started(), Step::CloseStdout, Step::gate("go")]);
    let mut live = Live::start(&control, &script, &EXEC);
    assert_eq!(live.next().await, json!({"type": "turn.started"}));
    assert!(live.next().await.is_null());
    assert_eq!(control.alive(), [live.child.id().unwrap()]);
    control.open("go");
    assert_eq!(live.end().await.code(), Some(0));
}

#[tokio::test]
async fn it_exits_with_the_code_or_signal_of_its_script() {
    let exits = run(exec::failed("boom").env(), &EXEC, b"").await;
    assert_eq!((exits.code(), exits.lines().len()), (Some(1), 4));
    for (signal, number) in [(Signal::Kill, 9), (Signal::Segv, 11), (Signal::Term, 15)] {
        let script =
            Script::exec([exec::turn_started(), Step::Die(signal), exec::turn_completed()]);
        let dies = run(script.env(), &EXEC, b"").await;
        assert_eq!((dies.status.signal(), dies.lines().len()), (Some(number), 1));
    }
}

#[tokio::test]
async fn resumes_are_refused_as_codex_does() {
    let args = ["exec", "--json", "resume", "abc", "-"];
    let busy = run(exec::busy().env(), &args, b"hi").await;
    assert_eq!((busy.code(), busy.text()), (Some(1), ""));
    let said = String::from_utf8(busy.stderr).unwrap();
    assert!(said.contains("failed: thread abc already has an active writer (code -32600)"));
    let unknown = run(exec::not_found().env(), &args, b"hi").await;
    assert!(unknown.stderr.ends_with(b"no rollout found for thread id abc (code -32600)\n"));
}

#[tokio::test]
async fn it_ignores_signals() {
    let control = Control::new();
    let ignored = [Signal::Int, Signal::Term];
    let script = Script::exec([Step::ignore(ignored), Step::reached("armed"), Step::gate("go")]);
    let live = Live::start(&control, &script, &EXEC);
    control.reached("armed").await;
    live.signal(Posix::SIGINT);
    live.signal(Posix::SIGTERM);
    control.open("go");
    assert_eq!(live.end().await.code(), Some(0));
}

#[tokio::test]
async fn a_signal_plays_its_steps_each_time() {
    let control = Control::new();
    let script = Script::exec([
        exec::thread_started_as("s-1"),
        Step::on_signal(Signal::Int, [Step::reached("int")]),
        Step::on_signal(Signal::Term, [exec::error("terminated"), Step::Exit(1)]),
        Step::reached("armed"),
        Step::SleepForever,
    ]);
    let mut live = Live::start(&control, &script, &EXEC);
    control.reached("armed").await;
    live.signal(Posix::SIGINT);
    control.reached("int").await;
    live.signal(Posix::SIGINT);
    control.nth_reached("int", 1).await;
    live.signal(Posix::SIGTERM);
    assert_eq!(live.next().await["thread_id"], "s-1");
    assert_eq!(live.next().await["message"], "terminated");
    assert_eq!(live.end().await.code(), Some(1));
}

#[tokio::test]
async fn the_version_is_that_of_the_script() {
    let version = |script: Script| async move { run(script.env(), &["--version"], b"").await };
    assert_eq!(version(exec::hello("")).await.text(), "codex-cli 0.166.0\n");
    assert_eq!(version(exec::hello("").version("0.118.0")).await.text(), "codex-cli 0.118.0\n");
    let garbage = version(exec::hello("").on_version([Step::raw(*b"\xffnonsense")])).await;
    assert_eq!(garbage.stdout, b"\xffnonsense");
    let failing = exec::hello("").on_version([Step::stderr("no"), Step::Exit(1)]);
    assert_eq!(version(failing).await.code(), Some(1));
    let login = run(exec::hello("").env(), &["login", "status"], b"").await;
    assert_eq!(login.stderr, b"Logged in using ChatGPT\n");
}

#[tokio::test]
async fn the_version_can_hang_and_counts_as_no_start() {
    let control = Control::new();
    let hanging = [Step::reached("asked"), Step::SleepForever];
    let script = exec::hello("hi").on_version(hanging);
    let mut asked = command(control.env(&script), &["--version"]).spawn().unwrap();
    let mark = control.reached("asked").await;
    assert_eq!(run_exec(&control, &script, "").await.code(), Some(0));
    assert_eq!((control.version_calls(), control.starts().len()), (1, 1));
    asked.kill().await.unwrap();
    control.gone(mark.pid).await;
}

#[tokio::test]
async fn each_start_plays_its_own_script_and_the_last_repeats() {
    let control = Control::new();
    let script = Script::nth([exec::busy(), exec::hello("second"), exec::hello("last $START")]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let ended = run_exec(&control, &script, "").await;
        let answer = ended.lines().get(2).map(|line| line["item"]["text"].clone());
        seen.push((ended.code(), answer));
    }
    let answers = |text: &str| (Some(0), Some(json!(text)));
    let expected = [(Some(1), None), answers("second"), answers("last 2"), answers("last 3")];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_script_that_cannot_be_played_is_refused_loudly() {
    let gate = run(Script::exec([Step::gate("x")]).env(), &EXEC, b"").await;
    let several = run(Script::nth([exec::hello(""), exec::hello("")]).env(), &EXEC, b"").await;
    let transport = run(exec::hello("").env(), &["app-server"], b"").await;
    let misplaced = run(Script::exec([Step::Reply]).env(), &EXEC, b"").await;
    let missing = run(vec![], &EXEC, b"").await;
    let malformed = run(vec![(fake::SCRIPT.to_owned(), "{".to_owned())], &EXEC, b"").await;
    for ended in [gate, several, transport, misplaced, missing, malformed] {
        assert_eq!(ended.code(), Some(fake::BAD_SCRIPT));
        assert!(ended.stderr.starts_with(b"fake-codex: "));
    }
}
