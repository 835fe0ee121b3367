//! Messages on their way into a turn: one after the other, in the order they were sent.

use std::collections::VecDeque;
use std::future::pending;

use futures::future::BoxFuture;

/// Messages that are not settled. The next one goes in when the one before it was taken or refused.
#[derive(Default)]
pub(super) struct Steering(VecDeque<(String, BoxFuture<'static, bool>)>);

impl Steering {
    /// Adds a message by its name, and what sends it: whether it was taken.
    pub(super) fn push(&mut self, id: String, send: impl Future<Output = bool> + Send + 'static) {
        self.0.push_back((id, Box::pin(send)));
    }

    /// The next message that is settled, and whether it was taken; never resolves when there is none. Dropped, it goes on at the next
    /// call.
    pub(super) async fn next(&mut self) -> (String, bool) {
        if let Some((id, send)) = self.0.front_mut() {
            let taken = send.await;
            let id = std::mem::take(id);
            self.0.pop_front();
            return (id, taken);
        }
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_message_does_not_go_in_before_the_one_in_front_of_it_is_settled() {
        let (settle, settled) = oneshot::channel();
        let mut steering = Steering::default();
        steering.push("1".to_owned(), async { settled.await.unwrap() });
        steering.push("2".to_owned(), async { true });
        assert_eq!(steering.next().now_or_never(), None);
        settle.send(false).unwrap();
        assert_eq!(steering.next().await, ("1".to_owned(), false));
        assert_eq!(steering.next().await, ("2".to_owned(), true));
        assert_eq!(steering.next().now_or_never(), None);
    }
}
