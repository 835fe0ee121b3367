//! The process that holds a lock, as shown to waiters.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::model::EngineId;
use crate::sys::machine_name;

/// The holder of a lock. Shown to waiters; valid only while the lock is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Holder {
    /// The machine, by its host name; empty if it is not known.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub machine: Cow<'static, str>,
    /// The process.
    pub pid: u32,
    /// Since when, in seconds of the Unix epoch.
    pub since: u64,
    /// The engine it runs.
    pub engine: EngineId,
}

impl Holder {
    /// This process, from now on.
    pub fn here(engine: EngineId) -> Self {
        let machine = Cow::Borrowed(machine_name());
        Self { machine, pid: std::process::id(), since: unix_time(), engine }
    }

    /// How long it has held the lock.
    pub fn held_for(&self) -> Duration {
        Duration::from_secs(unix_time().saturating_sub(self.since))
    }

    fn is_elsewhere(&self) -> bool {
        !self.machine.is_empty() && self.machine != machine_name()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_elsewhere() {
            write!(f, "process {} on {}", self.pid, self.machine)?;
        } else if self.pid == std::process::id() {
            f.write_str("another run of this process")?;
        } else {
            write!(f, "process {}", self.pid)?;
        }
        write!(f, " for {} s", self.held_for().as_secs())
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_knows_for_how_long_it_has_the_lock() {
        let mut holder = Holder::here(EngineId::from_static("lab"));
        holder.since -= 100;
        assert!((100..200).contains(&holder.held_for().as_secs()), "{holder}");
    }

    #[test]
    fn a_holder_on_another_machine_is_named_with_its_machine() {
        let mut holder = Holder::here(EngineId::from_static("lab"));
        assert_eq!(holder.to_string(), "another run of this process for 0 s");
        holder.pid += 1;
        assert_eq!(holder.to_string(), format!("process {} for 0 s", holder.pid));
        holder.machine = Cow::Borrowed("elsewhere");
        assert_eq!(holder.to_string(), format!("process {} on elsewhere for 0 s", holder.pid));
    }

    #[test]
    fn a_holder_written_without_a_machine_is_read() {
        let text = r#"{"pid":1,"since":2,"engine":"lab"}"#;
        assert_eq!(serde_json::from_str::<Holder>(text).unwrap().machine, "");
    }
}
