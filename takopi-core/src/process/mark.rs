//! The mark of an engine process, which everything that descends from it inherits.
//!
//! It has two parts:
//! - a variable in the environment ([`MARKER`]), which people can see too. A process can clear it, and
//!   it cannot be read while the kernel is executing a new program;
//! - on Linux, a number in the soft limit on realtime CPU time (`RLIMIT_RTTIME`), derived from the
//!   variable. It is inherited by fork and exec, survives a new session, a cleared environment and
//!   the death of all ancestors, and can be read at any moment of a process's life. The numbers are
//!   so high (73,000 years) that the limit limits nothing.

/// The variable that marks a process and everything that descends from it.
pub(crate) const MARKER: &str = "TAKOPI_RUN";

/// The lowest number that marks. Lower limits were set by the user and are not touched.
#[cfg(target_os = "linux")]
const LOWEST: u64 = 1 << 61;

/// What distinguishes the processes of one engine from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// `NAME=value` in the environment.
    pub(super) variable: String,
    /// The number in the limit, for an engine that takopi started.
    pub(super) number: Option<u64>,
}

impl Mark {
    /// The mark of an engine process.
    pub(super) fn of_process(marker: &str) -> Self {
        let variable = format!("{MARKER}={marker}");
        let number = cfg!(target_os = "linux").then(|| number_of(marker));
        Self { variable, number }
    }

    /// A variable alone.
    pub(super) fn of_variable(name: &str, value: &str) -> Self {
        Self { variable: format!("{name}={value}"), number: None }
    }
}

/// The number of a marker: between `LOWEST` and twice that. Later versions must compute the same, to
/// find what an earlier one left behind.
fn number_of(marker: &str) -> u64 {
    // FNV-1a.
    let hash = marker.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (1 << 61) | (hash >> 3)
}

/// Puts the number on this process. It is called between fork and exec: system calls only.
///
/// A process that may not have it, because its own limit is lower, is marked by its environment alone.
#[cfg(target_os = "linux")]
pub(super) fn put(number: u64) {
    use nix::sys::resource::{Resource, setrlimit};
    if let Some((soft, hard)) = limit(number) {
        let _ = setrlimit(Resource::RLIMIT_RTTIME, soft, hard);
    }
}

/// The limit (soft, hard) of a process with this number, if it may have it. System calls only.
#[cfg(target_os = "linux")]
pub(super) fn limit(number: u64) -> Option<(u64, u64)> {
    use nix::sys::resource::{Resource, getrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_RTTIME).ok()?;
    (soft >= LOWEST && hard >= number).then_some((number, hard))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn put(_number: u64) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_has_its_number_in_every_version() {
        assert_eq!(number_of(""), 0x397e_539c_9084_4464);
        assert_eq!(number_of("a.1"), 0x3cc3_bd83_208c_dbe6);
        assert_eq!(Mark::of_variable("A", "b").number, None);
        let [one, other] = ["a.1", "a.2"].map(number_of);
        assert_ne!(one, other);
        assert!([one, other].iter().all(|number| (1 << 61..1 << 62).contains(number)));
    }
}
