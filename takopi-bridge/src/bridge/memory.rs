//! What a bridge remembers: the jobs under way, and the job that a message or a place belongs to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use super::job::{Conversation, Record};
use crate::scheduler::JobId;
use crate::transport::{MessageRef, Place};

/// How many messages, and how many places, a bridge knows the job of. The oldest are forgotten: a
/// reply to one of those counts by its resume line alone.
pub const REMEMBERED: usize = 10_000;

#[derive(Debug)]
pub(super) struct Memory {
    live: BTreeMap<JobId, Arc<Record>>,
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
        self.messages.put(record.message.clone(), record.clone());
        self.places.put(record.place.clone(), record.clone());
    }

    /// A job is over.
    pub(super) fn end(&mut self, job: JobId) {
        self.live.remove(&job);
    }

    /// A message belongs to a job.
    pub(super) fn put_message(&mut self, message: MessageRef, record: &Arc<Record>) {
        self.messages.put(message, record.clone());
    }

    /// The place's conversation is this job's.
    pub(super) fn put_place(&mut self, record: &Arc<Record>) {
        self.places.put(record.place.clone(), record.clone());
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

    /// The last job of a conversation that is under way.
    pub(super) fn last_of(&self, conversation: &Arc<Conversation>) -> Option<Arc<Record>> {
        let mut live = self.live.values().rev();
        live.find(|record| Arc::ptr_eq(&record.conversation, conversation)).cloned()
    }

    pub(super) fn live_in(&self, place: &Place) -> Vec<Arc<Record>> {
        self.live.values().filter(|record| record.place == *place).cloned().collect()
    }

    pub(super) fn all_live(&self) -> Vec<Arc<Record>> {
        self.live.values().cloned().collect()
    }

    pub(super) fn live_count(&self) -> usize {
        self.live.len()
    }
}

/// A map that forgets what was put in first when it is full.
#[derive(Debug)]
struct Recent<K> {
    capacity: usize,
    map: HashMap<K, Arc<Record>>,
    order: VecDeque<K>,
}

impl<K: Hash + Eq + Clone> Recent<K> {
    fn new(capacity: usize) -> Self {
        Self { capacity, map: HashMap::new(), order: VecDeque::new() }
    }

    fn put(&mut self, key: K, record: Arc<Record>) {
        if self.map.insert(key.clone(), record).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.map.remove(&oldest);
        }
    }

    fn get(&self, key: &K) -> Option<Arc<Record>> {
        self.map.get(key).cloned()
    }

    fn take(&mut self, key: &K) {
        if self.map.remove(key).is_some() {
            self.order.retain(|other| other != key);
        }
    }
}
