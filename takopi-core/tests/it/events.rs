//! The event model on the wire.

use serde_json::{Map, Value, json};
use takopi_core::model::schema::stream_schema;
use takopi_core::model::{
    Action, ActionEvent, ActionKind, Completed, EngineId, Level, Phase, RateLimitWindow,
    RateLimits, Reason, ResumeToken, Started, TakopiEvent, Usage, UsageScope, tail,
};

const PHASES: [Phase; 3] = [Phase::Started, Phase::Updated, Phase::Completed];
const LEVELS: [Option<Level>; 5] =
    [None, Some(Level::Debug), Some(Level::Info), Some(Level::Warning), Some(Level::Error)];

fn write(event: &TakopiEvent) -> String {
    serde_json::to_string(event).unwrap()
}

fn read(line: &str) -> TakopiEvent {
    serde_json::from_str(line).unwrap()
}

fn token() -> ResumeToken {
    ResumeToken::new("codex", "0199")
}

fn usage(input_tokens: u64, scope: UsageScope) -> Usage {
    let mut usage = Usage::default();
    (usage.input_tokens, usage.scope) = (input_tokens, scope);
    usage
}

/// An action of every kind, in every phase, at every level.
fn every_action() -> Vec<TakopiEvent> {
    let mut events = Vec::new();
    let unknown = ActionKind::Other("holodeck".to_owned());
    for kind in ActionKind::KNOWN.iter().chain([&unknown]) {
        for phase in PHASES {
            for level in LEVELS {
                for (ok, message) in [(None, None), (Some(false), Some("why"))] {
                    let action = Action::new("item_1", kind.clone(), "ls")
                        .with("exit_code", 0)
                        .with("changes", json!([{ "path": "a.rs", "kind": "add" }]));
                    let mut event = ActionEvent::new("codex", action, phase);
                    (event.ok, event.level) = (ok, level);
                    event.message = message.map(str::to_owned);
                    events.push(event.into());
                }
            }
        }
    }
    events
}

/// Ends of every kind.
fn every_end() -> Vec<TakopiEvent> {
    let unknown = Reason::Other("out_of_ink".to_owned());
    let mut usage = usage(3, UsageScope::Thread);
    usage.others.insert("audio_tokens".to_owned(), json!(5));
    let mut events: Vec<TakopiEvent> = Reason::KNOWN
        .iter()
        .chain([&unknown])
        .map(|reason| {
            Completed::failure("codex", reason.clone(), "why").resume(Some(token())).into()
        })
        .collect();
    events.push(Completed::success("codex", "yes").usage(Some(usage)).into());
    events.push(Completed::success("codex", "").into());
    let windows = vec![
        RateLimitWindow::new("primary", 100.0).resets_at(1_800_000_000).window_minutes(300),
        RateLimitWindow::new("secondary", 12.5),
    ];
    let limits = [RateLimits::new(windows), RateLimits::until(5), RateLimits::default()];
    for limits in limits {
        let limited = Completed::failure("codex", Reason::UsageLimit, "limit reached");
        events.push(limited.rate_limits(Some(limits)).cost_usd(Some(0.25)).into());
    }
    events
}

fn every_start() -> Vec<TakopiEvent> {
    let mut started = Started::new(token()).title("Codex");
    started.meta.insert("model".to_owned(), json!("gpt"));
    vec![started.into(), Started::new(token()).into()]
}

fn every_event() -> Vec<TakopiEvent> {
    [every_start(), every_action(), every_end()].concat()
}

#[test]
fn every_event_survives_a_round_trip() {
    for event in every_event() {
        let line = write(&event);
        assert!(!line.contains('\n'), "one object a line: {line}");
        assert_eq!(read(&line), event, "{line}");
    }
}

#[test]
fn the_keywords_on_the_wire_are_those_of_the_specification() {
    let kinds: Vec<_> = ActionKind::KNOWN.iter().map(ActionKind::as_str).collect();
    assert_eq!(
        kinds,
        [
            "command",
            "tool",
            "file_change",
            "web_search",
            "subagent",
            "note",
            "answer",
            "turn",
            "warning",
            "telemetry",
            "approval"
        ]
    );
    let reasons: Vec<_> = Reason::KNOWN.iter().map(Reason::as_str).collect();
    assert_eq!(
        reasons,
        [
            "interrupted",
            "timeout_idle",
            "timeout_wall",
            "session_busy",
            "session_not_found",
            "auth",
            "usage_limit",
            "rate_limit",
            "overloaded",
            "context_too_long",
            "engine_failed",
            "process_died",
            "engine_missing",
            "engine_too_old",
            "spawn_failed",
            "protocol",
            "consumer_stalled",
            "invalid_request",
            "lock_lost",
            "worker_lost",
            "no_worker",
            "queue_full"
        ]
    );
    for word in kinds {
        assert_eq!(ActionKind::from(word).as_str(), word);
        assert!(!matches!(ActionKind::from(word), ActionKind::Other(_)));
    }
    for word in reasons {
        assert!(!matches!(Reason::from(word), Reason::Other(_)));
    }
}

#[test]
fn the_shape_is_the_one_of_the_specification() {
    let action = Action::new("item_1", ActionKind::Command, "ls").with("exit_code", 0);
    let event = ActionEvent::new("codex", action, Phase::Completed)
        .ok(true)
        .message("fine")
        .level(Level::Info);
    assert_eq!(
        write(&event.into()),
        concat!(
            r#"{"type":"action","engine":"codex","#,
            r#""action":{"id":"item_1","kind":"command","title":"ls","detail":{"exit_code":0}},"#,
            r#""phase":"completed","ok":true,"message":"fine","level":"info"}"#
        )
    );
    let end = Completed::failure("codex", Reason::TimeoutIdle, "silent")
        .answer("so far")
        .resume(Some(token()))
        .usage(Some(usage(1, UsageScope::Turn)));
    assert_eq!(
        write(&end.into()),
        concat!(
            r#"{"type":"completed","engine":"codex","ok":false,"answer":"so far","#,
            r#""resume":{"engine":"codex","value":"0199"},"error":"silent","reason":"timeout_idle","#,
            r#""usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":0,"#,
            r#""reasoning_output_tokens":0,"scope":"turn"}}"#
        )
    );
}

#[test]
fn an_unknown_kind_and_an_unknown_reason_survive_a_round_trip() {
    let line = r#"{"type":"action","engine":"codex","action":{"id":"a","kind":"holodeck","title":"t"},"phase":"updated"}"#;
    assert_eq!(write(&read(line)), line);
    let line = r#"{"type":"completed","engine":"codex","ok":false,"answer":"","error":"e","reason":"out_of_ink"}"#;
    assert_eq!(write(&read(line)), line);
}

#[test]
fn absent_optional_fields_are_omitted() {
    let bare = ActionEvent::new("codex", Action::new("a", ActionKind::Note, "t"), Phase::Started);
    assert_eq!(
        write(&bare.into()),
        r#"{"type":"action","engine":"codex","action":{"id":"a","kind":"note","title":"t"},"phase":"started"}"#
    );
    assert_eq!(
        write(&Completed::success("codex", "").into()),
        r#"{"type":"completed","engine":"codex","ok":true,"answer":""}"#
    );
    assert_eq!(
        write(&Started::new(token()).into()),
        r#"{"type":"started","engine":"codex","resume":{"engine":"codex","value":"0199"}}"#
    );
}

#[test]
fn unknown_fields_are_ignored_on_read() {
    for event in every_event() {
        let mut value = serde_json::to_value(&event).unwrap();
        let object = value.as_object_mut().unwrap();
        object.insert("tomorrow".to_owned(), json!({ "a": [1] }));
        for part in ["action", "resume"] {
            if let Some(Value::Object(part)) = object.get_mut(part) {
                part.insert("tomorrow".to_owned(), json!(null));
            }
        }
        assert_eq!(serde_json::from_value::<TakopiEvent>(value).unwrap(), event);
    }
}

#[test]
fn usage_keeps_its_scope_and_unknown_keys() {
    let line = r#"{"input_tokens":1,"cached_input_tokens":2,"output_tokens":3,"reasoning_output_tokens":4,"scope":"thread","audio_tokens":5}"#;
    let usage: Usage = serde_json::from_str(line).unwrap();
    assert_eq!(usage.scope, UsageScope::Thread);
    assert_eq!(usage.others.get("audio_tokens"), Some(&json!(5)));
    assert_eq!(serde_json::to_string(&usage).unwrap(), line);
    let sparse: Usage = serde_json::from_str("{}").unwrap();
    assert_eq!(sparse, Usage::default());
    assert_eq!(sparse.scope, UsageScope::Turn);
}

#[test]
fn sums_never_add_figures_of_a_thread() {
    let mut turn = usage(2, UsageScope::Turn);
    turn.output_tokens = u64::MAX;
    let thread = usage(100, UsageScope::Thread);
    let mut sum = Usage::default();
    for usage in [&turn, &thread, &turn] {
        sum.add(usage);
    }
    assert_eq!(sum.input_tokens, 4);
    assert_eq!(sum.output_tokens, u64::MAX, "and they do not overflow");
    assert_eq!(sum.scope, UsageScope::Turn);
}

#[test]
fn a_tail_is_bounded_and_cuts_no_character() {
    let text = "é".repeat(100);
    for max in 0..10 {
        let tail = tail(&text, max);
        assert!(tail.len() <= max && text.ends_with(tail));
    }
}

#[test]
fn the_weight_of_an_event_grows_with_all_it_carries() {
    let long = "x".repeat(10_000);
    let action = |title: &str, detail: Value| {
        let action = Action::new("a", ActionKind::Note, title).with("d", detail);
        TakopiEvent::from(ActionEvent::new("codex", action, Phase::Started)).weight()
    };
    let light = action("t", json!(0));
    assert!(light < 1000);
    for heavy in [
        action(&long, json!(0)),
        action("t", json!([[{ "deep": long }]])),
        action("t", json!(vec![0; 10_000])),
        TakopiEvent::from(Completed::success("codex", long.as_str())).weight(),
    ] {
        assert!(heavy > 10_000, "{heavy}");
    }
}

#[test]
fn engine_ids_read_and_write_as_plain_strings() {
    let id: EngineId = serde_json::from_str("\"codex\"").unwrap();
    assert_eq!((id.as_str(), id.to_string()), ("codex", "codex".to_owned()));
}

#[test]
fn the_schema_of_the_stream_is_checked_in_and_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.schema.json");
    let current = serde_json::to_string_pretty(&stream_schema()).unwrap() + "\n";
    if std::env::var_os("TAKOPI_UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == current,
        "docs/events.schema.json is stale: run this test with TAKOPI_UPDATE_SCHEMA=1"
    );
}

#[test]
fn the_schema_accepts_every_event_and_refuses_what_is_none() {
    let schema = stream_schema().to_value();
    for event in every_event() {
        let value = serde_json::to_value(&event).unwrap();
        assert!(accepts(&schema, &schema, &value), "{value}");
    }
    for wrong in [
        json!({ "type": "started", "engine": "codex" }),
        json!({ "type": "finished", "engine": "codex", "ok": true, "answer": "" }),
        json!({ "type": "completed", "engine": "codex", "ok": "yes", "answer": "" }),
        json!({ "type": "action", "engine": "codex", "action": {}, "phase": "started" }),
        json!({ "engine": "codex", "ok": true, "answer": "" }),
        json!([]),
    ] {
        assert!(!accepts(&schema, &schema, &wrong), "{wrong}");
        assert!(serde_json::from_value::<TakopiEvent>(wrong).is_err());
    }
}

/// Validates with the part of JSON Schema that the stream's schema uses, and no other.
fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(schema) = schema else { return schema == &json!(true) };
    schema.iter().all(|(keyword, rule)| match keyword.as_str() {
        "$schema" | "$defs" | "title" | "description" | "examples" | "default" | "format" => true,
        "$ref" => {
            let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
            accepts(root, root.pointer(pointer).unwrap(), value)
        }
        "type" => match rule {
            Value::Array(types) => types.iter().any(|name| is_of_type(name, value)),
            name => is_of_type(name, value),
        },
        "const" => rule == value,
        "minimum" => value.as_f64() >= rule.as_f64(),
        "oneOf" => count_accepting(root, rule, value) == 1,
        "anyOf" => count_accepting(root, rule, value) > 0,
        "required" => {
            rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
        }
        "properties" => {
            rule.as_object().unwrap().iter().all(|(name, schema)| {
                value.get(name).is_none_or(|value| accepts(root, schema, value))
            })
        }
        "items" => value.as_array().into_iter().flatten().all(|item| accepts(root, rule, item)),
        "additionalProperties" => rule == &json!(true),
        other => panic!("this validator does not know {other:?}"),
    })
}

fn count_accepting(root: &Value, schemas: &Value, value: &Value) -> usize {
    schemas.as_array().unwrap().iter().filter(|schema| accepts(root, schema, value)).count()
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("this validator does not know the type {other:?}"),
    }
}

#[test]
fn the_schema_documents_for_readers_of_the_stream_and_not_of_rust() {
    fn descriptions(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("description").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| descriptions(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| descriptions(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    descriptions(&stream_schema().to_value(), &mut found);
    assert!(found.len() > 20);
    for text in found {
        assert!(!text.contains("```") && !text.contains("[`"), "{text}");
    }
}

#[test]
fn meta_and_detail_that_are_empty_read_back_as_empty() {
    let line =
        r#"{"type":"started","engine":"codex","resume":{"engine":"codex","value":"v"},"meta":{}}"#;
    let TakopiEvent::Started(started) = read(line) else { panic!("not started") };
    assert_eq!(started.meta, Map::new());
}
