//! Fake agents: programs that play a script, for the faults that real agents cannot be made to show.
//!
//! A test writes a script, starts a [`Control`] and gives the variables of [`Control::env`] to whatever starts the fake.
//!
//! - Steps run in order. A process whose steps are over exits with 0.
//! - Whatever a process does can be seen in [`Control`]: its arguments, environment, directory and
//!   stdin, what a client sent, the points it reached, and that it is gone.
//! - Nothing waits on a clock: gates are opened by the test, reports are awaited.
//! - No fake outlives its test: when the [`Control`] is dropped, or the test's process dies, every
//!   gate, sleep and grandchild ends. Without a control a sleep ends after [`FOREVER`].
//!
//! What each agent says, and in which order, is in [`codex::fake`](crate::codex::fake) and
//! [`claude::fake`](crate::claude::fake).

mod board;
mod control;
pub mod play;
pub mod report;
mod script;
mod step;

use std::path::PathBuf;
use std::time::Duration;

pub use board::{Mark, Sent, Started};
pub use control::Control;
pub(crate) use script::env;
pub use script::{CONTROL, Rule, SCRIPT, SCRIPT_FILE};
pub use step::{Ask, Grandchild, Place, Signal, Step};

/// How long "for ever" lasts for a fake that is never stopped.
pub const FOREVER: Duration = Duration::from_mins(2);

/// Exit code of a fake whose script cannot be played: missing, malformed, or a step out of place.
pub const BAD_SCRIPT: i32 = 70;

/// Exit code of a fake whose output has no reader any more.
pub const OUTPUT_LOST: i32 = 74;

/// Exit code of a fake that slept for [`FOREVER`].
pub const OVERSLEPT: i32 = 75;

/// The executable of this name that was built beside the running test.
pub(crate) fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own executable");
    let mut directory = test.parent().expect("an executable is in a directory");
    if directory.ends_with("deps") || directory.ends_with("examples") {
        directory = directory.parent().expect("deps is inside the profile's directory");
    }
    let binary = directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        binary.is_file(),
        "{} is missing: `cargo build -p takopi-tests --bin {name}` makes it",
        binary.display()
    );
    binary
}
