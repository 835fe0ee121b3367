//! Answers of a model, written by tests as chains of steps. What an answer can say is the API's; how it comes is the same for
//! all, and is here.
//!
//! Steps happen in the order they were written. Waits and delays before the first content hold back even the head of the HTTP
//! response. What an API sends around the content comes by itself.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::gate::Gate;
use super::script::Scripted;

/// Stands among the headers until the answer is sent.
const RESET_IN: &str = "reset-in";

/// What an answer can say in an API.
pub trait Content: Clone + Debug + Send {
    /// Token figures of one answer.
    type Usage: Copy + Debug + Default + Send;

    /// A text in one piece.
    fn text(text: String) -> Self;

    /// A piece of a streamed text. Pieces with nothing but waits and delays between them make one text, which ends with the
    /// next content or the end of the answer.
    fn delta(text: String) -> Self;
}

#[derive(Clone, Debug)]
pub(super) enum Step<C> {
    /// What comes ahead of all content, for answers that need it before their first.
    Start,
    Content(C),
    Wait(Gate),
    Delay(Duration),
}

#[derive(Clone, Debug)]
pub(super) enum End {
    Completed,
    /// The stream reports a failure.
    Failed {
        kind: String,
        message: String,
    },
    /// The body ends in good order, but before the end of the answer.
    Short,
    /// The connection breaks, at the latest after this many events.
    Cut {
        after: usize,
    },
    /// The connection is closed before the head of a response.
    Drop,
    Hang,
    Status {
        status: u16,
        body: String,
    },
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Answer<C: Content> {
    pub(super) steps: Vec<Step<C>>,
    pub(super) usage: C::Usage,
    /// Why the answer ends, if not for the usual reason.
    pub(super) finish: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) end: End,
    retries: Vec<Self>,
}

impl<C: Content> Answer<C> {
    /// An empty answer: add its content with the methods below.
    pub fn new() -> Self {
        Self {
            steps: Vec::new(),
            usage: C::Usage::default(),
            finish: None,
            headers: Vec::new(),
            end: End::Completed,
            retries: Vec::new(),
        }
    }

    /// An answer that begins with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new().content(C::text(text.into()))
    }

    /// An HTTP error with a body as it stands.
    pub fn status_with(status: u16, body: impl Into<String>) -> Self {
        Self { end: End::Status { status, body: body.into() }, ..Self::new() }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A limit is reset so many seconds after the answer is sent: how long the request took to come does not count.
    pub(super) fn reset_in(self, seconds: u64) -> Self {
        self.header(RESET_IN, &seconds.to_string())
    }

    /// When that is, in seconds of the epoch, if it is sent now.
    pub(super) fn take_reset(&mut self) -> Option<u64> {
        let found = self.headers.iter().position(|(name, _)| name == RESET_IN)?;
        let seconds: u64 = self.headers.remove(found).1.parse().ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(now.as_secs() + seconds)
    }

    /// The next try of the same request gets this one instead; further tries get the last of them.
    pub fn then(mut self, next: impl Into<Self>) -> Self {
        self.retries.push(next.into());
        self
    }

    /// The answer to the `n`th try of a request.
    pub(super) fn attempt(mut self, n: usize) -> Self {
        let retries = std::mem::take(&mut self.retries);
        let last = retries.len();
        std::iter::once(self).chain(retries).nth(n.min(last)).unwrap_or_default()
    }

    /// Sends what comes ahead of all content here rather than with the first, for a wait between the two.
    pub fn started(self) -> Self {
        self.step(Step::Start)
    }

    /// A piece of a streamed text. Pieces with nothing but waits and delays between them make one text, which ends with the
    /// next content or the end of the answer.
    pub fn delta(self, text: impl Into<String>) -> Self {
        self.content(C::delta(text.into()))
    }

    /// A text streamed in these pieces.
    pub fn deltas<T: Into<String>>(self, pieces: impl IntoIterator<Item = T>) -> Self {
        pieces.into_iter().fold(self, Self::delta)
    }

    /// Reports these token figures instead of the default ones.
    pub fn usage(mut self, usage: C::Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Stops here until the gate is open.
    pub fn wait_for(self, gate: &Gate) -> Self {
        self.step(Step::Wait(gate.clone()))
    }

    /// Stops here for a while of real time.
    pub fn delay(self, time: Duration) -> Self {
        self.step(Step::Delay(time))
    }

    /// Ends the body in good order but before the end of the answer: what a proxy that gives up looks like.
    pub fn ends_short(self) -> Self {
        self.end(End::Short)
    }

    /// Breaks the connection in place of the end of the answer, or after `events` events at most.
    pub fn cut_after(self, events: usize) -> Self {
        self.end(End::Cut { after: events })
    }

    /// Breaks the connection in place of the end of the answer.
    pub fn cut(self) -> Self {
        self.cut_after(usize::MAX)
    }

    /// Closes the connection in place of a response.
    pub fn dropped(self) -> Self {
        self.end(End::Drop)
    }

    /// Never ends; with nothing before it, not even the head of the response comes.
    pub fn hang(self) -> Self {
        self.end(End::Hang)
    }

    pub(super) fn content(self, content: C) -> Self {
        self.step(Step::Content(content))
    }

    fn step(mut self, step: Step<C>) -> Self {
        let streams = !matches!(step, Step::Wait(_) | Step::Delay(_));
        assert!(
            !(streams && matches!(self.end, End::Status { .. } | End::Drop)),
            "an answer without a message has no content: {step:?}"
        );
        self.steps.push(step);
        self
    }

    pub(super) fn end(mut self, end: End) -> Self {
        assert!(
            matches!(self.end, End::Completed),
            "an answer ends once: it already has {:?}, and now {end:?}",
            self.end
        );
        self.end = end;
        self
    }
}

impl<C: Content> Default for Answer<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Content> From<&str> for Answer<C> {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl<C: Content> Scripted for Answer<C> {}
