//! Drift of the schema of Claude Code: see `takopi_tests::drift`. Lines of sub-agents never change the end of a run, whatever
//! they say.

use serde_json::Value;
use takopi_claude::translate_lines;
use takopi_core::TakopiEvent;
use takopi_tests::dice::Dice;
use takopi_tests::drift::{self, Mutated, Roles, end, has_type, seeds};
use takopi_tests::mutate;
use takopi_tests::recorded::{self, Recording};

fn translated(lines: &[Vec<u8>], deltas: bool) -> Vec<TakopiEvent> {
    translate_lines(lines.iter().map(Vec::as_slice), deltas)
}

#[test]
fn a_mutated_line_never_gives_two_ends_or_none_and_leaves_nothing_open() {
    let roles = Roles {
        // The first ones name the session and the message that the result is of.
        ends: |line| has_type(line, &["result", "system", "command_lifecycle"]),
        decides: |line| {
            has_type(line, &["assistant", "user", "stream_event", "conversation_reset"])
        },
    };
    drift::every_mutation(module_path!(), seeds(70), &recorded::claude(), roles, translated);
}

/// Whether a line of a conversation is of a sub-agent.
fn is_nested(line: &str) -> bool {
    let Ok(line) = serde_json::from_str::<Value>(line) else { return false };
    let of_conversation = ["assistant", "user", "stream_event"].map(Value::from);
    of_conversation.contains(&line["type"]) && line["parent_tool_use_id"].is_string()
}

/// Whether the mutation left alone what says that the line is of a sub-agent.
fn is_still_nested(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let once = |key: &str| line.matches(key).count() == 1;
    once("\"parent_tool_use_id\"") && is_nested(line)
}

#[test]
fn a_mutated_line_of_a_sub_agent_never_changes_how_a_run_ends() {
    let recorded = recorded::claude();
    let lines = recorded.iter().flat_map(|recording| &recording.lines);
    let nested: Vec<&String> = lines.filter(|line| is_nested(line)).collect();
    assert!(nested.len() > 30, "only {} lines of sub-agents", nested.len());
    let mut tried = 0;
    for seed in seeds(30) {
        let mut dice = Dice::new(seed);
        let Recording { name, lines } = &recorded[dice.index(recorded.len())];
        let line = nested[dice.index(nested.len())];
        let line = mutate::json(&mut dice, line);
        if !is_still_nested(&line) {
            continue;
        }
        tried += 1;
        let mut lines: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
        let alone = translated(&lines, false);
        lines.insert(dice.index(lines.len() + 1), line);
        let events = translated(&lines, false);
        let mutated = Mutated { module: module_path!(), seed, recording: name, lines };
        mutated.check(&events);
        assert_eq!(end(&events), end(&alone), "{}", mutated.replay(&events));
    }
    assert!(tried > 0 || seeds(30).end - seeds(30).start < 100, "no line was of a sub-agent");
}
