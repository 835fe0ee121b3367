//! The translator over whole lines, for fuzzers and benchmarks.

use takopi_core::model::{Completed, Reason, TakopiEvent};

use super::{Translator, TurnSetup};
use crate::wire::Message;
use crate::{CLAUDE, resume_codec};

/// The events of the lines of one run, up to its end: the pure part of the engine, for fuzzers. The
/// session and the message that are named first are those of the run.
#[doc(hidden)]
pub fn translate_lines<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
    deltas: bool,
) -> Vec<TakopiEvent> {
    let parse = |line: &[u8]| Message::parse(&String::from_utf8_lossy(line)).ok();
    let messages: Vec<Message> = lines.into_iter().filter_map(parse).collect();
    let session = messages.iter().find_map(|message| match message {
        Message::Init(init) => resume_codec().token(init.session.as_deref()?),
        _ => None,
    });
    let message_id = messages.iter().find_map(|message| match message {
        Message::Lifecycle { uuid, .. } => Some(uuid.clone()),
        Message::Result(result) => result.message_ids.as_ref()?.first().cloned(),
        _ => None,
    });
    let mut translator = Translator::new(TurnSetup {
        title: "Claude Code".to_owned(),
        session: session.map(|token| token.value).unwrap_or_default(),
        directory: "/home/ada/project".into(),
        message_id: message_id.unwrap_or_default(),
        fresh: true,
        deltas,
    });
    let mut events = Vec::new();
    for message in &messages {
        translator.message(message, &mut events);
    }
    let died = Completed::failure(CLAUDE, Reason::ProcessDied, "the process exited");
    let completed = translator.finish(died, &mut events);
    events.push(completed.into());
    events
}
