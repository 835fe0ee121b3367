//! What a bridge remembers: the jobs under way, and the job that a message or a place belongs to.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::job::{Conversation, Record};
use crate::scheduler::JobId;
use crate::transport::{MessageRef, Place};

/// How many messages, and how many places, a bridge knows the job of. Those that nothing was heard of
/// for longest are forgotten, but none of a job under way: a reply to one of those counts by its
/// resume line alone.
pub const REMEMBERED: usize = 10_000;

#[derive(Debug)]
pub(super) struct Memory {
    live: Live,
    messages: Recent<MessageRef>,
    places: Recent<Place>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            messages: Recent::new(REMEMBERED),
            places: Recent::new(REMEMBERED),
        }
    }
}

impl Memory {
    /// A job was taken.
    pub(super) fn add(&mut self, record: &Arc<Record>) {
        self.live.insert(record.job, record.clone());
        self.put_message(record.message.clone(), record);
        self.put_place(record);
    }

    /// A job is over.
    pub(super) fn end(&mut self, job: JobId) {
        self.live.remove(&job);
    }

    /// A message belongs to a job.
    pub(super) fn put_message(&mut self, message: MessageRef, record: &Arc<Record>) {
        self.messages.put(message, record.clone(), &self.live);
    }

    /// The place's conversation is this job's.
    pub(super) fn put_place(&mut self, record: &Arc<Record>) {
        self.places.put(record.place.clone(), record.clone(), &self.live);
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

    pub(super) fn live(&self, job: JobId) -> Option<Arc<Record>> {
        self.live.get(&job).cloned()
    }

    /// The jobs of a conversation that are under way, the newest first.
    pub(super) fn jobs_of(&self, conversation: &Arc<Conversation>) -> impl Iterator<Item = JobId> {
        let live = self.live.values().rev();
        let of_it = live.filter(|record| Arc::ptr_eq(&record.conversation, conversation));
        of_it.map(|record| record.job)
    }

    pub(super) fn live_in(&self, place: &Place) -> Vec<Arc<Record>> {
        self.live.values().filter(|record| record.place == *place).cloned().collect()
    }

    pub(super) fn all_live(&self) -> Vec<Arc<Record>> {
        self.live.values().cloned().collect()
    }

    /// The jobs of a chat that are under way.
    pub(super) fn live_in_chat(&self, chat: &str) -> impl Iterator<Item = JobId> {
        let here = self.live.values().filter(move |record| record.place.chat == chat);
        here.map(|record| record.job)
    }
}

type Live = BTreeMap<JobId, Arc<Record>>;

/// A map that forgets what was put in first when it is full. What is put in again is new, and what
/// belongs to a job under way is never forgotten, so it may hold a little more.
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

    fn put(&mut self, key: K, record: Arc<Record>, live: &Live) {
        self.take(&key);
        self.append(key, record);
        // At most once around: it may be that all of it is live.
        for _ in 0..self.order.len() {
            if self.order.len() <= self.capacity {
                return;
            }
            let Some((_, oldest)) = self.order.pop_first() else { return };
            let Some((_, record)) = self.map.remove(&oldest) else { return };
            if live.contains_key(&record.job) {
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
    use crate::scheduler::{Limits, Line, Scheduler};

    fn record(scheduler: &Scheduler) -> Arc<Record> {
        let job = scheduler.submit(Line::New).unwrap().job();
        let incoming = Incoming::new(Place::new("general"), job.to_string(), "hello");
        Arc::new(Record::new(job, &incoming, Arc::new(Demo::new().runner()), Arc::default()))
    }

    #[test]
    fn what_was_not_heard_of_for_longest_is_forgotten_first() {
        let scheduler = Scheduler::new(Limits::default());
        let mut recent = Recent::new(2);
        let record = record(&scheduler);
        for key in ["a", "b", "a", "c"] {
            recent.put(key, record.clone(), &Live::default());
        }
        let known = ["a", "b", "c"].map(|key| recent.get(&key).is_some());
        assert_eq!(known, [true, false, true]);
        recent.take(&"a");
        assert_eq!((recent.map.len(), recent.order.len()), (1, 1));
    }

    #[test]
    fn what_is_under_way_is_not_forgotten() {
        let scheduler = Scheduler::new(Limits::default());
        let (running, over) = (record(&scheduler), record(&scheduler));
        let live = Live::from([(running.job, running.clone())]);
        let mut recent = Recent::new(2);
        recent.put("long", running.clone(), &live);
        for key in ["a", "b", "c", "d"] {
            recent.put(key, over.clone(), &live);
        }
        assert_eq!(recent.get(&"long").map(|record| record.job), Some(running.job));
        assert_eq!(recent.map.len(), 2);
        for key in ["x", "y", "z"] {
            recent.put(key, running.clone(), &live);
        }
        assert_eq!(recent.map.len(), 4, "all of it is live, so all of it is kept");
    }
}
