//! The rate at which Telegram accepts messages, over all chats: 30 calls a second, one a second in a chat,
//! 20 a minute in a group.
//!
//! A caller reserves a moment and waits for it, so that nobody is overtaken in a chat. Edits of progress leave some of a
//! group's minute to answers, and do not wait long: they are skipped, and tried again later.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How many calls of a group's minute progress may not use.
const RESERVED: usize = 5;
/// How long an edit of progress waits at most.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The limits of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls a second in all chats.
    pub per_second: usize,
    /// The time between two calls in a chat.
    pub chat_interval: Duration,
    /// Calls a minute in a group.
    pub group_minute: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_second: 30, chat_interval: Duration::from_secs(1), group_minute: 20 }
    }
}

/// Whether a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// It waits as long as it must.
    Message,
    /// It can be skipped.
    Progress,
}

/// Keeps the calls of a bot within the limits.
#[derive(Debug, Default)]
pub struct Rate {
    limits: Limits,
    reserved: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    all: VecDeque<Instant>,
    chats: HashMap<i64, VecDeque<Instant>>,
}

impl Rate {
    /// These limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, reserved: Mutex::default() }
    }

    /// Waits until a call to the chat is allowed. `false` if it can be skipped and would have to wait.
    pub async fn wait(&self, chat: i64, urgency: Urgency) -> bool {
        let Some(at) = self.reserve(chat, urgency) else { return false };
        sleep_until(at).await;
        true
    }

    fn reserve(&self, chat: i64, urgency: Urgency) -> Option<Instant> {
        let now = Instant::now();
        let minute = Duration::from_mins(1);
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.chats.retain(|_, times| times.back().is_some_and(|last| *last + minute > now));
        let of_chat = reserved.chats.get(&chat).cloned().unwrap_or_default();
        let mut at = now;
        if let Some(last) = of_chat.back() {
            at = at.max(*last + self.limits.chat_interval);
        }
        // Groups have negative ids.
        if chat < 0 {
            let spare = if urgency == Urgency::Progress { RESERVED } else { 0 };
            let allowed = self.limits.group_minute.saturating_sub(spare).max(1);
            if let Some(nth) = of_chat.iter().rev().nth(allowed - 1) {
                at = at.max(*nth + minute);
            }
        }
        while reserved.all.front().is_some_and(|first| *first + Duration::from_secs(2) < now) {
            reserved.all.pop_front();
        }
        // The earliest moment with room in the second before and behind it: reservations may lie ahead.
        let second = Duration::from_secs(1);
        loop {
            let near = reserved.all.iter().filter(|it| **it + second > at && **it < at + second);
            let near: Vec<Instant> = near.copied().collect();
            if near.len() < self.limits.per_second {
                break;
            }
            at = near.iter().min().copied().unwrap_or(at) + second;
        }
        if urgency == Urgency::Progress && at > now + PATIENCE {
            return None;
        }
        let position = reserved.all.partition_point(|it| *it <= at);
        reserved.all.insert(position, at);
        let times = reserved.chats.entry(chat).or_default();
        times.push_back(at);
        while times.len() > self.limits.group_minute {
            times.pop_front();
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn times(rate: &Arc<Rate>, chats: impl Iterator<Item = i64>) -> Vec<(i64, Instant)> {
        let tasks: Vec<_> = chats
            .map(|chat| {
                let rate = rate.clone();
                tokio::spawn(async move {
                    rate.wait(chat, Urgency::Message).await;
                    (chat, Instant::now())
                })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.push(task.await.unwrap());
        }
        times.sort_by_key(|(_, at)| *at);
        times
    }

    fn most_in(times: &[Instant], window: Duration) -> usize {
        let count =
            |from: &Instant| times.iter().filter(|it| *it >= from && **it < *from + window).count();
        times.iter().map(count).max().unwrap_or(0)
    }

    #[tokio::test(start_paused = true)]
    async fn all_limits_hold_over_many_chats() {
        let rate = Arc::new(Rate::default());
        let chats = (0..400).map(|n| if n % 4 == 0 { -(n % 3) - 1 } else { n % 50 });
        let times = times(&rate, chats).await;
        let all: Vec<Instant> = times.iter().map(|(_, at)| *at).collect();
        assert!(most_in(&all, Duration::from_secs(1)) <= 30);
        for chat in -3..50 {
            let of_chat: Vec<Instant> =
                times.iter().filter(|it| it.0 == chat).map(|it| it.1).collect();
            assert!(most_in(&of_chat, Duration::from_millis(999)) <= 1, "{chat}");
            if chat < 0 {
                assert!(most_in(&of_chat, Duration::from_mins(1)) <= 20, "{chat}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_leaves_room_for_answers_in_a_group() {
        let rate = Rate::default();
        let mut shown = 0;
        for _ in 0..30 {
            shown += usize::from(rate.wait(-1, Urgency::Progress).await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(shown, 15);
        let before = Instant::now();
        assert!(rate.wait(-1, Urgency::Message).await);
        assert!(before.elapsed() < Duration::from_secs(2), "the answer need not wait");
    }
}
