//! The buffer between a run and its consumer, bounded by items and bytes.
//!
//! The run waits when the buffer is full; its terminal event never waits, so a run ends and releases
//! its session whether or not the consumer reads. The consumer takes all that is there in one go.
//!
//! In a process that is forked meanwhile the run does not go on: there the stream ends at once.
//!
//! Pieces of one message are merged when there is no room for a further item: the consumer gets fewer of
//! them, and all of the text.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::host::FORKED;
use crate::model::bounds::TEXT_BYTES;
use crate::model::{Completed, EngineId, Reason, TakopiEvent};
use crate::redact::redact_event;

/// How much a run may be ahead of its consumer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) items: usize,
    pub(super) bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { items: 1024, bytes: 4 * 1024 * 1024 }
    }
}

struct Buffer {
    bounds: Bounds,
    state: Mutex<State>,
    room: Notify,
    dropped: CancellationToken,
    /// How many events the consumer was given, one by one. Only the stream writes it.
    yielded: AtomicU64,
}

#[derive(Default)]
struct State {
    events: VecDeque<TakopiEvent>,
    bytes: usize,
    finished: bool,
    consumer: Option<Waker>,
}

impl Buffer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(mut state: MutexGuard<'_, State>, event: TakopiEvent) {
        state.add(event);
        Self::wake(state);
    }

    /// Lets go of the state and wakes the consumer, if it waits.
    fn wake(mut state: MutexGuard<'_, State>) {
        let consumer = state.consumer.take();
        drop(state);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }
}

impl State {
    /// Adds an event. Every event of every engine passes here: it is bounded and its credentials are
    /// removed.
    fn add(&mut self, mut event: TakopiEvent) {
        // Before anything is cut: half a credential cannot be recognised.
        redact_event(&mut event);
        event.truncate_id();
        let mut weight = event.weight();
        if weight > TEXT_BYTES {
            event.truncate();
            weight = event.weight();
        }
        self.bytes += weight;
        self.events.push_back(event);
    }

    fn is_full(&self, bounds: Bounds) -> bool {
        self.events.len() >= bounds.items || self.bytes >= bounds.bytes
    }

    /// Adds a piece of the answer to the piece before it, if there is room for its text; `false` if it is
    /// none, or the event before it is not of the same message.
    fn merge(&mut self, event: &TakopiEvent, bounds: Bounds) -> bool {
        let TakopiEvent::Action(piece) = event else { return false };
        let Some(TakopiEvent::Action(last)) = self.events.back_mut() else { return false };
        let merged = self.bytes < bounds.bytes && last.merge_piece(piece);
        if merged {
            self.bytes += piece.message.as_ref().map_or(0, String::len);
        }
        merged
    }
}

/// The run's end of the buffer.
#[derive(Clone)]
pub(super) struct Sender {
    buffer: Arc<Buffer>,
}

/// A buffer and the stream that empties it.
pub(super) fn channel(engine: EngineId, bounds: Bounds) -> (Sender, Events) {
    let buffer = Arc::new(Buffer {
        bounds,
        state: Mutex::default(),
        room: Notify::new(),
        dropped: CancellationToken::new(),
        yielded: AtomicU64::new(0),
    });
    let sender = Sender { buffer: buffer.clone() };
    let (taken, process) = (VecDeque::new(), std::process::id());
    (sender, Events { taken, buffer, process, engine: Some(engine) })
}

impl Sender {
    /// Adds an event if there is room, else gives it back. Nothing is added behind the last event:
    /// one that waited for room meanwhile is dropped.
    #[expect(clippy::result_large_err, reason = "the event itself comes back, and seldom")]
    pub(super) fn try_push(&self, event: TakopiEvent) -> Result<(), TakopiEvent> {
        let mut state = self.buffer.state();
        if state.finished {
            return Ok(());
        }
        if state.is_full(self.buffer.bounds) {
            return if state.merge(&event, self.buffer.bounds) { Ok(()) } else { Err(event) };
        }
        Buffer::add(state, event);
        Ok(())
    }

    /// Adds events for as long as there is room and they are `fit` to be added; gives back the first
    /// that was not. The consumer is woken once for all of them.
    pub(super) fn push_many(
        &self,
        events: &mut impl Iterator<Item = TakopiEvent>,
        mut fit: impl FnMut(&TakopiEvent) -> bool,
    ) -> Option<TakopiEvent> {
        let mut state = self.buffer.state();
        let rejected = loop {
            let Some(event) = events.next() else { break None };
            if state.finished || state.is_full(self.buffer.bounds) || !fit(&event) {
                break Some(event);
            }
            state.add(event);
        };
        Buffer::wake(state);
        rejected
    }

    /// Resolves when there may be room again.
    pub(super) async fn room(&self) {
        self.buffer.room.notified().await;
    }

    /// Adds the last event, room or not. The first one counts.
    pub(super) fn finish(&self, completed: Completed) {
        self.finish_after(None, Box::new(completed));
    }

    /// The same, with an event right before it, room or not.
    pub(super) fn finish_after(&self, before: Option<TakopiEvent>, completed: Box<Completed>) {
        let mut state = self.buffer.state();
        if !std::mem::replace(&mut state.finished, true) {
            if let Some(before) = before {
                state.add(before);
            }
            Buffer::add(state, TakopiEvent::Completed(completed));
        }
    }

    /// How many events the consumer was given. It grows while there is no room for more, too.
    pub(super) fn yielded(&self) -> u64 {
        self.buffer.yielded.load(Ordering::Relaxed)
    }

    /// Whether the last event was added.
    pub(super) fn is_finished(&self) -> bool {
        self.buffer.state().finished
    }

    /// Fires when the consumer has dropped the stream.
    pub(super) fn dropped(&self) -> &CancellationToken {
        &self.buffer.dropped
    }
}

/// The consumer's end: the stream.
pub(super) struct Events {
    taken: VecDeque<TakopiEvent>,
    buffer: Arc<Buffer>,
    /// The process of the run.
    process: u32,
    /// For the end in a process that was forked; nothing behind it.
    engine: Option<EngineId>,
}

impl Events {
    /// Whether this process was forked from that of the run. The buffer must not be touched then: a thread that
    /// is not here may have locked it.
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn next_taken(&mut self) -> Option<TakopiEvent> {
        let event = self.taken.pop_front()?;
        let yielded = self.buffer.yielded.load(Ordering::Relaxed);
        self.buffer.yielded.store(yielded + 1, Ordering::Relaxed);
        Some(event)
    }
}

impl Stream for Events {
    type Item = TakopiEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TakopiEvent>> {
        if let Some(event) = self.next_taken() {
            return Poll::Ready(Some(event));
        }
        if self.is_forked() {
            let end = |engine| Completed::failure(engine, Reason::SpawnFailed, FORKED);
            return Poll::Ready(self.engine.take().map(|engine| end(engine).into()));
        }
        let this = &mut *self;
        let mut state = this.buffer.state();
        if state.events.is_empty() {
            if state.finished {
                return Poll::Ready(None);
            }
            state.consumer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        std::mem::swap(&mut this.taken, &mut state.events);
        state.bytes = 0;
        drop(state);
        this.buffer.room.notify_one();
        Poll::Ready(this.next_taken())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.buffer.dropped.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AnswerPieces;

    #[test]
    fn merged_pieces_do_not_grow_beyond_the_bound_of_the_buffer() {
        const ROOM: usize = 40;
        let engine = EngineId::from("lab");
        let mut pieces = AnswerPieces::new(engine.clone());
        let mut piece = move || {
            let mut events = Vec::new();
            pieces.piece("m", "x", &mut events);
            events.pop().unwrap()
        };
        let first = piece();
        let bounds = Bounds { items: 1, bytes: first.weight() + ROOM };
        let (sender, _events) = channel(engine, bounds);
        assert!(sender.try_push(first).is_ok());
        let merged = (0..2 * ROOM).take_while(|_| sender.try_push(piece()).is_ok()).count();
        assert_eq!(merged, ROOM);
    }
}
