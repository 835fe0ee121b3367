//! Engine processes: started, read, and ended so that nothing is left behind.
//!
//! A [`Launch`] describes a process; starting it yields a [`Process`], the handle, and an
//! [`Output`], its standard output in frames. Behind them one owner task on the supervisor
//! thread alone touches the child: it feeds stdin, drains stderr into a bounded ring, runs the
//! [`StopSequence`], reaps, and sweeps. Handles are cheap and may be dropped at any time.
//!
//! Promises:
//! - stdin is written while stdout is read, and a broken pipe on it is no outcome;
//! - dropping a [`Process`] ends it; [`Process::finish`] waits for it to exit, within a limit;
//! - after a stop every process that descends from the engine is gone (on Linux), also one that left its
//!   tree, its group and its session and cleared its environment;
//! - what was written before the process ended is read, and a grandchild that keeps the pipe open
//!   delays nothing;
//! - what the owner keeps for the run (the session lock) is released when all that is done.

mod census;
mod child;
mod environment;
mod frames;
mod instance;
mod launch;
mod mark;
mod owner;
mod pipe;
mod stop;
mod supervisor;
mod sweep;
mod tail;

pub use crate::sys::{descriptor_limit, raise_descriptor_limit};
pub use census::StartCutoff;
pub(crate) use census::group_lives;
pub use environment::{EnvPolicy, SECRET_VARIABLES, find_program};
pub use frames::{DEFAULT_LINE_LIMIT, Frame, LineFramer};
pub use instance::{Stray, end_strays, strays};
pub use launch::{Launch, SpawnError, StdinPlan};
pub use owner::{Exit, Process, Stderr};
pub use pipe::{Output, StdinWriter};
pub use stop::{StopSequence, StopStep};
pub(crate) use supervisor::Supervisor;
pub use sweep::MarkedProcesses;
