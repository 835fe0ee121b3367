//! The buffer between a run and its consumer, bounded by items and bytes.
//!
//! The run waits when the buffer is full; its terminal event never waits, so a run ends and lets
//! its session go whether or not anybody reads. The consumer takes all that is there in one go.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::model::{Completed, TakopiEvent};

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
        state.bytes += event.weight();
        state.events.push_back(event);
        let consumer = state.consumer.take();
        drop(state);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }
}

/// The run's end of the buffer.
#[derive(Clone)]
pub(super) struct Sender {
    buffer: Arc<Buffer>,
}

/// A buffer and the stream that empties it.
pub(super) fn channel(bounds: Bounds) -> (Sender, Events) {
    let buffer = Arc::new(Buffer {
        bounds,
        state: Mutex::default(),
        room: Notify::new(),
        dropped: CancellationToken::new(),
    });
    (Sender { buffer: buffer.clone() }, Events { taken: VecDeque::new(), buffer })
}

impl Sender {
    /// Adds an event if there is room, else gives it back. Nothing is added behind the last event:
    /// one that waited for room meanwhile comes too late for anybody.
    #[expect(clippy::result_large_err, reason = "the event itself comes back, and seldom")]
    pub(super) fn try_push(&self, event: TakopiEvent) -> Result<(), TakopiEvent> {
        let state = self.buffer.state();
        if state.finished {
            return Ok(());
        }
        let bounds = self.buffer.bounds;
        let full = state.events.len() >= bounds.items || state.bytes >= bounds.bytes;
        if full {
            return Err(event);
        }
        Buffer::add(state, event);
        Ok(())
    }

    /// Resolves when there may be room again.
    pub(super) async fn room(&self) {
        self.buffer.room.notified().await;
    }

    /// Adds the last event, room or not. The first word counts.
    pub(super) fn finish(&self, completed: Completed) {
        let mut state = self.buffer.state();
        if !std::mem::replace(&mut state.finished, true) {
            Buffer::add(state, completed.into());
        }
    }

    /// Fires when nobody reads any more.
    pub(super) fn dropped(&self) -> &CancellationToken {
        &self.buffer.dropped
    }
}

/// The consumer's end: the stream.
pub(super) struct Events {
    taken: VecDeque<TakopiEvent>,
    buffer: Arc<Buffer>,
}

impl Stream for Events {
    type Item = TakopiEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TakopiEvent>> {
        if let Some(event) = self.taken.pop_front() {
            return Poll::Ready(Some(event));
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
        Poll::Ready(this.taken.pop_front())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.buffer.dropped.cancel();
    }
}
