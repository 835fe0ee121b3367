//! Drift of the schema of pi: see `takopi_tests::drift`.

use std::path::Path;

use takopi_pi::translate_lines;
use takopi_tests::drift::{self, Roles, has_type, seeds};
use takopi_tests::recorded;

#[test]
fn a_mutated_line_never_gives_two_ends_or_none_and_leaves_nothing_open() {
    let directory = Path::new("/home/ada/project");
    let roles = Roles {
        ends: |line| has_type(line, &["agent_settled"]),
        decides: |line| has_type(line, &["agent_end", "message_end"]),
    };
    drift::every_mutation(module_path!(), seeds(100), &recorded::pi(), roles, |lines, deltas| {
        translate_lines(lines.iter().map(Vec::as_slice), "session", directory, deltas)
    });
}
