//! Warm processes: when one is used again, replaced, or given up.

use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use takopi_core::runner::steer_channel;
use takopi_core::{Completed, Runner};
use takopi_tests::claude::fake::{Process, Script, Signal, Step, turn};
use takopi_tests::claude::lab::Lab;
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::run;

use super::LONG;

/// The prompts that were sent so far, with the number of the process that got them.
fn prompts(lab: &Lab) -> Vec<(usize, String)> {
    let text = |message: &serde_json::Value| {
        let content = &message["message"]["content"];
        content.as_str().or(content[0]["text"].as_str()).unwrap_or_default().to_owned()
    };
    lab.control.calls("user").iter().map(|sent| (sent.start, text(&sent.message))).collect()
}

/// A first run on the first process, and a second on whatever is there then.
async fn second_run(lab: &Lab) -> Completed {
    second_run_after(lab, async || {}).await
}

async fn second_run_after(lab: &Lab, between: impl AsyncFnOnce()) -> Completed {
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    one.ok();
    between().await;
    let two = run(&runner, lab.request("two").resume(one.session())).await;
    assert_eq!(two.completed().resume, Some(one.session()));
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
    two.completed().clone()
}

fn sent(start: usize, prompt: &str) -> (usize, String) {
    (start, prompt.to_owned())
}

#[tokio::test]
async fn a_warm_process_runs_the_next_message_of_its_session() {
    let lab = Lab::new(Process::new().turns(turn::answer("$PROMPT")));
    assert_eq!(second_run(&lab).await.answer, "two");
    assert_eq!(prompts(&lab), [sent(0, "one"), sent(0, "two")]);
}

/// A person who accepts a plan changes the mode, and the next run asks for its own again.
#[tokio::test]
async fn a_warm_process_that_left_its_permission_mode_is_not_used_again() {
    let mode =
        |mode: &str| turn::system("status", &json!({ "status": null, "permissionMode": mode }));
    for (modes, second) in
        [(&["acceptEdits"][..], 1), (&["acceptEdits", "default"], 0), (&["default", "plan"], 1)]
    {
        let steps = modes.iter().copied().map(mode).chain(turn::answer("one"));
        let lab = Lab::new(Process::new().turn(steps).turns(turn::answer("$PROMPT")));
        let between = async || {
            if second == 1 {
                // Nor is it kept, with a lock that nobody can use.
                within(PATIENCE, "its end", lab.assert_nothing_left()).await;
            }
        };
        let two = second_run_after(&lab, between).await;
        assert_eq!(two.answer, if second == 0 { "two" } else { "one" });
        assert_eq!(prompts(&lab), [sent(0, "one"), sent(second, "two")], "{modes:?}");
    }
}

#[tokio::test]
async fn a_warm_process_that_died_before_it_printed_anything_is_replaced_once() {
    let dies = || Process::new().turn(turn::answer("one")).once("user", [Step::Die(Signal::Kill)]);
    let lab = Lab::new(Script::nth([dies(), Process::new().turns(turn::answer("$PROMPT"))]));
    assert_eq!(second_run(&lab).await.answer, "two");
    assert_eq!(prompts(&lab), [sent(0, "one"), sent(0, "two"), sent(1, "two")]);

    let never = Process::new().always("user", [Step::Die(Signal::Kill)]);
    let lab = Lab::new(Script::nth([dies(), never]));
    let end = second_run(&lab).await;
    assert_eq!(end.reason.unwrap().as_str(), "process_died");
    assert_eq!(prompts(&lab), [sent(0, "one"), sent(0, "two"), sent(1, "two")], "once");
}

#[tokio::test]
async fn a_follow_up_is_not_lost_with_a_process_that_never_began() {
    let dies = [Step::reached("silent"), Step::gate("die"), Step::Die(Signal::Kill)];
    let dies = Process::new().turn(turn::answer("one")).once("user", dies);
    let second = [Step::reached("in"), Step::gate("go")].into_iter().chain(turn::answer("both"));
    let lab = Lab::new(Script::nth([dies, Process::new().turns(second)]));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    let (steer, steering) = steer_channel();
    let request = lab.request("two").resume(one.session()).steering(steering);
    let follow_up = async {
        lab.control.reached("silent").await;
        let mut follow_up = std::pin::pin!(steer.send("and three"));
        assert_eq!(follow_up.as_mut().now_or_never(), None, "it waits for the process");
        lab.control.open("die");
        lab.control.reached("in").await;
        follow_up.await.unwrap();
        lab.control.nth_call("user", 3).await;
        lab.control.open("go");
    };
    let (two, ()) = tokio::join!(run(&runner, request), follow_up);
    assert_eq!(two.ok().answer, "both");
    let expected = [sent(0, "one"), sent(0, "two"), sent(1, "two"), sent(1, "and three")];
    assert_eq!(prompts(&lab), expected);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_warm_process_that_printed_anything_is_never_replaced() {
    for printed in [
        vec![turn::running()],
        vec![turn::lifecycle("queued")],
        turn::opened([turn::bash("t", "rm -rf target")]),
        vec![turn::ask_bash("q", "t", "ls").without_waiting()],
        vec![Step::line("half a line")],
    ] {
        let steps = printed.clone().into_iter().chain([Step::Die(Signal::Kill)]);
        let dies = Process::new().turn(turn::answer("one")).once("user", steps);
        let lab = Lab::new(Script::nth([dies, Process::new()]));
        let end = second_run(&lab).await;
        assert_eq!(end.reason.unwrap().as_str(), "process_died", "{printed:?}");
        assert_eq!(prompts(&lab), [sent(0, "one"), sent(0, "two")], "{printed:?}");
    }
}

/// Behind the line stands a request that takopi answers: it has read the line then.
#[tokio::test]
async fn lines_that_cannot_be_read_before_a_run_are_warnings_in_it_and_no_beginning() {
    let ask = turn::ask_bash("between", "t", "ls").without_waiting();
    let between = [Step::gate("between"), Step::line("of the time between"), ask];
    let process = Process::new().turn(turn::answer("one").into_iter().chain(between));
    let process = process.once("user", [Step::Die(Signal::Kill)]);
    let lab = Lab::new(Script::nth([process, Process::new().turns(turn::answer("two"))]));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    one.ok();
    lab.control.open("between");
    lab.home.wait_until(|| !lab.control.answers("between").is_empty(), "a refusal").await;
    // The process dies of the message, which is sent again: the line came before it.
    let two = run(&runner, lab.request("two").resume(one.session())).await;
    assert_eq!(two.ok().answer, "two");
    let warnings = two.done(&takopi_core::ActionKind::Warning);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert_eq!(warnings[0].action.title, "not JSON: of the time between");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_warm_process_that_died_between_two_runs_is_never_used_again() {
    let dies = [Step::gate("die"), Step::Die(Signal::Kill)];
    let process = Process::new().turn(turn::answer("one").into_iter().chain(dies));
    let lab = Lab::new(Script::nth([process, Process::new()]));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    one.ok();
    lab.control.open("die");
    lab.control.gone(lab.control.started(0).await.pid).await;
    let two = run(&runner, lab.request("two").resume(one.session())).await;
    assert_eq!(two.ok().resume, Some(one.session()));
    assert_eq!(prompts(&lab).last(), Some(&sent(1, "two")));
    assert_eq!(lab.control.starts().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_that_another_runner_wants_is_given_up() {
    // With the same locks, and with those of another process.
    for elsewhere in [false, true] {
        let lab = Lab::new(Process::new().turns(turn::answer("$PROMPT")));
        let runner = lab.runner(LONG);
        let one = run(&runner, lab.request("one")).await;
        let other = if elsewhere { lab.elsewhere(LONG) } else { lab.runner(LONG) };
        let two = run(&other, lab.request("two").resume(one.session())).await;
        assert_eq!(two.ok().answer, "two");
        let back = run(&runner, lab.request("back").resume(one.session())).await;
        assert_eq!(back.ok().answer, "back");
        assert_eq!(lab.control.overlaps(), Vec::<String>::new(), "one writer at a time");
        assert_eq!(prompts(&lab), [sent(0, "one"), sent(1, "two"), sent(2, "back")]);
        tokio::join!(runner.shutdown(), other.shutdown());
        lab.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_run_that_ends_before_its_message_leaves_the_session_locked_for_its_warm_process() {
    let lab = Lab::new(Process::new().turns(turn::answer("$PROMPT")));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    let no_image = lab.home.workspace().join("notes.txt");
    std::fs::write(&no_image, "not an image").unwrap();
    let request = |prompt: &str| lab.request(prompt).resume(one.session());
    run(&runner, request("two").image(&no_image)).await.failed("invalid_request");
    let other = lab.elsewhere(LONG);
    run(&other, request("three")).await.ok();
    run(&runner, request("four")).await.ok();
    assert_eq!(lab.control.overlaps(), Vec::<String>::new(), "one writer at a time");
    assert_eq!(prompts(&lab), [sent(0, "one"), sent(1, "three"), sent(2, "four")]);
    tokio::join!(runner.shutdown(), other.shutdown());
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_that_ends_before_its_message_does_not_cost_the_warm_process() {
    let lab = Lab::new(Process::new().turns(turn::answer("$PROMPT")));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    let no_image = lab.home.workspace().join("notes.txt");
    std::fs::write(&no_image, "not an image").unwrap();
    let request = |prompt: &str| lab.request(prompt).resume(one.session());
    run(&runner, request("two").image(&no_image)).await.failed("invalid_request");
    run(&runner, request("three")).await.ok();
    assert_eq!(prompts(&lab), [sent(0, "one"), sent(0, "three")]);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_with_other_settings_gets_a_process_of_its_own() {
    let lab = Lab::new(Process::new().turns(turn::answer("$PROMPT")));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one").model("opus")).await;
    let request = |prompt: &str| lab.request(prompt).resume(one.session());
    run(&runner, request("same").model("opus")).await.ok();
    run(&runner, request("other").model("sonnet")).await.ok();
    run(&runner, request("still").model("sonnet")).await.ok();
    run(&runner, request("mode").model("sonnet").permission_mode("plan")).await.ok();
    assert_eq!(
        prompts(&lab),
        [sent(0, "one"), sent(0, "same"), sent(1, "other"), sent(1, "still"), sent(2, "mode")]
    );
    let args = lab.control.args(1).join(" ");
    assert!(args.contains("sonnet") && args.contains(&one.session().value), "{args}");
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_process_that_lost_its_login_is_not_kept() {
    let refused = turn::api_error(403, "authentication_failed", "Invalid API key");
    let lab = Lab::new(Script::nth([Process::new().turns(refused), Process::new()]));
    let runner = lab.runner(LONG);
    let one = run(&runner, lab.request("one")).await;
    one.failed("auth");
    assert_eq!(lab.home.processes(), []);
    run(&runner, lab.request("two").resume(one.session())).await.ok();
    assert_eq!(lab.control.starts().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_that_is_kept_for_no_time_leaves_no_process_behind_its_run() {
    let lab = Lab::new(Process::new());
    let runner = lab.runner(Duration::ZERO);
    run(&runner, lab.request("one")).await.ok();
    lab.assert_nothing_left().await;
}
