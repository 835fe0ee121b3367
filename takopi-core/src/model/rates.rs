//! Limits of the engine's account: how much is used, and when it resets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of a window must be used for the account to count as being at its limit, in percent.
const USED_UP: f64 = 99.0;

/// The limits of the engine's account, as they were reported last in a run.
///
/// ```
/// use takopi_core::model::{RateLimitWindow, RateLimits};
///
/// let window = RateLimitWindow::new("primary", 100.0).resets_at(1_800_000_000);
/// let limits = RateLimits::new(vec![window]);
/// assert_eq!(limits.resets_at, Some(1_800_000_000));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(
    description = "The limits of the engine's account, as they were reported last in a run."
)]
#[non_exhaustive]
pub struct RateLimits {
    /// The windows in which usage is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<RateLimitWindow>,
    /// When the account can go on, in seconds since 1970, if it is at a limit and the time is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<i64>,
}

/// One window in which usage is counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RateLimitWindow {
    /// The engine's name for it.
    pub name: String,
    /// How much of it is used, in percent.
    pub used_percent: f64,
    /// When it resets, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<i64>,
    /// How long it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_minutes: Option<u64>,
}

impl RateLimits {
    /// Limits with these windows. The account can go on when the last window that is used up resets.
    pub fn new(windows: Vec<RateLimitWindow>) -> Self {
        let used_up = windows.iter().filter(|window| window.is_used_up());
        let resets_at = used_up.filter_map(|window| window.resets_at).max();
        Self { windows, resets_at }
    }

    /// A limit of which only its end is known.
    pub fn until(resets_at: i64) -> Self {
        Self { windows: Vec::new(), resets_at: Some(resets_at) }
    }
}

impl RateLimitWindow {
    /// A window of which this much is used, in percent.
    pub fn new(name: impl Into<String>, used_percent: f64) -> Self {
        Self { name: name.into(), used_percent, resets_at: None, window_minutes: None }
    }

    /// Sets when it resets, in seconds since 1970.
    pub fn resets_at(mut self, resets_at: impl Into<Option<i64>>) -> Self {
        self.resets_at = resets_at.into();
        self
    }

    /// Sets how long it is.
    pub fn window_minutes(mut self, minutes: impl Into<Option<u64>>) -> Self {
        self.window_minutes = minutes.into();
        self
    }

    /// Whether nothing of it is left.
    pub fn is_used_up(&self) -> bool {
        self.used_percent >= USED_UP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_window_that_is_used_up_decides_when_the_account_can_go_on() {
        let resets_at = |windows: &[(f64, Option<i64>)]| {
            let window =
                |(used, at): &(f64, Option<i64>)| RateLimitWindow::new("w", *used).resets_at(*at);
            RateLimits::new(windows.iter().map(window).collect()).resets_at
        };
        assert_eq!(resets_at(&[(100.0, Some(5)), (40.0, Some(9))]), Some(5));
        assert_eq!(resets_at(&[(100.0, Some(5)), (99.5, Some(9))]), Some(9));
        assert_eq!(resets_at(&[(40.0, Some(5)), (100.0, None)]), None);
        assert_eq!(resets_at(&[]), None);
    }
}
