//! The order of jobs: prompts of one conversation one after the other, all in the order of the input.
//!
//! A lane is a conversation with work. It has at most one prompt outside of this module, and gives the
//! next one when that is over ([`Order::release`]). What waits here is bounded by number and by bytes
//! ([`Order::has_room`]): the rest of the input stays unread. So a long run of lines of one session
//! can keep others waiting behind it; nothing else can.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::Timestamp;
use takopi_core::ResumeToken;
use tokio::time::Instant;

use crate::digest::Digest;
use crate::job::BatchJob;

/// How many jobs are read ahead.
const WINDOW: usize = 4096;
/// How many bytes of jobs are read ahead.
const WINDOW_BYTES: usize = 64 << 20;

/// A job that was read and is to be run.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) job: BatchJob,
    pub(crate) lane: Option<Digest>,
    /// The conversation it goes on with, unless its lane has one.
    pub(crate) token: Option<ResumeToken>,
    /// How often it was sent, in all runs of the batch.
    pub(crate) attempts: u32,
    /// The attempt that was in flight in a crash: its run may still be there, under its key.
    pub(crate) joins: Option<u32>,
    /// How often it was retried in this run.
    pub(crate) retries: u32,
    /// When its first attempt in this run began.
    pub(crate) began: Option<Timestamp>,
}

/// What waits.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// By line: what comes earlier in the input goes first, also when it had to wait for its lane.
    ready: BTreeMap<u64, Queued>,
    lanes: HashMap<Digest, VecDeque<Queued>>,
    /// What is tried again, by when and by line.
    later: BTreeMap<(Instant, u64), Queued>,
    held: usize,
    bytes: usize,
}

impl Order {
    /// Whether another job may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.held < WINDOW && self.bytes < WINDOW_BYTES
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Takes a job in.
    pub(crate) fn push(&mut self, queued: Queued) {
        self.hold(&queued);
        let Some(lane) = queued.lane else {
            self.ready.insert(queued.job.line, queued);
            return;
        };
        if let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.push_back(queued);
        } else {
            self.lanes.insert(lane, VecDeque::new());
            self.ready.insert(queued.job.line, queued);
        }
    }

    /// The next job that may run. Its lane waits for [`Self::release`].
    pub(crate) fn next(&mut self) -> Option<Queued> {
        let (_, next) = self.ready.pop_first()?;
        self.let_go(&next);
        Some(next)
    }

    /// Gives back a job that [`Self::next`] gave: its place is that of its line.
    pub(crate) fn put_back(&mut self, queued: Queued) {
        self.hold(&queued);
        self.ready.insert(queued.job.line, queued);
    }

    /// Gives back a job that [`Self::next`] gave, which is ready again at a later time.
    pub(crate) fn put_off(&mut self, queued: Queued, until: Instant) {
        self.hold(&queued);
        self.later.insert((until, queued.job.line), queued);
    }

    /// When the next job that was put off is ready again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Makes the jobs ready whose time has come.
    pub(crate) fn wake(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            let queued = entry.remove();
            self.ready.insert(queued.job.line, queued);
        }
    }

    /// The lane's prompt is over.
    pub(crate) fn release(&mut self, lane: Digest) {
        let Some(waiting) = self.lanes.get_mut(&lane) else { return };
        match waiting.pop_front() {
            Some(next) => {
                self.ready.insert(next.job.line, next);
            }
            None => {
                self.lanes.remove(&lane);
            }
        }
    }

    /// Takes out what waits in a lane.
    pub(crate) fn clear(&mut self, lane: Digest) -> Vec<Queued> {
        let waiting = self.lanes.get_mut(&lane).map(std::mem::take).unwrap_or_default();
        for queued in &waiting {
            self.let_go(queued);
        }
        waiting.into()
    }

    fn hold(&mut self, queued: &Queued) {
        self.held += 1;
        self.bytes += queued.job.weight();
    }

    fn let_go(&mut self, queued: &Queued) {
        self.held -= 1;
        self.bytes -= queued.job.weight();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(id: u32, lane: &str) -> Queued {
        let job = BatchJob { id: id.to_string(), line: u64::from(id), ..BatchJob::default() };
        let lane = (!lane.is_empty()).then(|| Digest::of(lane));
        Queued { job, lane, token: None, attempts: 0, joins: None, retries: 0, began: None }
    }

    fn next(order: &mut Order) -> Option<String> {
        order.next().map(|queued| queued.job.id)
    }

    #[test]
    fn a_lane_gives_one_at_a_time_and_the_rest_goes_on() {
        let mut order = Order::default();
        for (id, lane) in [(1, "a"), (2, "a"), (3, ""), (4, "b"), (5, "a")] {
            order.push(queued(id, lane));
        }
        let first: Vec<_> = std::iter::from_fn(|| next(&mut order)).collect();
        assert_eq!(first, ["1", "3", "4"]);
        order.release(Digest::of("a"));
        assert_eq!(next(&mut order).as_deref(), Some("2"));
        order.release(Digest::of("b"));
        assert_eq!(next(&mut order), None);
        order.release(Digest::of("a"));
        assert_eq!(next(&mut order).as_deref(), Some("5"));
        order.release(Digest::of("a"));
        assert!(order.lanes.is_empty(), "an idle lane costs nothing");
        assert_eq!((order.held, order.bytes), (0, 0));
    }

    #[test]
    fn a_job_that_is_put_back_is_next_and_keeps_its_lane() {
        let mut order = Order::default();
        order.push(queued(1, "a"));
        order.push(queued(2, "a"));
        let first = order.next().unwrap();
        order.put_back(first);
        assert_eq!(next(&mut order).as_deref(), Some("1"));
        assert_eq!(next(&mut order), None);
        let cleared: Vec<_> =
            order.clear(Digest::of("a")).into_iter().map(|it| it.job.id).collect();
        assert_eq!(cleared, ["2"]);
        assert_eq!((order.held, order.bytes), (0, 0));
    }

    #[test]
    fn what_is_put_off_is_held_and_ready_again_in_its_time() {
        let mut order = Order::default();
        let now = Instant::now();
        let second = std::time::Duration::from_secs(1);
        for id in 1..=2 {
            order.push(queued(id, "a"));
        }
        let first = order.next().unwrap();
        order.put_off(first, now + second);
        assert_eq!((order.len(), order.next_due()), (2, Some(now + second)));
        order.wake(now);
        assert_eq!(next(&mut order), None, "its lane waits for it");
        order.wake(now + second);
        assert_eq!(next(&mut order).as_deref(), Some("1"));
        // They fill the window, too.
        let mut order = Order::default();
        for id in 0..WINDOW {
            assert!(order.has_room());
            order.push(queued(u32::try_from(id).unwrap(), ""));
            let queued = order.next().unwrap();
            order.put_off(queued, now + second);
        }
        assert!(!order.has_room());
    }

    #[test]
    fn what_is_read_ahead_is_bounded_by_number_and_by_bytes() {
        let mut order = Order::default();
        for id in 0..WINDOW {
            assert!(order.has_room());
            order.push(queued(u32::try_from(id).unwrap(), "a"));
        }
        assert!(!order.has_room());
        let mut order = Order::default();
        let text = || "x".repeat(WINDOW_BYTES);
        let fields: [fn(&mut BatchJob, String); 7] = [
            |job, text| job.prompt = text,
            |job, text| job.id = text,
            |job, text| job.session = Some(text),
            |job, text| job.resume = Some(text),
            |job, text| job.settings.model = Some(text),
            |job, text| job.settings.images = vec![text.into()],
            |job, text| job.settings.options = vec![("key".to_owned(), text)],
        ];
        for fill in fields {
            let mut large = queued(1, "");
            fill(&mut large.job, text());
            order.push(large);
            assert!(!order.has_room());
            order.next();
            assert!(order.has_room());
        }
    }
}
