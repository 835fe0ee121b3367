//! The events of one run, as a type with the things every consumer needs.
//!
//! Promises, whatever the stream inside does:
//! - exactly one `Completed`, and nothing behind it;
//! - dropping it before `Completed` cancels the run; after it, dropping does nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, FusedStream};
use futures::{Stream, StreamExt};
use pin_project::pin_project;
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;

use crate::model::{Completed, EngineId, Reason, ResumeToken, TakopiEvent};

/// The events of one run. Dropping it before `Completed` cancels the run.
///
/// Read it as a [`Stream`], or ask for what is needed:
///
/// ```
/// use takopi_core::demo::Demo;
/// use takopi_core::{Runner, RunRequest};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let runner = Demo::new().runner();
/// let events = runner.run(RunRequest::new("say hello"));
/// let completed = events.completed().await;
/// assert!(completed.ok, "{:?}", completed.error);
/// println!("{}", completed.answer);
/// runner.shutdown().await;
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[pin_project]
#[must_use = "dropping the stream cancels the run"]
pub struct EventStream {
    #[pin]
    events: BoxStream<'static, TakopiEvent>,
    engine: EngineId,
    cancel: CancellationToken,
    session: Session,
    over: bool,
}

/// The run's session, once it is known; nothing if the run ended without one, or the stream is gone.
struct Session(Arc<SetOnce<Option<ResumeToken>>>);

impl Session {
    /// The first one counts.
    fn set(&self, session: Option<ResumeToken>) {
        let _ = self.0.set(session);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.set(None);
    }
}

impl EventStream {
    /// The events of a run of this engine, from a stream that cancels the run when it is dropped.
    pub fn new(engine: EngineId, events: impl Stream<Item = TakopiEvent> + Send + 'static) -> Self {
        Self {
            events: events.boxed(),
            engine,
            cancel: CancellationToken::new(),
            session: Session(Arc::default()),
            over: false,
        }
    }

    /// Lets [`Self::cancel`] fire this token: the one of the run's request.
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancel = token;
        self
    }

    /// Cancels the run. The stream still ends with `Completed`, after everything of the run is gone.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Reads to the end and returns it.
    pub async fn completed(mut self) -> Completed {
        while let Some(event) = self.next().await {
            if let TakopiEvent::Completed(completed) = event {
                return *completed;
            }
        }
        missing_end(self.engine.clone())
    }

    /// Reads to the end and returns the answer; the whole `Completed` if the run failed.
    pub async fn answer(self) -> Result<String, Completed> {
        let completed = self.completed().await;
        if completed.ok { Ok(completed.answer) } else { Err(completed) }
    }

    /// The session, as soon as the stream has yielded `Started`; `None` when the run ended without
    /// one. The future does not read the stream: await it beside the reader.
    pub fn session(&self) -> impl Future<Output = Option<ResumeToken>> + Send + 'static {
        let session = self.session.0.clone();
        async move { session.wait().await.clone() }
    }
}

impl Stream for EventStream {
    type Item = TakopiEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TakopiEvent>> {
        let this = self.project();
        if *this.over {
            return Poll::Ready(None);
        }
        let polled = match this.events.poll_next(cx) {
            Poll::Ready(None) => Poll::Ready(Some(missing_end(this.engine.clone()).into())),
            polled => polled,
        };
        match &polled {
            Poll::Ready(Some(TakopiEvent::Started(started))) => {
                this.session.set(Some(started.resume.clone()));
            }
            Poll::Ready(Some(TakopiEvent::Completed(_))) => {
                *this.over = true;
                this.session.set(None);
            }
            _ => {}
        }
        polled
    }
}

impl FusedStream for EventStream {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("engine", &self.engine)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

fn missing_end(engine: EngineId) -> Completed {
    Completed::failure(engine, Reason::Protocol, "the run ended without a result")
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;
    use crate::model::Started;

    const LAB: EngineId = EngineId::from_static("lab");

    fn started() -> TakopiEvent {
        Started::new(ResumeToken::new("lab", "a")).into()
    }

    fn success(answer: &str) -> TakopiEvent {
        Completed::success(LAB, answer).into()
    }

    #[tokio::test]
    async fn a_stream_without_an_end_gets_one_and_nothing_comes_behind_an_end() {
        let events: Vec<_> = EventStream::new(LAB, stream::iter([started()])).collect().await;
        assert!(matches!(&events[..], [TakopiEvent::Started(_), TakopiEvent::Completed(end)]
            if !end.ok && end.reason == Some(Reason::Protocol)));
        let twice = stream::iter([started(), success("one"), success("two"), started()]);
        let events: Vec<_> = EventStream::new(LAB, twice).collect().await;
        assert_eq!(events, [started(), success("one")]);
    }

    #[tokio::test]
    async fn a_stream_is_terminated_once_its_end_was_read() {
        let mut events = EventStream::new(LAB, stream::iter([started(), success("")]));
        for terminated in [false, true] {
            events.next().await;
            assert_eq!(events.is_terminated(), terminated);
            let logged = format!("EventStream {{ engine: {LAB:?}, over: {terminated}, .. }}");
            assert_eq!(format!("{events:?}"), logged);
        }
    }

    #[tokio::test]
    async fn the_answer_alone_or_why_there_is_none() {
        let events = EventStream::new(LAB, stream::iter([started(), success("42")]));
        assert_eq!(events.answer().await.as_deref(), Ok("42"));
        let failed = Completed::failure(LAB, Reason::EngineFailed, "no");
        let events = EventStream::new(LAB, stream::iter([failed.clone().into()]));
        assert_eq!(events.answer().await, Err(failed));
    }

    #[tokio::test]
    async fn the_session_is_known_once_started_was_read() {
        let mut events = EventStream::new(LAB, stream::iter([started(), success("42")]));
        let (early, late) = (events.session(), events.session());
        events.next().await;
        assert_eq!(early.await, Some(ResumeToken::new("lab", "a")));
        assert!(events.completed().await.ok);
        assert_eq!(late.await, Some(ResumeToken::new("lab", "a")), "the stream is gone meanwhile");
        let events = EventStream::new(LAB, stream::iter([success("")]));
        let session = events.session();
        events.completed().await;
        assert_eq!(session.await, None);
        let events = EventStream::new(LAB, stream::iter([started()]));
        let session = events.session();
        drop(events);
        assert_eq!(session.await, None, "nobody read the stream");
    }
}
