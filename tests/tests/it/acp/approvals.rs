//! What the fake agent asks, and what becomes of the answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use takopi_core::approvals::{Rules, accept_all, from_fn};
use takopi_core::{ApprovalRequest, Decision};
use takopi_tests::acp::fake::{Lab, Process, Step, answer, permission};
use takopi_tests::runs::run;

const COLD: Duration = Duration::ZERO;

/// A request to call a tool whose input is text, as gemini asks for tools of MCP servers.
fn tool(name: &str, text: &str) -> Step {
    let option = |id: &str, kind: &str| json!({ "optionId": id, "kind": kind, "name": id });
    let options = [
        option("proceed_always_server", "allow_always"),
        option("proceed_always_tool", "allow_always"),
        option("proceed_once", "allow_once"),
        option("cancel", "reject_once"),
    ];
    let contents = [json!({ "type": "content", "content": { "type": "text", "text": text } })];
    let content = if text.is_empty() { &[] } else { &contents[..] };
    let call = json!({
        "toolCallId": name, "kind": "other", "title": "write (lab MCP Server)", "status": "pending",
        "content": content, "locations": [],
    });
    let params = json!({ "sessionId": "$SESSION", "toolCall": call, "options": options });
    Step::ask(name, "session/request_permission", params)
}

#[tokio::test]
async fn a_request_without_a_session_can_only_be_declined() {
    let option = json!({ "optionId": "once", "kind": "allow_once", "name": "Allow" });
    let call = json!({ "toolCallId": "c1", "kind": "execute", "title": "ls" });
    let params = json!({ "toolCall": call, "options": [option] });
    let ask = Step::ask("ask", "session/request_permission", params);
    let lab = Lab::new(Process::new().turns([ask].into_iter().chain(answer("on"))));
    let request = lab.request("x").approvals(Arc::new(accept_all()));
    assert_eq!(run(&lab.runner(COLD), request).await.ok().answer, "on");
    let answers = lab.control.answers("ask");
    assert_eq!(answers[0]["result"]["outcome"]["outcome"], "cancelled", "{answers:?}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_no_that_stops_ends_the_turn_as_interrupted() {
    let steps = [permission("ask", "c1", "ls")].into_iter().chain(answer("on"));
    let lab = Lab::new(Process::new().turns(steps));
    let stop = from_fn(|_| async { Decision::Cancel });
    let seen = run(&lab.runner(COLD), lab.request("x").approvals(Arc::new(stop))).await;
    assert_eq!(seen.failed("interrupted").answer, "");
    let answers = lab.control.answers("ask");
    assert_eq!(answers[0]["result"]["outcome"]["outcome"], "cancelled", "{answers:?}");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn what_is_allowed_for_the_session_is_asked_once_and_never_for_good() {
    let steps = [
        permission("one", "a", "make"),
        permission("two", "b", "make"),
        permission("three", "c", "make install"),
    ];
    let lab = Lab::new(Process::new().turns(steps.into_iter().chain(answer("done"))));
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let handler = from_fn(move |_| {
        *count.lock().unwrap() += 1;
        std::future::ready(Decision::AcceptForSession)
    });
    run(&lab.runner(COLD), lab.request("x").approvals(Arc::new(handler))).await.ok();
    assert_eq!(*asked.lock().unwrap(), 2, "the same request is not asked again, another is");
    for name in ["one", "two", "three"] {
        let answers = lab.control.answers(name);
        assert_eq!(answers[0]["result"]["outcome"]["optionId"], "once", "{answers:?}");
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn calls_whose_inputs_differ_only_in_their_beginning_are_asked_about_one_by_one() {
    let input = |path: &str| format!(r#"{{"path":"{path}","content":"{}"}}"#, "x".repeat(9 * 1024));
    let (one, two) = (input("/srv/a"), input("/home/ada/.ssh/authorized_keys"));
    let steps = [tool("one", &one), tool("two", &two), tool("three", &one)];
    let lab = Lab::new(Process::new().turns(steps.into_iter().chain(answer("done"))));
    let asked: Arc<Mutex<Vec<ApprovalRequest>>> = Arc::default();
    let record = asked.clone();
    let handler = from_fn(move |request: ApprovalRequest| {
        record.lock().unwrap().push(request);
        std::future::ready(Decision::AcceptForSession)
    });
    run(&lab.runner(COLD), lab.request("x").approvals(Arc::new(handler))).await.ok();
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!(asked.len(), 2, "the third is the first again");
    for (request, input) in asked.iter().zip([one, two]) {
        assert!(format!("{:?}", request.question).contains(&format!("{input:?}")), "{request:?}");
    }
    lab.assert_nothing_left().await;
}

/// Nothing tells that the second call is the first again, and no rule knows what it does. A person may accept it.
#[tokio::test]
async fn a_call_whose_input_was_not_sent_is_asked_about_every_time() {
    let steps = [tool("one", ""), tool("two", "")];
    let lab = Lab::new(Process::new().turns(steps.into_iter().chain(answer("done"))));
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let person = from_fn(move |request: ApprovalRequest| {
        *count.lock().unwrap() += 1;
        assert!(!request.is_understood() && request.is_whole(), "{request:?}");
        let remembers = request.offers(Decision::AcceptForSession);
        std::future::ready(if remembers { Decision::AcceptForSession } else { Decision::Accept })
    });
    let rules = Rules::new().otherwise(person);
    run(&lab.runner(COLD), lab.request("x").approvals(Arc::new(rules))).await.ok();
    assert_eq!(*asked.lock().unwrap(), 2);
    for name in ["one", "two"] {
        let answers = lab.control.answers(name);
        assert_eq!(answers[0]["result"]["outcome"]["optionId"], "proceed_once", "{answers:?}");
    }
    lab.assert_nothing_left().await;
}
