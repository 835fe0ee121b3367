//! Tool calls as actions.

use serde_json::json;

use super::replay::{self, actions, run, translated};
use super::*;

#[track_caller]
fn last(events: &[TakopiEvent], kind: &str) -> ActionEvent {
    let last = actions(events, kind).pop().unwrap_or_else(|| panic!("no {kind}: {events:#?}"));
    last.clone()
}

#[test]
fn a_command_has_its_exit_code_and_the_tail_of_its_output() {
    for version in replay::VERSIONS {
        let command = last(&run(&format!("{version}/print/bash_fail")), "command");
        assert_eq!(command.action.title, "echo out; echo err >&2; exit 3");
        assert_eq!(command.action.detail["exit_code"], 3, "{version}");
        let output = command.action.detail["output_tail"].as_str().unwrap();
        // 2.0.45 puts stderr first.
        assert!(matches!(output, "out\nerr" | "err\n\nout"), "{output}");
        assert_eq!(command.action.detail["status"], "failed");
        assert_eq!(command.ok, Some(false));
        let command = last(&run(&format!("{version}/print/bash_ok")), "command");
        assert_eq!(command.action.detail["exit_code"], 0);
        assert_eq!(command.ok, Some(true));
    }
}

#[test]
fn results_are_matched_by_id_whatever_their_order() {
    for version in replay::VERSIONS {
        let events = run(&format!("{version}/print/bash_two"));
        let ended: Vec<_> = actions(&events, "command")
            .into_iter()
            .filter(|event| event.phase == Phase::Completed)
            .collect();
        assert_eq!(ended.len(), 2, "{version}");
        assert_ne!(ended[0].action.id, ended[1].action.id);
    }
}

#[test]
fn a_file_change_has_a_path_a_kind_and_a_diff() {
    let write = last(&run("2.1.325/print/write"), "file_change");
    assert_eq!(write.action.title, "new.txt");
    assert_eq!(
        write.action.detail["changes"],
        json!([{ "path": "/home/ada/project/new.txt", "kind": "add", "diff": "@@ -0,0 +1,1 @@\n+hello\n" }])
    );
    let edit = last(&run("2.1.325/print/edit"), "file_change");
    assert_eq!(
        edit.action.detail["changes"],
        json!([{ "path": "/home/ada/project/old.txt", "kind": "update", "diff": "@@ -1,1 +1,1 @@\n-one\n+two\n" }])
    );
}

#[test]
fn an_mcp_tool_has_its_server_and_its_error() {
    let ok = last(&run("2.1.325/print/mcp"), "tool");
    assert_eq!(ok.action.title, "lab.echo");
    assert_eq!(
        (&ok.action.detail["server"], &ok.action.detail["tool"]),
        (&json!("lab"), &json!("echo"))
    );
    assert_eq!(ok.action.detail["arguments"], json!({ "text": "yo" }));
    assert_eq!(
        ok.action.detail["result_summary"],
        json!({ "content_blocks": 1, "has_structured": true })
    );
    let failed = last(&run("2.1.325/print/mcp_fail"), "tool");
    assert_eq!(failed.ok, Some(false));
    assert!(failed.action.detail["error_message"].as_str().unwrap().starts_with("yo"));
}

#[test]
fn other_tools_are_tools_with_their_main_argument() {
    let read = actions(&run("2.1.325/print/edit"), "tool").pop().unwrap().clone();
    assert_eq!(read.action.title, "Read old.txt");
    let unknown = last(&run("2.1.325/print/unknown_tool"), "tool");
    assert_eq!(unknown.ok, Some(false));
    assert!(!unknown.message.unwrap().contains("tool_use_error"));
}

#[test]
fn searches_of_the_client_and_of_the_service_are_web_searches() {
    for name in ["2.1.325/print/web_search", "2.1.325/print/server_tool"] {
        let search = last(&run(name), "web_search");
        assert_eq!((search.action.title.as_str(), search.ok), ("octopus", Some(true)), "{name}");
    }
}

#[test]
fn tasks_and_todos_are_one_note_that_changes() {
    for (name, titles) in [
        ("2.0.45/print/todo", &["todo 0/2: one", "todo 1/2: two", "todo 1/2: two"][..]),
        (
            "2.1.325/print/tasks",
            &["todo 0/1: one", "todo 0/2: one", "todo 0/2: one", "todo 1/2: two", "todo 1/2: two"],
        ),
    ] {
        let events = run(name);
        let notes = actions(&events, "note");
        let shown: Vec<&str> = notes.iter().map(|note| note.action.title.as_str()).collect();
        assert_eq!(shown, titles, "{name}");
        assert!(notes.iter().all(|note| note.action.id == "claude.plan"));
        assert_eq!(notes.last().unwrap().phase, Phase::Completed);
    }
    // Where the tool does not exist it is a failed call, and no list.
    let events = run("2.1.325/print/todo");
    assert!(actions(&events, "note").is_empty());
    assert_eq!(last(&events, "tool").ok, Some(false));
}

#[test]
fn a_sub_agent_is_one_action_whether_in_the_foreground_or_the_background() {
    for version in replay::VERSIONS {
        for name in ["agent", "agent_fg", "agent_bg", "task_agent"] {
            let events = run(&format!("{version}/print/{name}"));
            let agents = actions(&events, "subagent");
            let ended = agents.iter().filter(|event| event.phase == Phase::Completed).count();
            let ids: std::collections::HashSet<&str> =
                agents.iter().map(|event| event.action.id.as_str()).collect();
            assert_eq!((ids.len(), ended), (1, 1), "{version}/{name}");
        }
    }
    let background = last(&run("2.1.325/duplex/agent_bg"), "subagent");
    assert_eq!(background.action.title, "general-purpose: look around");
    assert_eq!(background.action.detail["output_tail"], "sub answer");
    assert_eq!(background.ok, Some(true));
}

#[test]
fn tasks_of_the_foreground_and_heartbeats_are_updates_and_no_actions_of_their_own() {
    for name in ["2.1.325/print/bash_slow", "2.1.325/print/bash_progress"] {
        let events = run(name);
        let commands = actions(&events, "command");
        assert!(commands.iter().all(|event| event.action.id == commands[0].action.id));
        assert!(commands[0].action.detail.get("subagent").is_none(), "{name}");
        assert!(actions(&events, "subagent").is_empty());
    }
    let events = run("2.1.325/print/bash_progress");
    let commands = actions(&events, "command");
    let updates = commands.iter().filter(|event| event.phase == Phase::Updated);
    let seconds: Vec<_> = updates.map(|event| &event.action.detail["elapsed_seconds"]).collect();
    assert_eq!(seconds, [30, 60]);
}

#[test]
fn a_refused_permission_is_shown_once_and_the_run_is_ok() {
    for version in replay::VERSIONS {
        let events = run(&format!("{version}/print/denied"));
        let refusals = actions(&events, "approval");
        assert_eq!(refusals.len(), 1, "{version}");
        assert_eq!(refusals[0].ok, Some(false));
        assert_eq!(refusals[0].action.title, "new.txt");
        assert_eq!(refusals[0].action.detail["decision"], "decline");
        assert_eq!(refusals[0].action.detail["asks_for"], "file_change");
        assert!(refusals[0].message.as_deref().unwrap().starts_with("declined: "));
        assert!(replay::end(&events).ok, "{version}");
    }
    let events = run("2.1.325/print/denied");
    assert_eq!(last(&events, "file_change").action.detail["status"], "declined");
}

#[test]
fn a_refusal_that_somebody_was_asked_about_is_not_shown_again() {
    for version in replay::VERSIONS {
        for name in ["deny", "deny_interrupt", "interrupt_ask"] {
            let events = run(&format!("{version}/duplex/{name}"));
            assert!(actions(&events, "approval").is_empty(), "{version}/{name}");
        }
    }
    let events = run("2.1.325/duplex/deny");
    let change = last(&events, "file_change");
    assert_eq!((change.message.as_deref(), change.ok), (Some("not now"), Some(false)));
}

#[test]
fn a_tool_runs_until_its_result_and_a_command_in_the_background_is_none() {
    let recording = Recording::named("2.1.325/duplex/bash_bg");
    let mut translator = replay::translator(replay::SESSION, replay::MESSAGE);
    let mut running = Vec::new();
    for line in recording.lines.iter().filter_map(|line| line.strip_prefix("< ")) {
        translator.message(&Message::parse(line).unwrap(), &mut Vec::new());
        running.push(translator.tool_running());
        if translator.is_over() {
            break;
        }
    }
    running.dedup();
    assert_eq!(running, [false, true, false]);
}

#[test]
fn details_are_bounded_whatever_a_tool_is_given_or_returns() {
    let long = "x".repeat(1_000_000);
    let call = |tool: &str, field: &str| {
        format!(
            r#"{{"type":"assistant","message":{{"id":"m","content":[{{"type":"tool_use","id":"t","name":"{tool}","input":{{"{field}":"{long}"}}}}]}}}}"#
        )
    };
    let result = |more: &str| {
        format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":"{long}"{more}}}]}},"tool_use_result":{{"type":"create","filePath":"{long}","content":"{long}","stdout":"{long}"}}}}"#
        )
    };
    for (tool, field) in [
        ("Bash", "command"),
        ("Write", "file_path"),
        ("Agent", "prompt"),
        ("mcp__s__t", "a"),
        ("Read", "file_path"),
        (long.as_str(), "pattern"),
    ] {
        for more in ["", r#","is_error":true"#] {
            let (events, _) = translated(&[&call(tool, field), &result(more)]);
            for event in &events {
                let TakopiEvent::Action(event) = event else { continue };
                let detail = serde_json::to_string(&event.action.detail).unwrap();
                assert!(detail.len() < 64 * 1024, "{} bytes of {tool:.9}", detail.len());
            }
        }
    }
}

#[test]
fn calls_beyond_a_bound_are_not_shown_and_all_others_are_closed() {
    let call = |n: usize| {
        format!(
            r#"{{"type":"assistant","message":{{"id":"m","content":[{{"type":"tool_use","id":"t{n}","name":"Read","input":{{}}}}]}},"parent_tool_use_id":"p"}}"#
        )
    };
    let lines: Vec<String> = (0..2000).map(call).collect();
    let (events, _) = translated(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    replay::check("many", &events);
    assert_eq!(actions(&events, "tool").len(), 2 * 1024);
}
