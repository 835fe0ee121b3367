//! What the server does for an answer, in order, whatever the API.

use std::collections::VecDeque;
use std::time::Duration;

use super::gate::Gate;

/// One thing to do for an answer.
#[derive(Debug)]
pub(super) enum Beat {
    /// A server-sent event, ready to be sent.
    Event(String),
    Wait(Gate),
    Delay(Duration),
    /// End the body here. After the last event it ends by itself.
    Short,
    Cut,
    /// Close the connection without even the head of a response.
    Drop,
    Hang,
    /// Answer with this and with no stream.
    Reply {
        status: u16,
        body: String,
    },
}

/// Names the answer within its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serial {
    pub(super) script: usize,
    pub(super) answer: usize,
    /// The place of the request in the order of arrival.
    pub(super) request: usize,
}

/// Breaks the connection after so many events.
pub(super) fn cut(beats: &mut VecDeque<Beat>, after: usize) {
    let events = beats.iter().enumerate().filter(|(_, beat)| matches!(beat, Beat::Event(_)));
    if let Some((too_many, _)) = events.into_iter().nth(after) {
        beats.truncate(too_many);
    }
    beats.push_back(Beat::Cut);
}

/// The same answer with no stream: the pauses, then all of the answer or what there is in its place.
pub(super) fn without_stream(beats: VecDeque<Beat>, whole: String) -> VecDeque<Beat> {
    let end = match beats.back() {
        Some(Beat::Event(_)) => Beat::Reply { status: 200, body: whole },
        Some(Beat::Hang) => Beat::Hang,
        Some(Beat::Reply { status, body }) => Beat::Reply { status: *status, body: body.clone() },
        _ => Beat::Drop,
    };
    let pauses = |beat: &Beat| matches!(beat, Beat::Wait(_) | Beat::Delay(_));
    beats.into_iter().filter(pauses).chain([end]).collect()
}
