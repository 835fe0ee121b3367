//! The events of running jobs, on their way from the bridge to the screen.
//!
//! The bridge must not wait for the screen, so pieces of an answer that nobody has taken yet are joined: what
//! waits is at most the answer itself and the last [`WAITING`] other events.
//!
//! The next message of a session runs while the end of the turn before is still being reported. Events that come
//! after the end of a job therefore wait until that is shown.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use takopi_bridge::JobId;
use takopi_core::{ActionEvent, ActionKind, TakopiEvent};
use tokio::sync::Notify;

/// The most events that wait.
const WAITING: usize = 1024;

/// Something that waits to be shown.
#[derive(Debug)]
struct Entry {
    job: JobId,
    /// `None`: the run of this job is over.
    event: Option<ActionEvent>,
}

impl Entry {
    fn is_end(&self) -> bool {
        self.event.is_none()
    }
}

/// Events that wait to be shown.
#[derive(Debug, Default)]
pub(super) struct Watch {
    entries: Mutex<VecDeque<Entry>>,
    /// The jobs whose session the engine confirmed.
    started: Mutex<HashSet<JobId>>,
    changed: Notify,
}

/// Events of one or more jobs, in order.
pub(super) type Events = Vec<(JobId, ActionEvent)>;

impl Watch {
    /// Whether the engine confirmed the session of this job, which has ended.
    pub(super) fn has_started(&self, job: JobId) -> bool {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).remove(&job)
    }

    /// Adds an event. Never waits.
    pub(super) fn add(&self, job: JobId, event: &TakopiEvent) {
        match event {
            TakopiEvent::Started(_) => {
                self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(job);
            }
            TakopiEvent::Action(event) => self.add_action(job, event),
            TakopiEvent::Completed(_) => self.entries().push_back(Entry { job, event: None }),
            _ => {}
        }
    }

    fn add_action(&self, job: JobId, event: &ActionEvent) {
        let mut entries = self.entries();
        let last = entries.back_mut().filter(|last| last.job == job);
        let last = last.and_then(|last| last.event.as_mut());
        if !last.is_some_and(|last| last.merge_piece(event)) {
            let is_step = |entry: &Entry| {
                entry.event.as_ref().is_some_and(|it| it.action.kind != ActionKind::Answer)
            };
            if entries.len() >= WAITING
                && let Some(at) = entries.iter().position(is_step)
            {
                entries.remove(at);
            }
            entries.push_back(Entry { job, event: Some(event.clone()) });
        }
        drop(entries);
        self.changed.notify_one();
    }

    /// Waits for events, up to the end of a job that is not [reported](Self::reported). Cancel-safe.
    pub(super) async fn next(&self) -> Events {
        loop {
            let events = self.take();
            if !events.is_empty() {
                return events;
            }
            self.changed.notified().await;
        }
    }

    /// The events that wait, up to the end of a job that is not [reported](Self::reported).
    pub(super) fn take(&self) -> Events {
        let mut entries = self.entries();
        let ready = entries.iter().position(Entry::is_end).unwrap_or(entries.len());
        events(entries.drain(..ready))
    }

    /// Whether events wait for the report of a job other than this one.
    pub(super) fn waits_for_another(&self, job: JobId) -> bool {
        self.entries().iter().any(|entry| entry.is_end() && entry.job != job)
    }

    /// The last events of a job, whose end is reported now: what came after it need not wait any more.
    pub(super) fn reported(&self, job: JobId) -> Events {
        let mut entries = self.entries();
        let (own, others): (Vec<Entry>, _) = entries.drain(..).partition(|it| it.job == job);
        entries.extend(others);
        drop(entries);
        self.changed.notify_one();
        events(own)
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn events(entries: impl IntoIterator<Item = Entry>) -> Events {
    let entries = entries.into_iter();
    entries.filter_map(|Entry { job, event }| Some((job, event?))).collect()
}

#[cfg(test)]
mod tests {
    use takopi_bridge::testing::job;
    use takopi_core::{Action, Completed, Phase};

    use super::*;

    fn step(id: &str) -> TakopiEvent {
        let action = Action::new(id, ActionKind::Command, id);
        ActionEvent::new("lab", action, Phase::Completed).ok(true).into()
    }

    fn ids(events: Events) -> Vec<String> {
        events.into_iter().map(|(_, event)| event.action.id).collect()
    }

    #[test]
    fn what_comes_after_the_end_of_a_job_waits_for_its_report() {
        let (watch, first, second) = (Watch::default(), job(1), job(2));
        watch.add(first, &step("a"));
        assert_eq!(ids(watch.take()), ["a"]);
        watch.add(first, &step("b"));
        watch.add(first, &Completed::success("lab", "").into());
        watch.add(second, &step("c"));
        assert!(watch.waits_for_another(second) && !watch.waits_for_another(first));
        assert_eq!(ids(watch.take()), ["b"]);
        assert!(watch.take().is_empty());
        assert!(watch.reported(first).is_empty());
        assert_eq!(ids(watch.take()), ["c"]);
        assert!(!watch.waits_for_another(second));
    }

    #[test]
    fn a_report_comes_with_the_last_steps_of_its_job() {
        let (watch, first, second) = (Watch::default(), job(1), job(2));
        watch.add(first, &Completed::success("lab", "").into());
        watch.add(second, &step("a"));
        watch.add(second, &Completed::success("lab", "").into());
        assert_eq!(ids(watch.reported(second)), ["a"]);
        watch.add(second, &step("b"));
        assert!(watch.take().is_empty(), "the first job is not reported");
        watch.reported(first);
        assert_eq!(ids(watch.take()), ["b"]);
    }
}
