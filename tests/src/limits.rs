//! Time limits in tests that must hold on a machine of any speed.

use std::time::Duration;

/// Limits that are tried one after the other. The longest leaves time for the end of a run within
/// [`PATIENCE`](crate::model::PATIENCE).
const LIMITS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_secs(4), Duration::from_secs(40)];

/// Runs a test whose limit must be longer than what the machine takes to get to the point where the
/// limit is to strike, and not much longer. An attempt returns `false` if it did not get there.
pub async fn with_enough_time(attempt: impl AsyncFn(Duration) -> bool) {
    for limit in LIMITS {
        if attempt(limit).await {
            return;
        }
    }
    panic!("{:?} were not enough", LIMITS[LIMITS.len() - 1]);
}
