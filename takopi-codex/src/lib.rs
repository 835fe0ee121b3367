//! OpenAI Codex as a takopi engine.
//!
//! ```no_run
//! use futures::StreamExt;
//! use takopi_codex::Codex;
//! use takopi_core::{RunRequest, Runner, TakopiEvent};
//!
//! # async fn example() {
//! let codex = Codex::new().exec();
//! let mut events = codex.run(RunRequest::new("what does this project do?"));
//! while let Some(event) = events.next().await {
//!     if let TakopiEvent::Completed(completed) = event {
//!         println!("{}", completed.answer);
//!     }
//! }
//! codex.shutdown().await;
//! # }
//! ```
//!
//! [`Codex`] configures which program to run and how; [`Codex::exec`] and [`Codex::app_server`] make a
//! runner of it.
//!
//! # Modules
//!
//! A prompt goes out through a transport, and comes back as lines:
//!
//! - [`exec`]: `codex exec --json`, one process a run; its arguments, its lines, its ends;
//! - [`app_server`]: `codex app-server`, a process that is kept for the next run; its client, its threads and
//!   turns, approvals, and pools of shared processes;
//! - `common`: the items of a turn in either transport's spelling, and the state machine that turns
//!   them into events, so that both give the same events for the same thing;
//! - `failure`: why a turn failed, by machine and for people;
//! - `entry`, `rollouts`, `doctor`: the engine in a catalog, its stored sessions, its installation checks.

pub mod app_server;
mod codex;
mod common;
mod doctor;
mod entry;
pub mod exec;
mod failure;
mod mcp;
mod rates;
mod rollouts;

use takopi_core::EngineId;
use takopi_core::runner::ResumeCodec;
use takopi_core::version::Version;

pub use codex::Codex;
pub use entry::CodexEntry;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The oldest release takopi works with.
pub const MINIMUM_VERSION: Version = Version::new(0, 125, 0);

/// The name of the engine, on both transports: they share their sessions.
pub const CODEX: EngineId = EngineId::from_static("codex");

/// What the engine is called where people read.
const TITLE: &str = "Codex";

/// How Codex sessions are written: `` `codex resume <id>` ``.
///
/// A session is a UUID in its hyphenated form, folded to lower case. Everything else is refused:
/// `codex exec resume NAME` would silently begin a new session, and `--last` would be taken for a
/// flag.
///
/// ```
/// let codec = takopi_codex::resume_codec();
/// let token = codec.token("01A1E21B-26E5-7EB0-9D27-459E98F10B74").unwrap();
/// assert_eq!(codec.format(&token), "`codex resume 01a1e21b-26e5-7eb0-9d27-459e98f10b74`");
/// assert_eq!(codec.token("--last"), None);
/// ```
pub fn resume_codec() -> ResumeCodec {
    ResumeCodec::of_uuids(CODEX, "codex resume").also(&["codex exec resume", "takopi run --resume"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

    #[test]
    fn a_session_is_a_uuid_folded_to_lower_case() {
        let codec = resume_codec();
        for id in
            [ID, "01A1E21B-26E5-7EB0-9D27-459E98F10B74", "01a1e21b-26e5-7EB0-9d27-459e98f10b74"]
        {
            assert_eq!(codec.token(id).map(|token| token.value).as_deref(), Some(ID), "{id}");
        }
    }

    #[test]
    fn everything_else_is_no_session() {
        let codec = resume_codec();
        for id in [
            "",
            "--last",
            "my-session",
            "--dangerously-bypass-approvals-and-sandbox",
            "{01a1e21b-26e5-7eb0-9d27-459e98f10b74}",
            "urn:uuid:01a1e21b-26e5-7eb0-9d27-459e98f10b74",
            "01a1e21b26e57eb09d27459e98f10b74",
            "01a1e21b-26e5-7eb0-9d27-459e98f10b7",
            "01a1e21b-26e5-7eb0-9d27-459e98f10b7g",
            "01a1e21b-26e57-eb0-9d27-459e98f10b74",
            " 01a1e21b-26e5-7eb0-9d27-459e98f10b74",
            "01a1e21b-26e5-7eb0-9d27-459e98f10b7٤",
        ] {
            assert_eq!(codec.token(id), None, "{id}");
        }
    }

    #[test]
    fn resume_lines_of_all_three_commands_are_read() {
        let codec = resume_codec();
        for line in [
            format!("`codex resume {ID}`"),
            format!("codex resume {ID}"),
            format!("codex exec resume {ID}"),
            format!("takopi run --resume {}", ID.to_uppercase()),
        ] {
            assert_eq!(
                codec.extract(&line).map(|token| token.value).as_deref(),
                Some(ID),
                "{line}"
            );
        }
        for line in [format!("codex resume --last {ID}"), format!("codex resume {ID} --yolo")] {
            assert_eq!(codec.extract(&line), None, "{line}");
        }
    }
}
