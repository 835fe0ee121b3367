//! Messages that wait for what is forwarded right behind them.
//!
//! What a person forwards comes a moment after the person's own message, one update for each. So a message waits, for the
//! window of the configuration: what the same person forwards in the same chat and topic meanwhile is part of its
//! prompt. Other chats, topics and people change nothing about that. Messages leave in the order they came.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::prompt::Bundle;
use crate::update::Message;

/// The messages whose window is open.
pub(crate) struct Gathering {
    window: Duration,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    until: Instant,
    /// The numbers of its updates.
    numbers: Vec<i64>,
    bundle: Bundle,
}

impl Gathering {
    /// With this window.
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, waiting: VecDeque::new() }
    }

    /// Adds a message: to the one that it was forwarded behind, or as one of its own.
    pub(crate) fn add(&mut self, number: i64, message: Message) {
        let last = self.waiting.iter_mut().rev().find(|it| it.bundle.is_beside(&message));
        match last {
            Some(first) if first.bundle.takes(&message) => {
                first.numbers.push(number);
                first.bundle.add(message);
            }
            _ => {
                let until = Instant::now() + self.window;
                let bundle = Bundle::new(message);
                self.waiting.push_back(Waiting { until, numbers: vec![number], bundle });
            }
        }
    }

    /// The messages, with their updates, whose window had ended when the service was asked: what was forwarded before
    /// that is here.
    pub(crate) fn ready(&mut self, asked: Instant) -> Vec<(Vec<i64>, Bundle)> {
        let over = |it: &Waiting| it.until <= asked || self.window.is_zero();
        let count = self.waiting.iter().take_while(|it| over(it)).count();
        self.waiting.drain(..count).map(|it| (it.numbers, it.bundle)).collect()
    }

    /// When the next window ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|it| it.until)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::update::{self, Update};

    const WINDOW: Duration = Duration::from_millis(300);

    fn message(chat: i64, user: i64, text: &str, forwarded: bool) -> Message {
        let mut message = json!({ "message_id": 1, "chat": { "id": chat, "type": "private" },
            "from": { "id": user }, "text": text });
        if forwarded {
            message["forward_origin"] = json!({ "type": "user" });
        }
        match update::read(&json!({ "message": message })) {
            Update::Message(message) => *message,
            other => panic!("{other:?}"),
        }
    }

    fn numbers(gathering: &mut Gathering, asked: Instant) -> Vec<Vec<i64>> {
        gathering.ready(asked).into_iter().map(|it| it.0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_is_that_of_a_message_whatever_comes_in_other_chats() {
        let mut gathering = Gathering::new(WINDOW);
        let begun = Instant::now();
        gathering.add(1, message(7, 7, "one", false));
        tokio::time::sleep(WINDOW * 2 / 3).await;
        gathering.add(2, message(8, 8, "two", false));
        gathering.add(3, message(7, 7, "of one", true));
        assert_eq!(numbers(&mut gathering, begun + WINDOW), [vec![1, 3]]);
        assert_eq!(gathering.next(), Some(begun + WINDOW * 5 / 3));
        gathering.add(4, message(8, 9, "of nobody", true));
        gathering.add(5, message(8, 8, "of two", true));
        gathering.add(6, message(8, 8, "three", false));
        gathering.add(7, message(8, 8, "of three", true));
        let end = begun + WINDOW * 3;
        assert_eq!(numbers(&mut gathering, end), [vec![2, 5], vec![4], vec![6, 7]]);
        assert_eq!(gathering.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_stands_alone_and_overtakes_nothing() {
        let mut gathering = Gathering::new(WINDOW);
        gathering.add(1, message(7, 7, "one", false));
        gathering.add(2, message(7, 7, "/cancel", false));
        gathering.add(3, message(7, 7, "of nothing", true));
        assert_eq!(numbers(&mut gathering, Instant::now()), Vec::<Vec<i64>>::new());
        let end = Instant::now() + WINDOW;
        assert_eq!(numbers(&mut gathering, end), [vec![1], vec![2], vec![3]]);
        // Without a window only what comes at once is one prompt.
        let mut gathering = Gathering::new(Duration::ZERO);
        gathering.add(1, message(7, 7, "one", false));
        gathering.add(2, message(7, 7, "of one", true));
        assert_eq!(numbers(&mut gathering, Instant::now()), [vec![1, 2]]);
    }
}
