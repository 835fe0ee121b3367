//! The fake Claude Code: one binary, `fake-claude`, that speaks the two-way stream of lines from a script, for the faults that
//! the real one cannot be made to show. What all fakes have in common is in [`fake`](crate::fake).
//!
//! ```
//! use takopi_tests::claude::fake::{Control, Process, Step, turn};
//!
//! let control = Control::new();
//! // Answers the first prompt late and dies within the second.
//! let script = Process::new()
//!     .turn([Step::gate("go")].into_iter().chain(turn::answer("late")))
//!     .turn([turn::text("half"), Step::Exit(3)])
//!     .script();
//! let environment = control.env(&script);
//! # assert_eq!(environment.len(), 2);
//! ```
//!
//! Text that the fake sends, and names of gates and points, may hold placeholders:
//!
//! | placeholder | meaning |
//! |---|---|
//! | `$SESSION` | the session asked for with `--resume` or `--session-id`, else a new id |
//! | `$VERSION` | version of the script |
//! | `$CWD` | working directory |
//! | `$PROMPT` | text of the message that began the turn, or that is handled |
//! | `$MESSAGE` | `uuid` of that message |
//! | `$UUIDS` | the `uuid`s of all messages of the turn, as a JSON list |
//! | `$TURN` | number of the turn |
//! | `$INDEX` | number of the result, from 0, as JSON |
//! | `$REQUEST` | id of the client's control request, as JSON |
//! | `$REPLY` | the client's last answer to an [`Ask`], as JSON inside a string |
//! | `$START` | number of this start, from 0 |
//! | `$SEQ` | a number that grows with every use |

mod process;
mod script;
pub mod turn;

use std::path::PathBuf;

pub use process::{Process, answering, echo, failing, unknown_session};
pub use script::Script;

pub use crate::fake::{
    Ask, Control, FOREVER, Grandchild, Mark, Place, Sent, Signal, Started, Step, report,
};

/// The `fake-claude` executable that was built beside the running test.
pub fn binary() -> PathBuf {
    crate::fake::binary("fake-claude")
}
