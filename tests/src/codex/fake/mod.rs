//! The fake codex: one binary, `fake-codex`, that speaks both Codex transports from a script, for
//! the faults that the real codex cannot be made to show.
//!
//! A test writes a [`Script`], starts a [`Control`] and gives the variables of [`Control::env`] to
//! whatever starts [`binary`]:
//!
//! ```
//! use takopi_tests::codex::fake::{Control, Script, Step, exec};
//!
//! let control = Control::new();
//! let script = Script::exec([
//!     Step::ReadStdin,
//!     exec::thread_started(),
//!     Step::gate("go"),
//!     exec::message("you said: $PROMPT"),
//!     exec::turn_completed(),
//! ]);
//! let environment = control.env(&script);
//! # assert_eq!(environment.len(), 2);
//! ```
//!
//! - Steps run in order. A process whose steps are over exits with 0.
//! - Whatever a process does can be seen in [`Control`]: its arguments, environment, directory and
//!   stdin, what a client sent, the points it reached, and that it is gone.
//! - Nothing waits on a clock: gates are opened by the test, reports are awaited.
//! - No fake outlives its test: when the [`Control`] is dropped, or the test's process dies, every
//!   gate, sleep and grandchild ends. Without a control a sleep ends after [`FOREVER`].
//!
//! Text that the fake sends, and names of gates and points, may hold placeholders:
//!
//! | placeholder | exec | app-server |
//! |---|---|---|
//! | `$THREAD` | the session asked for with `resume`, else a new id | thread of the call |
//! | `$TURN` | - | turn of the call |
//! | `$PROMPT` | what was read from stdin so far | text of the input |
//! | `$CWD` | working directory | directory of the thread |
//! | `$REQUEST` | - | id of the client's request, as JSON |
//! | `$REPLY` | - | the client's last answer to an [`Ask`], as JSON inside a string |
//! | `$START` | number of this start, from 0 | the same |
//! | `$SEQ` | a number that grows with every use | the same |

pub mod app_server;
mod board;
mod control;
pub mod exec;
pub mod report;
mod script;
mod step;
pub mod turn;

use std::path::PathBuf;
use std::time::Duration;

pub use app_server::Server;
pub use board::{Mark, Sent, Started};
pub use control::Control;
pub use script::{CONTROL, SCRIPT, SCRIPT_FILE, Script, Start};
pub use step::{Ask, Grandchild, Place, Signal, Step};

/// How long "for ever" lasts for a fake that is never stopped.
pub const FOREVER: Duration = Duration::from_mins(2);

/// Exit code of a fake whose script cannot be played: missing, malformed, or a step out of place.
pub const BAD_SCRIPT: i32 = 70;

/// Exit code of a fake whose output has no reader any more.
pub const OUTPUT_LOST: i32 = 74;

/// Exit code of a fake that slept for [`FOREVER`].
pub const OVERSLEPT: i32 = 75;

/// The `fake-codex` executable that was built beside the running test.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own executable");
    let mut directory = test.parent().expect("an executable is in a directory");
    if directory.ends_with("deps") || directory.ends_with("examples") {
        directory = directory.parent().expect("deps is inside the profile's directory");
    }
    let binary = directory.join(format!("fake-codex{}", std::env::consts::EXE_SUFFIX));
    assert!(
        binary.is_file(),
        "{} is missing: `cargo build -p takopi-tests --bin fake-codex` makes it",
        binary.display()
    );
    binary
}
