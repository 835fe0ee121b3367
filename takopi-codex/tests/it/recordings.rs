//! What every recorded run of the real codex is translated to.
//!
//! One snapshot a recording, one event a line, next to this file. They are to be read against the
//! table of translations, not only to be accepted.

use crate::support::{completed, recordings, translate};

#[test]
fn every_recording_is_translated_as_it_was() {
    for (release, name, file) in recordings() {
        let text = std::fs::read_to_string(&file).unwrap();
        let events = translate(text.lines());
        completed(&events);
        let lines: Vec<_> =
            events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(format!("{release}-{name}"), lines.join("\n"));
        });
    }
}
