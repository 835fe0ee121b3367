//! What is shown of a request, what of it is marked, and what the real agents ask.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;

fn permission(call: &Value) -> Permission {
    let option = json!({ "optionId": "once", "kind": "allow_once", "name": "Allow" });
    let params = json!({ "sessionId": "s", "toolCall": call, "options": [option] }).to_string();
    Permission::read(&RawValue::from_string(params).unwrap()).unwrap()
}

fn asked(value: &Value) -> (Question, Vec<String>) {
    let (question, odd) = question(&permission(value), Path::new("/srv"));
    (question, odd.into_iter().map(|part| part.field).collect())
}

fn text(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

fn tool(question: Question) -> ToolCall {
    let Question::ToolCall(call) = question else { panic!("{question:?}") };
    call
}

#[test]
fn a_tool_call_whose_input_was_not_sent_is_not_understood() {
    for kind in ["other", "fetch", "think"] {
        let (question, odd) = asked(&json!({ "toolCallId": "1", "kind": kind, "title": "t" }));
        assert_eq!((tool(question).input, odd), (None, vec!["rawInput".to_owned()]));
    }
    // An input without fields is one.
    let (question, odd) =
        asked(&json!({ "toolCallId": "1", "kind": "other", "title": "t", "rawInput": {} }));
    assert_eq!((tool(question).input, odd), (Some(Excerpt::from("{}")), Vec::new()));
}

#[test]
fn an_input_that_is_sent_as_text_is_shown_from_its_beginning() {
    let long = format!(r#"{{"path":"/srv/a","content":"{}"}}"#, "x".repeat(9 * 1024));
    let call = json!({ "toolCallId": "1", "kind": "other", "content": [text(&long)] });
    let (question, odd) = asked(&call);
    assert_eq!(reason(&permission(&call), &question), "the agent offers: Allow");
    assert_eq!((tool(question).input, odd), (Some(Excerpt::from(&*long)), Vec::new()));
    let longer = "x".repeat(TEXT_BYTES + 1);
    let (question, _) =
        asked(&json!({ "toolCallId": "1", "kind": "other", "content": [text(&longer)] }));
    assert_eq!(tool(question).input.unwrap().omitted, 1);
}

#[test]
fn what_the_agent_says_about_a_command_is_its_reason_and_marked_where_it_is_cut() {
    let of = |words: &str| {
        let input = json!({ "command": "ls" });
        let permission = permission(&json!({
            "toolCallId": "1", "kind": "execute", "rawInput": input, "content": [text(words)],
        }));
        reason(&permission, &Question::command("ls"))
    };
    assert_eq!(of(" run it "), "run it; the agent offers: Allow");
    let long = of(&"x".repeat(REASON_BYTES + 1));
    assert!(long.ends_with("x…; the agent offers: Allow"), "{long}");
}

#[test]
fn requests_are_the_same_only_if_all_that_tells_what_is_done_is() {
    let same = |path: &str| {
        let words = format!("{path}{}", "x".repeat(9 * 1024));
        permission(&json!({ "toolCallId": path, "kind": "other", "content": [text(&words)] })).same
    };
    assert_ne!(same("/srv/a"), same("/home/ada/.ssh/authorized_keys"));
    let of_id = |id: &str| permission(&json!({ "toolCallId": id, "rawInput": { "a": 1 } })).same;
    assert_eq!(of_id("1"), of_id("2"));
}

#[test]
fn a_command_is_what_would_run_and_everything_that_widens_it_is_marked() {
    let (question, odd) = asked(&json!({
        "toolCallId": "1", "kind": "execute", "title": "shown",
        "rawInput": { "command": "touch a", "description": "d", "cwd": "/srv" },
    }));
    assert_eq!((question, odd), (Question::command("touch a"), Vec::new()));
    for input in [
        json!({ "command": "touch a", "sandbox": "off" }),
        json!({ "command": "touch a", "is_background": true }),
        json!({ "command": "touch a", "cwd": "/etc" }),
    ] {
        let (_, odd) = asked(&json!({ "toolCallId": "1", "kind": "execute", "rawInput": input }));
        assert_eq!(odd.len(), 1, "{odd:?}");
    }
    let (question, odd) =
        asked(&json!({ "toolCallId": "1", "kind": "execute", "title": "touch a" }));
    assert_eq!((question, odd.len()), (Question::command("touch a"), 1));
}

#[test]
fn files_are_shown_with_their_diff_or_marked_as_unseen() {
    let diff = json!({ "type": "diff", "path": "/srv/a", "oldText": "x\n", "newText": "y\n" });
    let (question, odd) = asked(&json!({ "toolCallId": "1", "kind": "edit", "content": [diff] }));
    let Question::Patch(patch) = question else { panic!() };
    assert_eq!(patch.files[0].diff.as_ref().unwrap().text, "@@ -1,1 +1,1 @@\n-x\n+y\n");
    assert!(odd.is_empty());
    let (_, odd) = asked(&json!({
        "toolCallId": "1", "kind": "edit", "title": "Edit files", "locations": [{ "path": "/srv/a" }],
    }));
    assert_eq!(odd, ["content"]);
}

/// A change of `/srv/a` by a request of this kind, with other fields of its call.
fn of_change(kind: &str, others: &Value) -> Vec<String> {
    let diff = json!({ "type": "diff", "path": "/srv/a", "oldText": "x\n", "newText": "y\n" });
    let mut call = json!({ "toolCallId": "1", "kind": kind, "content": [diff] });
    for (name, value) in others.as_object().unwrap() {
        match (name.as_str(), value) {
            ("content", Value::Array(more)) => {
                call["content"].as_array_mut().unwrap().extend(more.clone());
            }
            _ => call[name] = value.clone(),
        }
    }
    let (question, odd) = asked(&call);
    let Question::Patch(patch) = question else { panic!("{question:?}") };
    assert_eq!(patch.files[0].path.path, Path::new("/srv/a"));
    odd
}

#[test]
fn an_edit_of_every_occurrence_is_marked() {
    let input = |all: Value| json!({ "rawInput": { "old_string": "x", "replace_all": all } });
    assert!(of_change("edit", &input(json!(false))).is_empty());
    assert_eq!(of_change("edit", &input(json!(true))), ["replace_all"]);
    assert_eq!(of_change("edit", &json!({ "rawInput": { "replaceAll": "yes" } })), ["replaceAll"]);
    assert_eq!(of_change("edit", &json!({ "rawInput": "*** Begin Patch" })), ["rawInput"]);
}

#[test]
fn content_that_cannot_be_read_is_marked() {
    let diff = |old: Value, new: Value| json!({ "type": "diff", "path": "/etc/b", "oldText": old, "newText": new });
    for entry in [
        diff(json!("x"), json!(null)),
        diff(json!(7), json!("y")),
        json!({ "type": "diff", "path": "/etc/b" }),
        json!({ "type": "diff", "oldText": "x", "newText": "y" }),
        json!({ "type": "diff", "path": "b", "oldText": "x", "newText": "y", "movePath": "/etc/b" }),
        json!({ "type": "patch", "patch": "..." }),
        json!({ "type": "content", "content": { "type": "image", "data": "" } }),
        json!("text"),
    ] {
        let odd = of_change("edit", &json!({ "content": [entry] }));
        assert_eq!(odd, ["content"], "{entry}");
    }
    let known = json!([
        diff(json!(null), json!("y")),
        text("run it"),
        { "type": "terminal", "terminalId": "t" },
        { "type": "diff", "path": "b", "oldText": "", "newText": "y", "_meta": { "kind": "add" } },
    ]);
    assert!(of_change("edit", &json!({ "content": known })).is_empty());
    let (_, odd) = asked(&json!({ "toolCallId": "1", "rawInput": {}, "content": "all of it" }));
    assert_eq!(odd, ["content"]);
}

#[test]
fn places_and_inputs_that_no_diff_shows_are_marked() {
    let places = |paths: &[&str]| {
        let paths: Vec<Value> = paths.iter().map(|path| json!({ "path": path })).collect();
        json!({ "locations": paths })
    };
    assert!(of_change("edit", &places(&["/srv/a", "a", "./a"])).is_empty());
    assert_eq!(of_change("edit", &places(&["/srv/a", "/etc/b"])), ["locations"]);
    assert_eq!(of_change("edit", &json!({ "locations": [{ "path": 7 }] })), ["locations"]);
    let input = |input: Value| json!({ "rawInput": input });
    let moved = input(json!({ "from": "/srv/a", "to": "/etc/b" }));
    assert_eq!(of_change("move", &moved), ["to"]);
    assert_eq!(
        of_change("delete", &input(json!({ "path": "a", "recursive": true }))),
        ["recursive"]
    );
    assert!(of_change("delete", &input(json!({ "path": "a" }))).is_empty());
    // Without a diff all of the input is.
    let (_, odd) = asked(&json!({
        "toolCallId": "1", "kind": "move", "locations": [{ "path": "a" }], "rawInput": { "to": "b" },
    }));
    assert_eq!(odd, ["content", "rawInput"]);
}

#[test]
fn a_diff_is_marked_where_the_question_is_about_something_else() {
    let diff = json!({ "type": "diff", "path": "/etc/b", "oldText": "x\n", "newText": "y\n" });
    for kind in ["execute", "other"] {
        let (_, odd) = asked(&json!({
            "toolCallId": "1", "kind": kind, "rawInput": { "command": "ls" }, "content": [diff],
        }));
        assert_eq!(odd, ["content"], "{kind}");
    }
}

#[test]
fn fields_of_a_request_that_are_not_known_are_marked() {
    let params = json!({
        "sessionId": "s", "grantRoot": "/", "_meta": {},
        "toolCall": { "toolCallId": "1", "rawInput": {}, "elevated": true, "_meta": {} },
        "options": [{ "optionId": "once", "kind": "allow_once" }],
    });
    let raw = RawValue::from_string(params.to_string()).unwrap();
    let (_, odd) = question(&Permission::read(&raw).unwrap(), Path::new("/srv"));
    let fields: Vec<&str> = odd.iter().map(|part| part.field.as_str()).collect();
    assert_eq!(fields, ["grantRoot", "elevated"]);
}

/// The first one is read; the agent may mean another.
#[test]
fn a_name_that_stands_twice_is_marked() {
    let option = r#"{ "optionId": "once", "kind": "allow_once" }"#;
    let odd = |call: &str, options: &str, more: &str| {
        let params = format!(
            r#"{{ "sessionId": "s", "toolCall": {{ "toolCallId": "1", {call} }}, "options": [{options}] {more} }}"#
        );
        let raw = RawValue::from_string(params).unwrap();
        let (_, odd) = question(&Permission::read(&raw).unwrap(), Path::new("/srv"));
        odd.into_iter().map(|part| (part.field, part.value.text)).collect::<Vec<_>>()
    };
    let execute = r#""kind": "execute", "rawInput": { "command": "git status" }"#;
    assert_eq!(odd(execute, option, ""), []);
    let part = |name: &str, json: &str| vec![(name.to_owned(), json.to_owned())];
    let twice =
        r#""kind": "execute", "rawInput": { "command": "git status", "command": "rm -r x" }"#;
    assert_eq!(odd(twice, option, ""), part("command", "\"rm -r x\""));
    let twice = format!(r#"{execute}, "rawInput": {{}}"#);
    assert_eq!(odd(&twice, option, ""), part("rawInput", "{}"));
    assert_eq!(odd(execute, option, r#", "toolCall": 7"#), part("toolCall", "7"));
    let twice = r#"{ "optionId": "once", "kind": "allow_once", "kind": "allow_always" }"#;
    assert_eq!(odd(execute, twice, ""), part("options", twice));
    let diff = r#"{ "type": "diff", "path": "a", "newText": "x", "newText": "y" }"#;
    let edit = format!(r#""kind": "edit", "content": [{diff}]"#);
    assert_eq!(odd(&edit, option, ""), part("content", diff));
    let place = r#"{ "path": "a", "path": "/etc/b" }"#;
    let edit = format!(r#"{execute}, "locations": [{place}]"#);
    assert_eq!(odd(&edit, option, ""), part("locations", place));
}

#[test]
fn whether_a_file_without_an_old_text_is_new_is_not_known() {
    let diff = json!({ "type": "diff", "path": "/srv/a", "oldText": null, "newText": "y\n" });
    let (question, odd) = asked(&json!({ "toolCallId": "1", "kind": "edit", "content": [diff] }));
    let Question::Patch(patch) = question else { panic!() };
    assert_eq!((patch.files[0].kind, odd), (ChangeKind::Unknown, Vec::new()));
}

/// Of what the real agents were seen to ask, only this is not understood: nothing tells what would be done.
#[test]
fn ordinary_requests_of_every_agent_are_understood() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let mut asked = BTreeMap::<(String, String, Vec<String>), usize>::new();
    for directory in std::fs::read_dir(fixtures).unwrap() {
        let directory = directory.unwrap();
        let name = directory.file_name().into_string().unwrap();
        let Some(agent) = name.strip_prefix("acp-") else { continue };
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let lines = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for line in lines.lines().filter(|line| line.contains("session/request_permission")) {
                let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
                let message = &line["msg"];
                // Another version of the protocol has the call elsewhere.
                if message["method"] != "session/request_permission"
                    || message["params"]["toolCall"].is_null()
                {
                    continue;
                }
                let raw = RawValue::from_string(message["params"].to_string()).unwrap();
                let permission = Permission::read(&raw).unwrap();
                let (_, odd) = question(&permission, Path::new("/home/ada/project"));
                let odd = odd.into_iter().map(|part| part.field).collect();
                let kind = permission.call.kind.unwrap_or_default();
                *asked.entry((agent.to_owned(), kind, odd)).or_default() += 1;
            }
        }
    }
    let (understood, others): (Vec<_>, Vec<_>) =
        asked.keys().partition(|(_, _, odd)| odd.is_empty());
    let kinds: BTreeSet<(&str, &str)> =
        understood.iter().map(|(agent, kind, _)| (agent.as_str(), kind.as_str())).collect();
    let others: Vec<(&str, &str, String)> = others
        .iter()
        .map(|(agent, kind, odd)| (agent.as_str(), kind.as_str(), odd.join(" ")))
        .collect();
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        [
            ("claude-agent-acp-0.99.1", "edit"),
            ("claude-agent-acp-0.99.1", "execute"),
            ("claude-agent-acp-0.99.1", "other"),
            ("codex-acp-2.6.0", "execute"),
            ("gemini-0.61.0", "edit"),
            ("gemini-0.61.0", "other"),
            ("opencode-1.18.33", "edit"),
            ("opencode-1.18.33", "execute"),
            ("qwen-0.24.4", "edit"),
            ("qwen-0.24.4", "execute"),
        ]
    );
    assert_eq!(
        others,
        [
            ("codex-acp-2.6.0", "edit", "content".to_owned()),
            ("gemini-0.61.0", "execute", "rawInput".to_owned()),
            ("gemini-0.61.0", "other", "rawInput".to_owned()),
        ]
    );
}
