//! `takopi batch` on the demo engine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use pty_process::blocking::Command;
use serde_json::Value;

use super::lab::{Lab, Running, codex};
use crate::screen::Screen;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn demo<'a>(args: &[&'a str]) -> Vec<&'a str> {
    ["batch", "--engine", "demo"].iter().chain(args).copied().collect()
}

/// A table without what differs from run to run.
fn still(table: &str) -> String {
    let figures = |line: &&str| !line.starts_with("time ") && !line.starts_with("work ");
    // The columns are as wide as the figures.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: Vec<String> = table.lines().filter(figures).map(words).collect();
    crate::cli::terminal::still(&words.join("\n"))
}

#[test]
fn results_go_to_standard_output_and_the_rest_to_standard_error() {
    let lab = Lab::new();
    let ran = lab.run_with(&demo(&["--jobs", "1"]), b"hello\n\nthere\n");
    assert_eq!(ran.code, Some(0));
    let results = lines(&ran.stdout);
    assert_eq!((&results[0]["id"], &results[1]["id"]), (&"1".into(), &"3".into()));
    assert!(results[1]["answer"].as_str().unwrap().ends_with("You said: there"));
    insta::assert_snapshot!(still(&ran.stderr), @r"
    ✓ 1 · Ns
    ✓ 3 · Ns
    ok 2
    failed 0
    tokens in 22
    tokens out 14
    ");
}

#[test]
fn a_second_run_runs_only_missing_prompts_and_the_report_can_be_printed_again() {
    let lab = Lab::new();
    lab.write("work/p.txt", "one\ntwo\n");
    let args = demo(&["p.txt", "--out", "r.jsonl"]);
    let first = lab.run(&args);
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), ""));
    lab.write("work/p.txt", "one\ntwo\nthree\n");
    let second = lab.run(&args);
    assert!(still(&second.stderr).starts_with("✓ 3 · Ns\nok 3\n"), "{}", second.stderr);
    let report = lab.run(&["batch", "report", "r.jsonl"]);
    assert_eq!(report.code, Some(0));
    assert!(second.stderr.ends_with(&report.stdout), "{}\n{}", second.stderr, report.stdout);
    let json = lab.run(&["batch", "report", "r.jsonl", "--json"]);
    assert_eq!(lines(&json.stdout)[0]["ok"], 3);
    let third = lab.run(&demo(&["p.txt", "--out", "r.jsonl", "--quiet"]));
    assert_eq!((third.code, third.stdout.as_str(), third.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn errors_in_the_input_are_reported_before_anything_runs() {
    let lab = Lab::new();
    lab.write(
        "work/bad.jsonl",
        "{\"prompt\":\"a\"}\n{\"promt\":\"b\"}\n{\"id\":1,\"prompt\":\"c\"}\n",
    );
    lab.write("work/good.txt", "one\n");
    lab.write("work/other.txt", "ONE\n");
    lab.write("work/notes", "not results\n");
    lab.write("work/token.jsonl", "{\"prompt\":\"a\",\"resume\":\"nobody\"}\n");
    lab.run(&demo(&["good.txt", "--out", "done.jsonl"]));
    let cases: &[(&[&str], &str)] = &[
        (&["bad.jsonl"], "error: bad.jsonl: line 2: unknown field `promt`"),
        (&["bad.jsonl"], "bad.jsonl: line 3: the id `1` is already used on line 1"),
        (&["bad.jsonl"], "nothing was run"),
        (&["token.jsonl"], "line 1: `nobody` is not a session of demo"),
        (&["other.txt", "--out", "done.jsonl"], "line 1: the prompt of `1` differs from the one"),
        (&["other.txt", "--out", "done.jsonl"], "--on-change keep or rerun"),
        (&["good.txt", "--out", "notes"], "notes:1 is not a result of a batch"),
        (&["good.txt", "--out", "good.txt"], "good.txt contains the prompts"),
        (&["good.txt", "--out", "/no/such/out"], "cannot open /no/such/out: No such file"),
        (&["good.txt", "--out", "/dev/null"], "/dev/null is not an ordinary file"),
        (&["missing"], "cannot read missing"),
        (&["."], ". is a directory"),
        (&["good.txt", "--jobs", "0"], "expected a number from 1"),
        (
            &["good.txt", "other.txt"],
            "expected one file of prompts; for several: cat good.txt other.txt |",
        ),
        (&["good.txt", "--out", "notes"], "hint: choose another file for the results"),
        (&["good.txt", "--cd", "/no/such"], "the directory /no/such does not exist"),
        (&["good.txt", "--fail-fast", "--on-failure", "stop"], "cannot be used with"),
        (&["report", "notes"], "notes:1 is not a result of a batch"),
        (&["report", "missing"], "cannot read missing: No such file"),
    ];
    for (args, said) in cases {
        let args = if args[0] == "report" { vec!["batch", "report", args[1]] } else { demo(args) };
        let ran = lab.run(&args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
        assert!(args[1] != "report" || !ran.stderr.contains("hint"), "{args:?}: {}", ran.stderr);
    }
    // With codex, which is not installed here: it is not started.
    for (args, said) in [
        (["--transport=exec", "--approve=accept"], "codex cannot ask for approval over exec"),
        (["--image", "/no/such"], "the image /no/such does not exist"),
    ] {
        let ran = lab.run(&[&["batch", "good.txt"], &args[..]].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    assert_eq!(std::fs::read_to_string(lab.path("work/notes")).unwrap(), "not results\n");
}

#[test]
fn results_are_not_written_over_the_prompts() {
    let lab = Lab::new();
    let prompts = "{\"id\":\"a\",\"prompt\":\"say hi\"}";
    lab.write("work/one.jsonl", prompts);
    std::os::unix::fs::symlink("one.jsonl", lab.path("work/link")).unwrap();
    let mut redirected = lab.takopi(&demo(&["--out", "link"]));
    redirected.stdin(std::fs::File::open(lab.path("work/one.jsonl")).unwrap());
    for ran in [
        lab.run(&demo(&["one.jsonl", "--out", "one.jsonl"])),
        lab.run(&demo(&["one.jsonl", "--out", "link"])),
        super::lab::ran(&mut redirected),
    ] {
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("contains the prompts: choose another file for the results"));
        assert_eq!(std::fs::read_to_string(lab.path("work/one.jsonl")).unwrap(), prompts);
    }
}

#[test]
fn a_refused_input_leaves_no_files() {
    let lab = Lab::new();
    lab.write("work/bad.jsonl", "{\"promt\":\"b\"}\n");
    assert_eq!(lab.run(&demo(&["bad.jsonl", "--out", "r.jsonl"])).code, Some(2));
    assert_eq!(lab.run(&demo(&["missing", "--out", "r.jsonl"])).code, Some(2));
    assert!(!lab.path("work/r.jsonl").exists() && !lab.path("work/r.jsonl.state").exists());
}

#[test]
fn an_invalid_line_in_a_pipe_is_2_and_the_prompts_before_it_are_run() {
    let lab = Lab::new();
    let input = b"{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\nnonsense\n{\"prompt\":\"c\"}\n";
    let ran = lab.run_with(&demo(&["-"]), input);
    assert_eq!(ran.code, Some(2));
    assert_eq!(lines(&ran.stdout).len(), 2);
    assert!(ran.stderr.contains("error: line 3: not a JSON object"), "{}", ran.stderr);
}

#[test]
fn a_failed_prompt_is_1_also_when_nothing_is_left_to_run() {
    let lab = Lab::new();
    lab.write("work/p.txt", "one\n");
    let program = codex("failing");
    let args =
        ["batch", "p.txt", "--transport", "exec", "--codex-bin", &program, "--out", "r.jsonl"];
    let ran = lab.run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("✗ 1: the model said no (engine_failed)\n"), "{}", ran.stderr);
    assert!(still(&ran.stderr).contains("failed 1\nengine_failed 1\n"), "{}", ran.stderr);
    assert_eq!(lab.run(&args).code, Some(1));
}

#[test]
fn a_missing_engine_is_3_and_marks_nothing() {
    let lab = Lab::new();
    let args = ["batch", "--codex-bin", "/no/such/codex", "--out", "r.jsonl"];
    let ran = lab.run_with(&args, b"one\ntwo\n");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: install it with"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(lab.path("work/r.jsonl")).unwrap(), "");
}

/// A batch whose two jobs never end, when they have begun.
fn endless(lab: &Lab, more: &[&str]) -> Running {
    lab.write("work/p.txt", "one\ntwo\nthree\n");
    let args = demo(&["p.txt", "-c", "pace=1h", "--jobs", "2", "--out", "r.jsonl", "--json"]);
    let args: Vec<&str> = args.iter().chain(more).copied().collect();
    let mut running = Running::start(lab.takopi(&args));
    let mut events = BufReader::new(running.stdout()).lines();
    let mut begun = 0;
    while begun < 2 {
        let event: Value = serde_json::from_str(&events.next().unwrap().unwrap()).unwrap();
        begun += usize::from(event["type"] == "started");
    }
    // The pipe has to be read to its end.
    std::thread::spawn(move || events.for_each(drop));
    running
}

#[test]
fn a_second_batch_on_the_same_results_is_4() {
    let lab = Lab::new();
    let first = endless(&lab, &["--grace", "0"]);
    let second = lab.run(&demo(&["p.txt", "--out", "r.jsonl"]));
    assert_eq!(second.code, Some(4));
    assert_eq!(second.stderr, "error: r.jsonl is in use by another batch\n");
    first.signal(Signal::SIGINT);
    assert_eq!(first.end().code, Some(130));
}

#[test]
fn a_signal_stops_the_batch_and_the_next_run_continues() {
    let lab = Lab::new();
    let running = endless(&lab, &["--grace", "0"]);
    running.signal(Signal::SIGTERM);
    let ran = running.end();
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(lab.path("work/r.jsonl")).unwrap(), "");
    let next = lab.run(&demo(&["p.txt", "--out", "r.jsonl"]));
    assert_eq!(next.code, Some(0), "{}", next.stderr);
    let results = std::fs::read_to_string(lab.path("work/r.jsonl")).unwrap();
    let mut attempts: Vec<(String, Value)> = lines(&results)
        .into_iter()
        .map(|result| (result["id"].as_str().unwrap().to_owned(), result["attempts"].clone()))
        .collect();
    attempts.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("1", 2), ("2", 2), ("3", 1)].map(|(id, n)| (id.to_owned(), n.into()));
    assert_eq!(attempts, expected);
}

#[test]
fn the_total_limit_is_124() {
    let lab = Lab::new();
    lab.write("work/p.txt", "one\n");
    let ran = lab.run(&demo(&["p.txt", "-c", "pace=1h", "--total-timeout", "100ms"]));
    assert_eq!(ran.code, Some(124), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: the batch took longer than --total-timeout"));
}

#[test]
fn prompts_of_a_pipe_are_run_as_they_arrive() {
    let lab = Lab::new();
    let mut command = lab.takopi(&demo(&[]));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut results = BufReader::new(child.stdout.take().unwrap()).lines();
    for prompt in ["first", "second"] {
        writeln!(input, "{prompt}").unwrap();
        let result: Value = serde_json::from_str(&results.next().unwrap().unwrap()).unwrap();
        assert!(result["answer"].as_str().unwrap().ends_with(prompt));
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_closed_standard_output_stops_the_batch() {
    let lab = Lab::new();
    let mut command = lab.takopi(&demo(&[]));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    // The input stays open: it is not its end that ends the batch.
    let mut input = child.stdin.take().unwrap();
    // A process that another test starts has a copy of the output's other end for a moment: the first
    // result may still be written.
    let status = loop {
        // An input that is not read any more is the end that is waited for.
        let _ = input.write_all(b"one\n");
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_full_disk_behind_standard_output_is_reported() {
    let lab = Lab::new();
    // Linux has a device that is always full; elsewhere there is nothing to test with.
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    lab.write("work/p.txt", "one\n");
    for more in [&[][..], &["--json"], &["--quiet"]] {
        let mut command = lab.takopi(&demo(&[&["p.txt"], more].concat()));
        let mut child =
            command.stdout(full.try_clone().unwrap()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert!(said.contains("error: cannot write to standard output: No space left"), "{said}");
    }
}

#[test]
fn times_are_in_the_zone_of_tz() {
    if !std::path::Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists() {
        return;
    }
    let lab = Lab::new();
    lab.write("work/p.txt", "one\n");
    let mut command = lab.takopi(&demo(&["p.txt"]));
    let ran = super::lab::ran(command.env("TZ", "Asia/Tokyo"));
    let began = &lines(&ran.stdout)[0]["started"];
    let began: jiff::Timestamp = began.as_str().unwrap().parse().unwrap();
    let there = jiff::tz::TimeZone::fixed(jiff::tz::offset(9));
    let expected = began.to_zoned(there).strftime("%H:%M:%S to ").to_string();
    assert!(ran.stderr.contains(&expected), "{expected}: {}", ran.stderr);
}

#[test]
fn limits_beyond_the_range_of_the_clock_are_accepted() {
    let lab = Lab::new();
    let ever = "9223372036854775807";
    let ran = lab.run_with(&demo(&["--total-timeout", ever, "--grace", ever]), b"one\n");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn quiet_prints_no_notes_and_a_finished_batch_no_hint() {
    let lab = Lab::new();
    lab.write("work/p.jsonl", "{\"prompt\":\"a\",\"timeout\":\"1ms\"}\n{\"prompt\":\"b\"}\n");
    let args = demo(&[
        "p.jsonl",
        "--fail-fast",
        "--jobs",
        "1",
        "--retries",
        "0",
        "-c",
        "pace=60s",
        "--out",
        "r.jsonl",
    ]);
    let ran = lab.run(&[&args[..], &["--quiet", "--approve", "ask"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    std::fs::remove_file(lab.path("work/r.jsonl")).unwrap();
    let hint = "hint: run the same command again to continue";
    let ran = lab.run(&args);
    assert!(ran.stderr.contains("stopped because 1 failed") && ran.stderr.contains(hint));
    // With one prompt there is nothing to go on with.
    lab.write("work/p.jsonl", "{\"prompt\":\"a\",\"timeout\":\"1ms\"}\n");
    std::fs::remove_file(lab.path("work/r.jsonl")).unwrap();
    let ran = lab.run(&args);
    assert!(ran.stderr.contains("stopped because 1 failed") && !ran.stderr.contains(hint));
}

#[test]
fn events_have_the_id_of_their_job() {
    let lab = Lab::new();
    let ran = lab.run_with(&demo(&["--json"]), b"{\"id\":\"a\",\"prompt\":\"hi\"}\n");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let events = lines(&ran.stdout);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(kinds.starts_with(&["batch_started", "batch_read", "job_started"]), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"batch_completed"));
    let of_run = |kind: &&str| matches!(*kind, "started" | "action" | "completed");
    assert!(kinds.iter().filter(|kind| of_run(kind)).count() > 20);
    for event in events.iter().filter(|event| of_run(&event["type"].as_str().unwrap())) {
        assert_eq!(event["job"], "a", "{event}");
    }
}

#[test]
fn on_a_terminal_there_is_a_bar_and_a_line_for_each_running_job() {
    let lab = Lab::new();
    lab.write("work/p.txt", &"look around\n".repeat(7));
    let args = demo(&["p.txt", "-c", "pace=1h", "-j", "3", "--out", "r.jsonl", "--grace", "0"]);
    let command = Command::new(env!("CARGO_BIN_EXE_takopi"))
        .args(args)
        .current_dir(lab.path("work"))
        .env_clear()
        .envs(lab.env());
    let screen = Screen::start(command, (24, 80));
    let picture = screen.wait_for("3 running · 4 queued");
    let first: Vec<&str> = picture.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(first[..3], ["▸", "▸", "▸"], "{picture}");
    assert!(picture.contains("──────────────────────── 0/7 · 3 running"), "{picture}");
    screen.press("\x03");
    let (code, over, _) = screen.end();
    assert_eq!(code, Some(130), "{over}");
    assert!(still(&over).contains("ok 0\n") && !over.contains("running"), "{over}");
    assert!(over.ends_with("hint: run the same command again to continue"), "{over}");
}

#[test]
fn on_a_terminal_results_are_printed_above_the_bar() {
    let lab = Lab::new();
    let (reader, mut input) = std::io::pipe().unwrap();
    let command = Command::new(env!("CARGO_BIN_EXE_takopi"))
        .args(demo(&["-c", "pace=1h", "--grace", "0"]))
        .stdin(reader)
        .current_dir(lab.path("work"))
        .env_clear()
        .envs(lab.env());
    let screen = Screen::start(command, (24, 800));
    writeln!(input, "{{\"prompt\":\"look around\"}}").unwrap();
    screen.wait_for("0 done · 1 running");
    for id in ["a", "b"] {
        writeln!(input, "{{\"id\":\"{id}\",\"prompt\":\"x\",\"cwd\":\"/no/such\"}}").unwrap();
    }
    let picture = screen.wait_for("2 done · 2 failed · 1 running");
    let results = picture.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ids: Vec<Value> = results.map(|result| result["id"].clone()).collect();
    assert_eq!(ids, ["a", "b"], "{picture}");
    assert_eq!(picture.matches("1 running").count(), 1, "{picture}");
    screen.press("\x03");
    assert_eq!(screen.end().0, Some(130));
}

#[test]
fn deleted_results_fail_the_batch_which_reports_where_they_were_saved() {
    let lab = Lab::new();
    let (reader, mut input) = std::io::pipe().unwrap();
    let mut command = lab.takopi(&demo(&["--out", "out"]));
    command.stdin(reader);
    let mut running = Running::start(command);
    writeln!(input, "one").unwrap();
    // A result is reported after it was synced: the deletion is found at the second one.
    running.wait_for("✓ 1 ");
    std::fs::remove_file(lab.path("work/out")).unwrap();
    writeln!(input, "two").unwrap();
    drop(input);
    let ran = running.end();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: out was deleted or moved"), "{}", ran.stderr);
    assert!(ran.stderr.contains("out.rescued-1"), "{}", ran.stderr);
    let text = std::fs::read_to_string(lab.path("work/out.rescued-1")).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
}
