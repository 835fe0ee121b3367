//! Drift of what agents send over ACP: see `takopi_tests::drift`.

use serde_json::Value;
use takopi_acp::{Agent, translate_lines};
use takopi_tests::drift::{self, Roles, seeds};
use takopi_tests::recorded;

fn is_response(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|line| line.get("method").is_none())
}

/// A message behind which the agent goes on is not the answer.
fn decides(line: &str) -> bool {
    ["agent_message_chunk", "agent_thought_chunk", "toolCall"].iter().any(|it| line.contains(it))
}

#[test]
fn a_mutated_line_never_gives_two_ends_or_none_and_leaves_nothing_open() {
    let roles = Roles { ends: is_response, decides };
    for (agent, recorded) in recorded::acp() {
        let agent = Agent::preset(agent).unwrap();
        drift::every_mutation(module_path!(), seeds(20), &recorded, roles, |lines, deltas| {
            translate_lines(&agent, lines.iter().map(Vec::as_slice), deltas)
        });
    }
}
