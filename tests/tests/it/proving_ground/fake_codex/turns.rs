//! Turns of an app-server: what they send, what they ask, how they end.

use serde_json::{Value, json};
use takopi_tests::codex::fake::{Control, Server, Step, app_server, turn};

use super::Live;

/// A server with one thread whose first turn plays these steps, and is asked for.
async fn turning(control: &Control, steps: Vec<Step>) -> (Live, String) {
    let script = Server::new().turn(steps).script();
    let (mut live, thread) = Live::with_thread(control, &script).await;
    live.turn(2, &thread, "do it").await;
    (live, thread)
}

#[tokio::test]
async fn a_healthy_turn_looks_like_the_recording() {
    let control = Control::new();
    let (mut live, thread) = Live::with_thread(&control, &app_server::echo()).await;
    live.turn(2, &thread, "say \"hi\"").await;
    let reply = live.reply(2).await;
    let turn = &reply["result"]["turn"]["id"];
    let started = live.until("turn/started").await;
    assert_eq!(started["params"]["turn"]["id"], *turn);
    assert_eq!(started["params"]["threadId"], thread.as_str());
    let echo = live.until("item/completed").await["params"]["item"].clone();
    assert_eq!(
        (&echo["type"], &echo["content"][0]["text"]),
        (&json!("userMessage"), &json!("say \"hi\""))
    );
    assert_eq!(live.until("item/agentMessage/delta").await["params"]["delta"], "say \"hi\"");
    let answer = live.until("item/completed").await;
    assert_eq!(answer["params"]["item"]["text"], "say \"hi\"");
    let usage = live.until("thread/tokenUsage/updated").await["params"]["tokenUsage"].clone();
    assert_eq!(
        (&usage["total"]["totalTokens"], &usage["last"]["inputTokens"]),
        (&json!(18), &json!(11))
    );
    let completed = live.until("turn/completed").await["params"]["turn"].clone();
    assert_eq!((&completed["id"], &completed["status"]), (turn, &json!("completed")));
    live.turn(3, &thread, "again").await;
    let usage = live.until("thread/tokenUsage/updated").await["params"]["tokenUsage"].clone();
    assert_eq!(
        (&usage["total"]["totalTokens"], &usage["last"]["totalTokens"]),
        (&json!(36), &json!(18))
    );
}

#[tokio::test]
async fn notices_can_come_before_the_reply() {
    let control = Control::new();
    let mut steps = vec![turn::started()];
    steps.extend(turn::answer("early"));
    steps.push(Step::Reply);
    let script = Server::new().once("turn/start", steps).script();
    let (mut live, thread) = Live::with_thread(&control, &script).await;
    live.turn(2, &thread, "hi").await;
    let methods = live.methods_until("reply").await;
    assert_eq!(methods.first().unwrap(), "turn/started");
    assert_eq!(methods[methods.len() - 2], "turn/completed");
}

#[tokio::test]
async fn every_kind_of_request_is_asked_and_its_answer_known() {
    let control = Control::new();
    let asks = [
        turn::ask_command("command", "c1", "rm -r target"),
        turn::ask_patch("patch", "p1"),
        turn::ask_permissions("permissions", "c2", "/etc"),
        turn::ask_elicitation("elicitation", "lab", "May I?"),
        turn::ask_user_input("input", "i1", "Which?"),
        turn::ask_tool("tool", "call-1", "lookup", &json!({"key": 1})),
        Step::ask("unknown", "item/never/heardOf", json!({"threadId": "$THREAD"})),
    ];
    let names =
        asks.clone().map(|ask| if let Step::Ask(ask) = ask { ask.name } else { String::new() });
    let mut steps = asks.to_vec();
    steps.extend(turn::answer("$REPLY"));
    let (mut live, thread) = turning(&control, steps).await;
    for (number, name) in names.iter().enumerate() {
        let ask = loop {
            let message = live.next().await;
            if message.get("id").is_some() && message.get("method").is_some() {
                break message;
            }
        };
        assert_eq!((&ask["id"], &ask["params"]["threadId"]), (&json!(number), &json!(thread)));
        let answer = json!({"id": ask["id"], "result": {"to": name}});
        live.send(&answer).await;
        let resolved = live.until("serverRequest/resolved").await;
        assert_eq!(resolved["params"], json!({"threadId": thread, "requestId": number}));
        assert_eq!(control.answer(name).await, answer);
    }
    let delta = live.until("item/agentMessage/delta").await;
    assert_eq!(delta["params"]["delta"], r#"{"to":"unknown"}"#);
    live.until("turn/completed").await;
    assert_eq!(control.answers("command").len(), 1);
}

#[tokio::test]
async fn a_turn_can_end_right_behind_an_ask() {
    let control = Control::new();
    let ask = turn::ask_command("late", "c1", "ls").without_waiting().with_id("own-id");
    let (mut live, _) = turning(&control, vec![ask, turn::completed()]).await;
    let ask = live.until("item/commandExecution/requestApproval").await;
    assert_eq!(ask["id"], "own-id");
    assert_eq!(live.next().await["method"], "turn/completed");
    live.send(&json!({"id": "own-id", "error": {"code": -32601, "message": "no"}})).await;
    live.send(&json!({"id": "own-id", "result": {}})).await;
    live.call(3, "model/list", json!({})).await;
    live.reply(3).await;
    assert_eq!(control.answers("late").len(), 2);
    assert_eq!(control.answer("late").await["error"]["code"], -32601);
}

#[tokio::test]
async fn an_ask_can_be_withdrawn() {
    let control = Control::new();
    let ask = turn::ask_patch("patch", "p1").without_waiting();
    let withdrawn = Step::Withdraw("patch".to_owned());
    let (mut live, _) =
        turning(&control, vec![ask, withdrawn.clone(), withdrawn, turn::completed()]).await;
    let ask = live.until("item/fileChange/requestApproval").await;
    let resolved = live.next().await;
    assert_eq!(resolved["method"], "serverRequest/resolved");
    assert_eq!(resolved["params"]["requestId"], ask["id"]);
    assert_eq!(live.next().await["method"], "turn/completed");
}

#[tokio::test]
async fn an_interrupt_stops_a_turn_wherever_it_is() {
    let sign = || turn::output_delta("c1", "running");
    let ask = turn::ask_command("ask", "c1", "ls");
    let places = [
        vec![sign(), Step::gate("never"), turn::completed()],
        vec![ask, turn::completed()],
        vec![sign()],
    ];
    for steps in places {
        let control = Control::new();
        let asks = matches!(steps[0], Step::Ask(_));
        let (mut live, thread) = turning(&control, steps).await;
        let ask = "item/commandExecution/requestApproval";
        let there = if asks { ask } else { "item/commandExecution/outputDelta" };
        live.until(there).await;
        live.call(3, "turn/interrupt", json!({"threadId": thread})).await;
        live.reply(3).await;
        let methods = live.methods_until("turn/completed").await;
        let withdrawn = methods.contains(&"serverRequest/resolved".to_owned());
        assert_eq!(withdrawn, asks, "{methods:?}");
        live.call(4, "turn/interrupt", json!({"threadId": thread})).await;
        let again = live.reply(4).await;
        assert_eq!(again["error"]["message"], "no active turn to interrupt");
        live.turn(5, &thread, "go on").await;
        let next = live.until("turn/completed").await;
        assert_eq!(next["params"]["turn"]["status"], "completed");
        assert_eq!(live.close().await.text(), "");
    }
}

#[tokio::test]
async fn nothing_of_an_interrupted_turn_comes_behind_its_end() {
    let control = Control::new();
    let steps = vec![Step::gate("go"), turn::command_started("c1", "ls"), Step::line("{}")];
    let (mut live, thread) = turning(&control, steps).await;
    live.reply(2).await;
    live.call(3, "turn/interrupt", json!({"threadId": thread})).await;
    live.until("turn/completed").await;
    control.open("go");
    live.call(4, "model/list", json!({})).await;
    assert_eq!(live.next().await["id"], 4);
    assert_eq!(live.close().await.text(), "");
}

#[tokio::test]
async fn an_interrupt_can_be_ignored() {
    let control = Control::new();
    let script = Server::new()
        .turn([Step::gate("go"), turn::completed()])
        .always("turn/interrupt", [Step::Reply])
        .script();
    let (mut live, thread) = Live::with_thread(&control, &script).await;
    live.turn(2, &thread, "hi").await;
    live.call(3, "turn/interrupt", json!({"threadId": thread})).await;
    live.reply(3).await;
    control.open("go");
    let completed = live.until("turn/completed").await;
    assert_eq!(completed["params"]["turn"]["status"], "completed");
}

#[tokio::test]
async fn a_second_turn_is_folded_into_the_first() {
    let control = Control::new();
    let mut steps = vec![Step::gate("go")];
    steps.extend(turn::answer("one answer"));
    let (mut live, thread) = turning(&control, steps).await;
    let first = live.reply(2).await["result"]["turn"]["id"].clone();
    live.turn(3, &thread, "second").await;
    assert_eq!(live.reply(3).await["result"]["turn"]["id"], first);
    control.open("go");
    live.until("turn/completed").await;
    assert_eq!(live.close().await.text(), "");
}

#[tokio::test]
async fn a_sub_agent_ends_before_its_parent() {
    let control = Control::new();
    let mut steps = turn::elsewhere("sub", "sub-1", turn::answer("from below"));
    steps.extend([Step::gate("go"), turn::completed()]);
    let (mut live, thread) = turning(&control, steps).await;
    let sub = live.until("turn/completed").await["params"].clone();
    assert_eq!((&sub["threadId"], &sub["turn"]["id"]), (&json!("sub"), &json!("sub-1")));
    live.turn(3, &thread, "still busy").await;
    let folded = live.reply(3).await["result"]["turn"]["id"].clone();
    control.open("go");
    let parent = live.until("turn/completed").await["params"].clone();
    assert_eq!((&parent["threadId"], &parent["turn"]["id"]), (&json!(thread), &folded));
}

#[tokio::test]
async fn two_threads_interleave_in_the_order_of_the_gates() {
    let control = Control::new();
    let story = |name: &str| {
        let mut steps = vec![turn::delta("m", &format!("{name}-")), Step::gate(name)];
        steps.extend([turn::delta("m", "done"), turn::completed()]);
        steps
    };
    let script =
        Server::new().turns_when("one", story("one")).turns_when("two", story("two")).script();
    let (mut live, first) = Live::with_thread(&control, &script).await;
    let second = live.thread(2).await;
    live.turn(3, &first, "one").await;
    live.turn(4, &second, "two").await;
    let deltas =
        [live.until("item/agentMessage/delta").await, live.until("item/agentMessage/delta").await];
    assert_eq!(deltas.map(|it| it["params"]["delta"].clone()), [json!("one-"), json!("two-")]);
    control.open("two");
    assert_eq!(live.until("turn/completed").await["params"]["threadId"], second.as_str());
    control.open("one");
    assert_eq!(live.until("turn/completed").await["params"]["threadId"], first.as_str());
}

#[tokio::test]
async fn errors_items_and_aborts_are_sent() {
    let control = Control::new();
    let mut steps = vec![
        turn::reconnecting(1, 5, "stream closed"),
        turn::command_started("c1", "ls"),
        turn::output_delta("c1", "a\n"),
        turn::command_completed("c1", "ls", "a\n", 3),
        turn::patch_started("p1", &["a.rs", "b.rs"]),
        turn::patch_completed("p1", &["a.rs", "b.rs"], "declined"),
    ];
    steps.extend(turn::message_in_phase("m1", "looking", "commentary"));
    steps.extend(turn::aborted_message("m2"));
    steps.extend(turn::failed("boom"));
    let (mut live, _) = turning(&control, steps).await;
    let notice = live.until("error").await["params"].clone();
    assert_eq!(
        (&notice["willRetry"], &notice["error"]["message"]),
        (&json!(true), &json!("Reconnecting... 1/5"))
    );
    let mut items = Vec::new();
    let last = loop {
        let message = live.next().await;
        match message["method"].as_str() {
            Some("item/completed") => items.push(message["params"]["item"].clone()),
            Some("error") => break message["params"].clone(),
            _ => {}
        }
    };
    let field = |name: &str| items.iter().map(|item| item[name].clone()).collect::<Vec<Value>>();
    assert_eq!(field("status")[..2], [json!("failed"), json!("declined")]);
    assert_eq!(field("text")[2..], [json!("looking"), json!("<turn_aborted>")]);
    assert_eq!((&last["willRetry"], &last["error"]["message"]), (&json!(false), &json!("boom")));
    let turn = live.until("turn/completed").await["params"]["turn"].clone();
    assert_eq!((&turn["status"], &turn["error"]["message"]), (&json!("failed"), &json!("boom")));
}
