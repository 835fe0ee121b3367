//! The events of running jobs, on their way from the bridge to the screen.
//!
//! The bridge must not wait for the screen, so pieces of an answer that nobody has taken yet are joined: what
//! waits is at most the answer itself and the last [`WAITING`] other events.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use takopi_bridge::JobId;
use takopi_core::{ActionEvent, ActionKind, TakopiEvent};
use tokio::sync::Notify;

/// The most events that wait.
const WAITING: usize = 1024;

/// Events that wait to be shown.
#[derive(Debug, Default)]
pub(super) struct Watch {
    events: Mutex<VecDeque<(JobId, ActionEvent)>>,
    /// The jobs whose session the engine confirmed.
    started: Mutex<HashSet<JobId>>,
    changed: Notify,
}

impl Watch {
    /// Whether the engine confirmed the session of this job, which has ended.
    pub(super) fn has_started(&self, job: JobId) -> bool {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).remove(&job)
    }

    /// Adds an event. Never waits.
    pub(super) fn add(&self, job: JobId, event: &TakopiEvent) {
        let event = match event {
            TakopiEvent::Started(_) => {
                self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(job);
                return;
            }
            TakopiEvent::Action(event) => event,
            _ => return,
        };
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let last = events.back_mut().filter(|(last_job, _)| *last_job == job);
        if !last.is_some_and(|(_, last)| last.merge_piece(event)) {
            if events.len() >= WAITING
                && let Some(at) =
                    events.iter().position(|(_, it)| it.action.kind != ActionKind::Answer)
            {
                events.remove(at);
            }
            events.push_back((job, event.clone()));
        }
        self.changed.notify_one();
    }

    /// Waits for events. Cancel-safe.
    pub(super) async fn next(&self) -> VecDeque<(JobId, ActionEvent)> {
        loop {
            let events = self.take();
            if !events.is_empty() {
                return events;
            }
            self.changed.notified().await;
        }
    }

    /// The events that wait.
    pub(super) fn take(&self) -> VecDeque<(JobId, ActionEvent)> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
