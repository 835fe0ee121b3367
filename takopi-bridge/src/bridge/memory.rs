//! What a bridge remembers: the active jobs, and the job that a message or a place belongs to.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use takopi_core::ResumeToken;

use super::job::{Conversation, Record};
use crate::scheduler::JobId;
use crate::transport::{MessageRef, Place};

/// Of how many messages, and of how many places, a bridge remembers the job. The least recent ones are
/// forgotten, except those of active jobs. A reply to a forgotten message counts by its resume line
/// alone.
const REMEMBERED: usize = 10_000;

#[derive(Debug)]
pub(super) struct Memory {
    active: ActiveJobs,
    messages: Recent<MessageRef>,
    places: Recent<Place>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            active: BTreeMap::new(),
            messages: Recent::new(REMEMBERED),
            places: Recent::new(REMEMBERED),
        }
    }
}

impl Memory {
    /// Adds a job that was accepted.
    pub(super) fn add(&mut self, record: &Arc<Record>) {
        self.active.insert(record.job, record.clone());
        self.put_message(record.message.clone(), record);
        self.put_place(record);
    }

    /// Removes a job that has ended.
    pub(super) fn end(&mut self, job: JobId) {
        self.active.remove(&job);
    }

    /// Records that a message belongs to a job.
    pub(super) fn put_message(&mut self, message: MessageRef, record: &Arc<Record>) {
        self.messages.put(message, record.clone(), &self.active);
    }

    /// Makes this job's conversation that of its place.
    pub(super) fn put_place(&mut self, record: &Arc<Record>) {
        self.places.put(record.place.clone(), record.clone(), &self.active);
    }

    pub(super) fn forget(&mut self, place: &Place) {
        self.places.take(place);
    }

    pub(super) fn of_message(&self, message: &MessageRef) -> Option<Arc<Record>> {
        self.messages.get(message)
    }

    pub(super) fn of_place(&self, place: &Place) -> Option<Arc<Record>> {
        self.places.get(place)
    }

    pub(super) fn active(&self, job: JobId) -> Option<Arc<Record>> {
        self.active.get(&job).cloned()
    }

    /// The active jobs of a conversation, the newest first.
    pub(super) fn jobs_of(&self, conversation: &Arc<Conversation>) -> impl Iterator<Item = JobId> {
        let active = self.active.values().rev();
        let of_it = active.filter(|record| Arc::ptr_eq(&record.conversation, conversation));
        of_it.map(|record| record.job)
    }

    /// The conversation of a session. Its active jobs share one, so that their answers come in order.
    pub(super) fn conversation_of(&self, session: &ResumeToken) -> Arc<Conversation> {
        let known = self.active.values().find(|record| record.session() == Some(session));
        known
            .map_or_else(|| Conversation::of(session.clone()), |record| record.conversation.clone())
    }

    pub(super) fn active_in(&self, place: &Place) -> Vec<Arc<Record>> {
        self.active.values().filter(|record| record.place == *place).cloned().collect()
    }

    pub(super) fn all_active(&self) -> Vec<Arc<Record>> {
        self.active.values().cloned().collect()
    }

    /// The active jobs of a chat.
    pub(super) fn active_in_chat(&self, chat: &str) -> impl Iterator<Item = JobId> {
        let here = self.active.values().filter(move |record| record.place.chat == chat);
        here.map(|record| record.job)
    }
}

type ActiveJobs = BTreeMap<JobId, Arc<Record>>;

/// A map that forgets its oldest entry when it is full. An entry that is put again is new, and entries
/// of active jobs are never forgotten, so the map may hold a few more.
#[derive(Debug)]
struct Recent<K> {
    capacity: usize,
    /// The next number to put something in with.
    next: u64,
    map: HashMap<K, (u64, Arc<Record>)>,
    order: BTreeMap<u64, K>,
}

impl<K: Hash + Eq + Clone> Recent<K> {
    fn new(capacity: usize) -> Self {
        Self { capacity, next: 0, map: HashMap::new(), order: BTreeMap::new() }
    }

    fn put(&mut self, key: K, record: Arc<Record>, active: &ActiveJobs) {
        self.take(&key);
        self.append(key, record);
        // At most once around: it may be that all of it is active.
        for _ in 0..self.order.len() {
            if self.order.len() <= self.capacity {
                return;
            }
            let Some((_, oldest)) = self.order.pop_first() else { return };
            let Some((_, record)) = self.map.remove(&oldest) else { return };
            if active.contains_key(&record.job) {
                self.append(oldest, record);
            }
        }
    }

    fn append(&mut self, key: K, record: Arc<Record>) {
        self.order.insert(self.next, key.clone());
        self.map.insert(key, (self.next, record));
        self.next += 1;
    }

    fn get(&self, key: &K) -> Option<Arc<Record>> {
        self.map.get(key).map(|(_, record)| record.clone())
    }

    fn take(&mut self, key: &K) {
        if let Some((number, _)) = self.map.remove(key) {
            self.order.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use takopi_core::demo::Demo;

    use super::*;
    use crate::bridge::Incoming;
    use crate::scheduler::{Limits, QueueTarget, Scheduler};

    fn record(scheduler: &Scheduler) -> Arc<Record> {
        let job = scheduler.submit(QueueTarget::New).unwrap().job();
        let incoming = Incoming::new(Place::new("general"), job.to_string(), "hello");
        Arc::new(Record::new(job, &incoming, Arc::new(Demo::new().runner()), Arc::default(), None))
    }

    #[test]
    fn the_oldest_entry_is_forgotten_first() {
        let scheduler = Scheduler::new(Limits::default());
        let mut recent = Recent::new(2);
        let record = record(&scheduler);
        for key in ["a", "b", "a", "c"] {
            recent.put(key, record.clone(), &ActiveJobs::default());
        }
        let known = ["a", "b", "c"].map(|key| recent.get(&key).is_some());
        assert_eq!(known, [true, false, true]);
        recent.take(&"a");
        assert_eq!((recent.map.len(), recent.order.len()), (1, 1));
    }

    #[test]
    fn entries_of_active_jobs_are_not_forgotten() {
        let scheduler = Scheduler::new(Limits::default());
        let (running, over) = (record(&scheduler), record(&scheduler));
        let active = ActiveJobs::from([(running.job, running.clone())]);
        let mut recent = Recent::new(2);
        recent.put("long", running.clone(), &active);
        for key in ["a", "b", "c", "d"] {
            recent.put(key, over.clone(), &active);
        }
        assert_eq!(recent.get(&"long").map(|record| record.job), Some(running.job));
        assert_eq!(recent.map.len(), 2);
        for key in ["x", "y", "z"] {
            recent.put(key, running.clone(), &active);
        }
        assert_eq!(recent.map.len(), 4, "all entries belong to active jobs, so all are kept");
    }
}
