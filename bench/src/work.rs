//! The pure part of takopi: bytes to lines, lines to events. No process, no clock.

use std::hint::black_box;

use takopi_codex::exec::ExecTranslator;
use takopi_core::TakopiEvent;
use takopi_core::jsonl::Translator;
use takopi_core::process::{DEFAULT_LINE_LIMIT, Frame, LineFramer};

/// What a read from a full pipe brings.
const READ: usize = 64 * 1024;

/// Cuts a recording into lines, as it would come out of a pipe; how many there were.
pub fn framing(recording: &[u8]) -> usize {
    each_line(recording, |line| {
        black_box(line);
        1
    })
}

/// Makes events of what `codex exec --json` printed; how many there were.
pub fn exec(recording: &[u8]) -> usize {
    let mut translator = ExecTranslator::new("/workspace", None);
    let mut events: Vec<TakopiEvent> = Vec::new();
    each_line(recording, |line| {
        let _ = translator.line(line, &mut events);
        black_box(events.drain(..)).count()
    })
}

/// Translates what `codex app-server` sent of a turn into events; returns their number.
pub fn app_server(recording: &[u8]) -> usize {
    let lines = recording.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    black_box(takopi_codex::app_server::translate_lines(lines, false)).len()
}

fn each_line(recording: &[u8], mut work: impl FnMut(&[u8]) -> usize) -> usize {
    let mut framer = LineFramer::new(DEFAULT_LINE_LIMIT);
    let mut count = 0;
    for read in recording.chunks(READ) {
        framer.push(read);
        while let Some(frame) = framer.pop() {
            if let Frame::Line(line) = frame {
                count += work(line);
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording;

    #[test]
    fn every_recording_is_understood_to_its_end() {
        let recording = recording::exec(1_000);
        assert_eq!(framing(recording.as_bytes()), 1_000);
        // Messages are kept for the answer; everything else is an event.
        assert!(exec(recording.as_bytes()) > 900);
        let recording = recording::app_server(1_000);
        assert_eq!(framing(recording.as_bytes()), 1_000);
        let lines = recording.lines().map(str::as_bytes);
        let events = takopi_codex::app_server::translate_lines(lines, false);
        assert!(events.len() > 500, "{}", events.len());
        let end = events.last();
        assert!(
            matches!(end, Some(TakopiEvent::Completed(end)) if end.ok && end.answer == "All done."),
            "{end:?}"
        );
    }
}
