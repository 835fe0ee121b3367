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
//! What all fakes have in common is in [`fake`](crate::fake).
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
pub mod exec;
mod script;
pub mod turn;

use std::path::PathBuf;

pub use app_server::Server;
pub use script::{Script, Start};

pub use crate::fake::report;
pub use crate::fake::{
    Ask, BAD_SCRIPT, Control, FOREVER, Grandchild, Mark, OUTPUT_LOST, OVERSLEPT, Place, SCRIPT,
    SCRIPT_FILE, Sent, Signal, Started, Step,
};

/// The `fake-codex` executable that was built beside the running test.
pub fn binary() -> PathBuf {
    crate::fake::binary("fake-codex")
}
