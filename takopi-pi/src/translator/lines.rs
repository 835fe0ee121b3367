//! All of a translation at once, for tests and fuzzing.

use std::path::Path;

use takopi_core::model::{Completed, Reason, TakopiEvent};

use super::{Translator, TurnSetup};
use crate::PI;
use crate::wire::Line;

/// Translates the lines of one run of a session, with its answer in pieces if wanted. Lines that are not
/// JSON are skipped.
#[doc(hidden)]
pub fn translate_lines<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
    session: &str,
    directory: &Path,
    deltas: bool,
) -> Vec<TakopiEvent> {
    let mut translator = Translator::new(TurnSetup {
        session: session.to_owned(),
        directory: directory.to_owned(),
        deltas,
        images: 0,
    });
    let mut events = Vec::new();
    for line in lines {
        if let Ok(Line::Event(event)) = Line::parse(line) {
            translator.event(&event, &mut events);
        }
    }
    let otherwise =
        Completed::failure(PI, Reason::ProcessDied, "pi exited before the run was over");
    let completed = translator.finish(otherwise, &mut events);
    events.push(completed.into());
    events
}
