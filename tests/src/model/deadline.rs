//! Deadlines in real time, so that a broken test reports what it waited for instead of hanging.
//!
//! They are kept by a thread, not by the test's runtime: a paused tokio clock jumps over a tokio timeout while a real
//! process is still at work.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

/// How long the proving ground waits for something that should come at once. It only decides when a test that hangs is
/// reported: on a loaded machine a real agent alone takes more than a minute to start.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// Runs `future` to its end, or panics naming `what` once `limit` of real time has passed.
pub async fn within<F: Future>(limit: Duration, what: &str, future: F) -> F::Output {
    let (disarm, disarmed) = mpsc::channel::<()>();
    let (ring, alarm) = oneshot::channel();
    thread::spawn(move || {
        // Ends early when `disarm` is dropped, with the future done or abandoned.
        if disarmed.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let _ = ring.send(());
        }
    });
    let output = tokio::select! {
        biased;
        output = future => output,
        Ok(()) = alarm => panic!("waited {limit:?} in vain for {what}"),
    };
    drop(disarm);
    output
}
