//! Notices that a file was changed, closed by a writer, or removed, without looking at it again and again.
//!
//! A hint and no more: where files cannot be watched (no such facility, or no descriptor left for it),
//! nothing is ever noticed, and a change may be noticed a moment before its effect can be seen. Whoever
//! waits for something must also look by itself from time to time.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::FileWatch;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::FileWatch;
