//! What becomes of a process that is kept, when it dies or its turn ended in doubt.

use std::time::Duration;

use serde_json::json;
use takopi_core::Runner;
use takopi_tests::acp::fake::{Lab, Process, Script, Step, answer, end, text, thought, update};
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::run;

const WARM: Duration = Duration::from_mins(10);

#[tokio::test]
async fn a_warm_process_that_died_is_replaced_and_the_prompt_is_answered() {
    let dies =
        Process::new().turns(answer("one").into_iter().chain([Step::gate("die"), Step::Exit(0)]));
    let script = Script { starts: vec![dies, Process::new().turns(answer("two"))] };
    let lab = Lab::new(script);
    let runner = lab.runner(WARM);
    let first = run(&runner, lab.request("x")).await;
    lab.control.open("die");
    lab.control.all_gone().await;
    let second = run(&runner, lab.request("y").resume(first.session())).await;
    assert_eq!(second.ok().answer, "two");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_prompt_is_sent_again_only_if_a_warm_process_died_of_it_without_a_sign_of_life() {
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "status": "completed" });
    let of_child = json!({ "sessionId": "child", "update": call });
    for (before, answer_of_second) in [
        (None, Some("two")),
        (Some(Step::line(r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#)), Some("two")),
        (Some(thought("hm")), None),
        (Some(Step::notify("session/update", of_child)), None),
        (Some(Step::notify("session/update", json!({ "sessionId": 7 }))), None),
        (Some(Step::notify("vendor/progress", json!({}))), None),
        (Some(Step::ask("file", "fs/write_text_file", json!({})).without_waiting()), None),
        (Some(Step::line("half a line")), None),
    ] {
        let steps = before.clone().into_iter().chain([Step::Exit(1)]);
        let dies = Process::new().turns_when("[[die]]", steps).turns(answer("one"));
        let script = Script { starts: vec![dies, Process::new().turns(answer("two"))] };
        let lab = Lab::new(script);
        let runner = lab.runner(WARM);
        let first = run(&runner, lab.request("x")).await;
        let second = run(&runner, lab.request("[[die]]").resume(first.session())).await;
        match answer_of_second {
            Some(answer) => assert_eq!(second.ok().answer, answer, "{before:?}"),
            None => drop(second.failed("process_died")),
        }
        let prompts = lab.control.calls("session/prompt").len();
        assert_eq!(prompts, if answer_of_second.is_some() { 3 } else { 2 }, "{before:?}");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

/// A person who accepts a plan changes the mode, and the next run asks for its own again.
#[tokio::test]
async fn a_process_whose_session_left_its_permission_mode_is_not_used_again() {
    let choice = |id: &str| json!({ "value": id, "name": id });
    let option = |mode: &str| {
        json!({
            "id": "mode", "category": "mode", "currentValue": mode,
            "options": [choice("default"), choice("plan")],
        })
    };
    let ids = json!([{ "id": "default" }, { "id": "plan" }]);
    let modes = json!({ "modes": { "currentModeId": "default", "availableModes": ids } });
    let options = json!({ "configOptions": [option("default")] });
    let by_id =
        |mode: &str| json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode });
    let by_option = |mode: &str| json!({ "sessionUpdate": "config_option_update", "configOptions": [option(mode)] });
    for (offered, reported, is_kept) in [
        (&modes, vec![by_id("default")], false),
        (&modes, vec![by_id("default"), by_id("plan")], true),
        (&options, vec![by_option("default")], false),
        (&options, vec![by_option("plan")], true),
    ] {
        let mut new = offered.clone();
        new["sessionId"] = "$SESSION".into();
        let steps = reported.iter().map(update).chain(answer("one"));
        let process = Process::new()
            .always("session/new", [Step::ReplyWith(new)])
            .always("session/resume", [Step::ReplyWith(offered.clone())])
            .once("session/prompt", steps)
            .turns(answer("two"));
        let lab = Lab::new(process);
        let runner = lab.runner(WARM);
        let first = run(&runner, lab.request("x").permission_mode("plan")).await;
        first.ok();
        if !is_kept {
            // Nor is it kept, with a lock that nobody can use.
            within(PATIENCE, "its end", lab.assert_nothing_left()).await;
        }
        let request = lab.request("y").permission_mode("plan").resume(first.session());
        run(&runner, request).await.ok();
        assert_eq!(lab.control.starts().len(), if is_kept { 1 } else { 2 }, "{reported:?}");
        runner.shutdown().await;
        lab.assert_nothing_left().await;
    }
}

/// Behind an end that could not be read the turn may go on.
#[tokio::test]
async fn a_process_whose_turn_had_no_readable_end_is_not_used_again() {
    let turn = [Step::ReplyWith(json!({})), Step::gate("late"), text("of one")];
    let process = Process::new().once("session/prompt", turn).turns([
        Step::reached("two"),
        Step::gate("answer"),
        text("two"),
        end("end_turn"),
    ]);
    let lab = Lab::new(Script { starts: vec![process, Process::new().turns(answer("two"))] });
    let runner = lab.runner(WARM);
    let first = run(&runner, lab.request("x")).await;
    first.failed("protocol");
    lab.control.open("late");
    lab.control.open("answer");
    let second = run(&runner, lab.request("y").resume(first.session())).await;
    assert_eq!(second.ok().answer, "two");
    assert_eq!(lab.control.starts().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}
