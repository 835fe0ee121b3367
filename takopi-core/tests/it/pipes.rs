//! What goes into an engine process and what comes out of it.

use std::time::Duration;

use crate::common::engines::{shell, short_stop_sequence};
use crate::common::processes::{is_alive, number_in, until_gone};
use crate::common::{
    TEST_DEADLINE, TestHost, actions, all, end, end_of, eventually, is_started, titles, token,
    until_action, until_started,
};
use futures::StreamExt;
use takopi_core::model::{ActionKind, Reason};
use takopi_core::process::{Frame, Launch, StdinPlan};
use takopi_core::{RunError, RunRequest, Runner, TakopiEvent};

const MEGABYTE: usize = 1 << 20;

fn prompt() -> RunRequest {
    RunRequest::new("go")
}

#[tokio::test]
async fn a_prompt_of_megabytes_and_an_engine_that_talks_before_it_listens_do_not_deadlock() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo '{"started":"a"}'
        head -c 4000000 /dev/zero | tr '\0' 'x' | fold -w 10000 | sed 's/.*/{"note":"&"}/'
        echo
        echo "{\"done\":\"$(wc -c | tr -d ' ')\"}"
    "#;
    let runner = shell(script).payload(vec![b'p'; 8 * MEGABYTE]).on(&test_host);
    let events = all(runner.run(prompt())).await;
    assert_eq!(end_of(&events).answer, (8 * MEGABYTE).to_string());
    assert_eq!(actions(&events).len(), 400);
}

#[tokio::test]
async fn the_end_of_stderr_is_there_when_the_process_has_exited() {
    let test_host = TestHost::on_own_thread();
    let script = "echo first >&2; cat; echo last >&2";
    let launch = Launch::new("sh").args(["-c", script]).stdin(StdinPlan::Open);
    let (mut process, _output) = test_host.host.start(launch).await.unwrap();
    let (stdin, stderr) = (process.stdin(), process.stderr());
    eventually("the first line", || stderr.so_far() == "first\n").await;
    assert_eq!(stderr.at_exit(Duration::ZERO).await, "first\n");
    drop(stdin);
    assert_eq!(stderr.at_exit(TEST_DEADLINE).await, "first\nlast\n");
    process.finished().await;
}

#[tokio::test]
async fn a_process_is_finished_when_it_is_gone() {
    let test_host = TestHost::on_own_thread();
    let file = test_host.file("go");
    let script = format!("until [ -e {} ]; do sleep 0.01; done", file.display());
    let launch = Launch::new("sh").args(["-c", &script]).linger(TEST_DEADLINE);
    let (process, _output) = test_host.host.start(launch).await.unwrap();
    let pid = i32::try_from(process.pid()).unwrap();
    let mut finished = Box::pin(process.finished());
    assert!(futures::poll!(&mut finished).is_pending());
    assert!(is_alive(pid));
    std::fs::write(file, "").unwrap();
    finished.await;
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_prompt_the_engine_does_not_read_is_not_an_outcome() {
    let test_host = TestHost::on_own_thread();
    let script = r#"exec <&-; echo '{"started":"a"}'; echo '{"done":"unread"}'"#;
    let runner = shell(script).payload(vec![b'p'; 8 * MEGABYTE]).on(&test_host);
    assert_eq!(end(runner.run(prompt())).await.answer, "unread");
}

#[tokio::test]
async fn the_prompt_is_on_stdin_which_is_then_closed_and_never_in_the_arguments() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        prompt=$(cat)
        echo '{"started":"a"}'
        tr '\0' ' ' < /proc/$$/cmdline | grep -q "$prompt" && echo '{"note":"in the arguments"}'
        echo "{\"done\":\"$prompt\"}"
    "#;
    let events = all(shell(script).on(&test_host).run(RunRequest::new("secret word"))).await;
    assert_eq!(end_of(&events).answer, "secret word");
    assert!(actions(&events).is_empty());
    let debug = format!("{:?}", RunRequest::new("secret word"));
    assert!(!debug.contains("secret"), "nor in what is logged: {debug}");
}

#[tokio::test]
async fn the_last_line_without_a_newline_is_not_lost() {
    let test_host = TestHost::on_own_thread();
    let script = r#"printf '{"started":"a"}\n{"done":"whole"}'"#;
    assert_eq!(end(shell(script).on(&test_host).run(prompt())).await.answer, "whole");
}

#[tokio::test]
async fn a_line_of_a_hundred_mebibytes_is_skipped_and_the_run_goes_on() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo '{"started":"a"}'
        head -c 104857600 /dev/zero | tr '\0' x
        echo
        echo '{"done":"behind it"}'
    "#;
    let events = all(shell(script).on(&test_host).run(prompt())).await;
    assert_eq!(end_of(&events).answer, "behind it");
    let [warning] = actions(&events)[..] else { panic!("{:?}", titles(&events)) };
    assert_eq!(warning.action.kind, ActionKind::Warning);
    assert!(warning.action.title.contains("104857600"), "{}", warning.action.title);
}

#[tokio::test]
async fn strange_lines_never_end_a_run_and_are_shown_three_times_and_then_counted() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        printf '\n\n  \n'
        echo '{"started":"a"}'
        printf 'plain text\n\377\376\n{"note":\n'
        printf '{"note":"caf\351"}\n'
        echo '{"type":"nobody knows","deep":{"er":[1,2]}}'
        echo '[]'; echo '3'; echo 'null'
        for n in 1 2 3 4 5; do echo "strange $n"; done
        echo '{"done":"fine"}'
    "#;
    let events = all(shell(script).on(&test_host).run(prompt())).await;
    assert!(end_of(&events).ok);
    let titles = titles(&events);
    assert_eq!(titles.len(), 5, "{titles:?}");
    assert!(titles[0].contains("plain text"));
    assert_eq!(titles[3], "caf\u{fffd}", "bytes that are no UTF-8 spoil a letter, not a line");
    assert!(titles[4].contains('5') && titles[4].contains("more"), "{}", titles[4]);
    let warnings = actions(&events).iter().filter(|e| e.action.kind == ActionKind::Warning).count();
    assert_eq!(warnings, 4);
}

#[tokio::test]
async fn completed_comes_at_the_engines_terminal_event_and_not_at_its_exit() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo $$ > $DIR/pid
        echo '{"started":"a"}'
        echo '{"done":"long before"}'
        until [ -e $DIR/gate ]; do sleep 0.01; done
    "#;
    let runner = shell(script).on(&test_host);
    let end = end(runner.run(prompt())).await;
    assert_eq!(end.answer, "long before");
    let pid = number_in(&test_host.file("pid")).await;
    assert!(is_alive(pid));
    assert!(!test_host.lock_files().is_empty(), "its session is locked until it is gone");
    std::fs::write(test_host.file("gate"), "").unwrap();
    runner.shutdown().await;
    assert!(!is_alive(pid), "shutdown waits for its end");
    assert!(test_host.is_unlocked());
}

#[tokio::test]
async fn an_engine_that_lingers_after_its_work_is_ended() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo $$ > $DIR/pid
        trap '' INT
        echo '{"started":"a"}'
        echo '{"done":"done"}'
        while :; do sleep 0.02; done
    "#;
    let launch = |launch: Launch| {
        launch.linger(Duration::from_millis(50)).stop_sequence(short_stop_sequence())
    };
    let runner = shell(script).launch_with(launch).on(&test_host);
    assert!(end(runner.run(prompt())).await.ok);
    until_gone(number_in(&test_host.file("pid")).await).await;
    runner.shutdown().await;
    assert!(test_host.processes().is_empty() && test_host.is_unlocked());
}

#[tokio::test]
async fn an_engine_that_prints_on_behind_its_end_is_read_so_that_it_can_end() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo '{"started":"a"}'
        echo '{"done":"first"}'
        head -c 1000000 /dev/zero | tr '\0' '\n'
        echo '{"done":"second"}'
        echo done > $DIR/ended
    "#;
    let runner = shell(script).on(&test_host);
    assert_eq!(end(runner.run(prompt())).await.answer, "first");
    runner.shutdown().await;
    assert!(test_host.file("ended").exists());
}

#[tokio::test]
async fn a_grandchild_that_keeps_stdout_open_does_not_delay_the_end_of_the_stream() {
    let test_host = TestHost::on_own_thread();
    for grandchild in ["setsid sleep 1000", "setsid yes", "setsid sh -c 'exec yes >&2'"] {
        let script = format!(
            r#"
            # First: what floods the pipe would keep the shell from writing for as long as the machine is busy.
            echo '{{"started":"a"}}'
            echo '{{"say":"half"}}'
            {grandchild} < /dev/null &
            exit 3
            "#
        );
        let end = end(shell(script).on(&test_host).run(prompt())).await;
        assert_eq!(end.reason, Some(Reason::ProcessDied), "{grandchild}");
        assert!(end.error.unwrap().contains("rc=3"), "{grandchild}");
        assert_eq!(end.answer, "half");
        test_host.host.settle().await;
        assert!(test_host.is_unlocked(), "{grandchild}");
    }
    assert!(!test_host.processes().is_empty(), "what detached itself stays");
}

#[tokio::test]
async fn an_engine_that_never_stops_printing_stalls_no_other_session_and_can_be_stopped() {
    let test_host = TestHost::on_own_thread();
    let flood = shell(r#"echo '{"started":"flood"}'; exec yes '{"unknown":1}'"#).on(&test_host);
    let errors = shell(r#"echo '{"started":"errors"}'; yes >&2"#).on(&test_host);
    let calm = shell(r#"echo '{"started":"calm"}'; echo '{"done":"calm"}'"#).on(&test_host);
    let requests = [prompt(), prompt()];
    let cancels = requests.clone().map(|request| request.cancel);
    let [first, second] = requests;
    let mut runs = [flood.run(first), errors.run(second)];
    for run in &mut runs {
        until_started(run).await;
    }
    let others = async {
        for _ in 0..10 {
            assert_eq!(end(calm.run(prompt())).await.answer, "calm");
        }
    };
    tokio::time::timeout(TEST_DEADLINE / 2, others).await.expect("the others go on");
    for (run, cancel) in runs.into_iter().zip(cancels) {
        cancel.cancel();
        let end = end(run).await;
        assert_eq!(end.reason, Some(Reason::Interrupted), "{end:?}");
    }
    assert!(test_host.processes().is_empty());
}

#[tokio::test]
async fn stderr_is_drained_always_into_a_bounded_ring() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo '{"started":"a"}'
        head -c 20000000 /dev/zero | tr '\0' e >&2
        printf 'last words' >&2
        exit 7
    "#;
    let error = end(shell(script).on(&test_host).run(prompt())).await.error.unwrap();
    assert!(error.contains("rc=7") && error.ends_with("eelast words"), "{error}");
    assert!(error.len() < 9000, "{}", error.len());
}

#[tokio::test]
async fn a_consumer_that_does_not_read_leaves_the_process_unread_and_others_alone() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo '{"started":"a"}'
        seq 0 49999 | sed 's/.*/{"note":"&"}/'
        echo all > $DIR/printed
        echo '{"done":"all"}'
    "#;
    let slow = shell(script).on(&test_host).buffer(4, MEGABYTE);
    let mut unread = slow.run(prompt());
    until_started(&mut unread).await;
    let calm = shell(r#"echo '{"started":"calm"}'; echo '{"done":"calm"}'"#).on(&test_host);
    for _ in 0..5 {
        assert!(end(calm.run(prompt())).await.ok);
    }
    assert!(!test_host.file("printed").exists(), "the process waits at its pipe");
    let rest = all(unread).await;
    let expected: Vec<_> = (0..50_000).map(|number| number.to_string()).collect();
    assert_eq!(titles(&rest), expected);
}

#[tokio::test]
async fn a_busy_session_is_waited_for_and_tried_again_within_wait() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo x >> $DIR/tries
        [ $(wc -l < $DIR/tries) -lt 3 ] && exit 75
        echo '{"started":"a"}'
        echo '{"done":"third time"}'
    "#;
    let runner = shell(script).on(&test_host);
    let request = RunRequest::new("go").resume(token("a"));
    let events = all(runner.run(request)).await;
    assert_eq!(end_of(&events).answer, "third time");
    assert!(titles(&events)[0].contains("somebody outside"));
    assert!(is_started(&events[2]), "{events:?}");

    std::fs::remove_file(test_host.file("tries")).unwrap();
    let request = RunRequest::new("go").resume(token("a")).wait(Duration::from_millis(50));
    let end = end(runner.run(request)).await;
    assert_eq!((end.reason, end.resume), (Some(Reason::SessionBusy), Some(token("a"))));
    assert!(end.error.unwrap().contains("somebody outside"));
}

#[tokio::test]
async fn what_is_found_out_beside_a_run_ends_it_with_the_answer_so_far() {
    let test_host = TestHost::on_own_thread();
    let script = r#"echo '{"say":"half"}'; echo '{"started":"a"}'; exec sleep 1000"#;
    let failure = RunError::new(Reason::EngineTooOld, "too old");
    let mut events = shell(script).early_failure(failure).on(&test_host).run(prompt());
    until_started(&mut events).await;
    std::fs::write(test_host.file("early_failure"), "").unwrap();
    let end = end(events).await;
    assert_eq!((end.reason, end.answer.as_str()), (Some(Reason::EngineTooOld), "half"));
    assert!(test_host.processes().is_empty());
}

#[tokio::test]
async fn a_panic_in_translation_ends_the_process_too() {
    let test_host = TestHost::on_own_thread();
    let script = r#"echo '{"started":"a"}'; echo '{"panic":true}'; sleep 1000"#;
    let end = end(shell(script).on(&test_host).run(prompt())).await;
    assert_eq!(end.reason, Some(Reason::Protocol));
    assert!(end.error.unwrap().contains("told to panic"));
    assert!(test_host.processes().is_empty(), "gone before the end was said");
}

#[tokio::test]
async fn a_process_that_is_talked_to_answers_line_by_line_and_ends_with_its_input() {
    let test_host = TestHost::on_own_thread();
    let (name, value) = test_host.mark();
    let launch = Launch::new("cat").stdin(StdinPlan::Open).env(name, value);
    let (mut process, mut output) = test_host.host.start(launch).await.unwrap();
    let input = process.stdin().unwrap();
    assert!(process.stdin().is_none(), "taken once");
    for line in ["one", "two"] {
        assert!(input.write(format!("{line}\n").into_bytes()).await);
        let heard = loop {
            if let Some(Frame::Line(heard)) = output.pop() {
                break heard.to_vec();
            }
            assert!(output.fill().await);
        };
        assert_eq!(heard, line.as_bytes());
    }
    drop(input);
    assert_eq!(process.exited().await.code, Some(0));
    process.finished().await;
}

#[tokio::test]
async fn a_hundred_runs_at_once_keep_their_lines_apart() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        name=$(cat)
        echo "{\"started\":\"$name\"}"
        for n in 1 2 3; do echo "{\"note\":\"$name\"}"; done
        echo "{\"done\":\"$name\"}"
    "#;
    let runner = shell(script).on(&test_host);
    let runs = (0..100).map(|number| {
        let name = format!("n{number}");
        let run = all(runner.run(RunRequest::new(&name)));
        async move { (name, run.await) }
    });
    for (name, events) in futures::future::join_all(runs).await {
        assert_eq!(end_of(&events).answer, name);
        assert_eq!(titles(&events), [name.as_str(); 3]);
    }
    runner.shutdown().await;
    assert!(test_host.is_unlocked());
}

#[tokio::test]
async fn events_are_passed_on_as_they_come() {
    let test_host = TestHost::on_own_thread();
    let script = r#"
        echo '{"started":"a"}'
        echo '{"note":"now"}'
        until [ -e $DIR/gate ]; do sleep 0.01; done
        echo '{"done":"later"}'
    "#;
    let mut events = shell(script).on(&test_host).run(prompt());
    until_action(&mut events, "now").await;
    std::fs::write(test_host.file("gate"), "").unwrap();
    assert!(matches!(events.next().await, Some(TakopiEvent::Completed(_))));
    eventually("it is gone", || test_host.processes().is_empty()).await;
}
