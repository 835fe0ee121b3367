use serde_json::json;

use super::*;
use crate::model::Gate;

fn events(answer: Answer, stream: bool) -> Vec<Value> {
    let body = json!({ "model": "m", "stream": stream });
    let (_, beats) = wire::beats(answer, &body);
    let sent = beats.iter().filter_map(|beat| match beat {
        Beat::Event(event) => event.strip_prefix("data: ").map(str::trim),
        Beat::Reply { body, .. } => Some(body.as_str()),
        _ => None,
    });
    sent.map(|text| serde_json::from_str(text).unwrap()).collect()
}

#[test]
fn an_answer_is_streamed_part_by_part_or_sent_in_one_piece() {
    let answer = || Answer::text("look").tool("run", json!({ "command": "ls" }));
    let streamed = events(answer(), true);
    let part = |event: &Value| event["candidates"][0]["content"]["parts"][0].clone();
    assert_eq!(part(&streamed[0]), json!({ "text": "look" }));
    assert_eq!(part(&streamed[1])["functionCall"]["name"], "run");
    let last = &streamed[2];
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    assert_eq!(last["usageMetadata"]["promptTokenCount"], 11);
    let whole = events(answer(), false);
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0]["candidates"][0]["content"]["parts"].as_array().unwrap().len(), 2);
}

#[test]
fn the_address_names_the_model_and_the_stream() {
    let at = |call: &str| {
        let address = format!("/v1beta/models/m:{call}?alt=sse").parse().unwrap();
        Gemini::request(&address, json!({ "tools": [{}], "contents": [] }))
    };
    let streamed = at("streamGenerateContent");
    assert_eq!((&streamed["model"], &streamed["stream"]), (&json!("m"), &json!(true)));
    assert!(Gemini::aside(&streamed).is_none());
    assert!(Gemini::aside(&at("generateContent")).is_some());
}

#[test]
fn the_users_texts_are_found_among_geminis_own() {
    let text = |role: &str, text: &str| json!({ "role": role, "parts": [{ "text": text }] });
    let result = json!({ "functionResponse": { "id": "c", "response": { "output": "out" } } });
    let body = json!({ "contents": [
        text("user", "<session_context>\nToday"),
        text("user", "first"),
        text("model", "done"),
        text("user", "second"),
        text("model", "look"),
        { "role": "user", "parts": [result] },
    ] });
    assert_eq!(Gemini::user_texts(&body), ["first", "second"]);
    assert_eq!(Gemini::prompts(&body)[0], Prompt { text: "second".into(), step: Some(1) });
    assert_eq!(Gemini::assistant_texts(&body), ["done", "look"]);
    assert_eq!(Gemini::tool_outputs(&body)[0].text, "out");
}

#[test]
fn pauses_come_before_what_they_hold_back() {
    let (_, beats) = wire::beats(Answer::new().wait_for(&Gate::new()).delta("x"), &json!({}));
    assert!(matches!(beats.front(), Some(Beat::Wait(_))), "{beats:?}");
}
