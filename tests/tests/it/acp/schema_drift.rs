//! Drift of what agents send over ACP: see `takopi_tests::drift`.

use takopi_acp::{Agent, translate_lines};
use takopi_tests::{drift, recorded};

#[test]
fn a_mutated_line_never_gives_two_ends_or_none_and_leaves_nothing_open() {
    for (agent, recorded) in recorded::acp() {
        let agent = Agent::preset(agent).unwrap();
        drift::every_mutation(module_path!(), drift::seeds(20), &recorded, |lines, deltas| {
            translate_lines(&agent, lines.iter().map(Vec::as_slice), deltas)
        });
    }
}
