//! Small pieces of the operating system that several layers use. A leaf: it knows nothing of takopi.

mod descriptors;
mod machine;
mod ofd;
mod pipe;
#[cfg(target_os = "linux")]
pub(crate) mod vfork;
mod watch;

pub(crate) use descriptors::original_limit;
pub use descriptors::{descriptor_limit, raise_descriptor_limit};
pub(crate) use machine::machine_name;
pub(crate) use ofd::{ByteRange, OfdFile};
pub(crate) use pipe::pipe_capacity;
pub(crate) use watch::FileWatch;
