//! Claude Code as a takopi engine.
//!
//! # Modules
//!
//! A prompt goes out as a line of JSON to a process that stays, and comes back as lines:
//!
//! - `claude`, `options`, `launch`, `prompt`: which program, how it is started, and what it is sent;
//! - `engine`: the session, its process and its lease; `driver`: one run; `client`: the process and who gets its lines;
//! - `approvals`, `control`, `tools`: what the agent asks of its host, and the answers;
//! - `wire`: the lines that Claude Code prints, parsed once, tolerantly;
//! - `translator`: lines of one run into events, and when the run is over;
//! - `failure`: why a turn failed, for machines and for people;
//! - `entry`, `doctor`, `sessions`: the engine in a catalog, its installation checks, its stored sessions;
//! - `permission_mode`: what the agent may do without asking.

mod approvals;
mod claude;
mod client;
mod control;
mod doctor;
mod driver;
mod engine;
mod entry;
mod failure;
mod launch;
mod options;
mod permission_mode;
mod prompt;
mod sessions;
mod tools;
mod translator;
mod wire;

use takopi_core::EngineId;
use takopi_core::runner::ResumeCodec;
use takopi_core::version::Version;

pub use claude::Claude;
pub use engine::ClaudeEngine;
pub use entry::ClaudeEntry;
pub use permission_mode::PERMISSION_MODES;
#[doc(hidden)]
pub use translator::translate_lines;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The name of the engine.
pub const CLAUDE: EngineId = EngineId::from_static("claude");

/// What the engine is called where people read.
const TITLE: &str = "Claude Code";

/// The oldest release takopi works with.
pub const MINIMUM_VERSION: Version = Version::new(2, 0, 45);

/// How Claude Code's sessions are written: `` `claude --resume <id>` ``.
///
/// A session is a UUID in lower case. Claude Code takes anything else for the title of a session, and
/// does not find an id in upper case.
///
/// ```
/// let codec = takopi_claude::resume_codec();
/// let token = codec.token("01a1e21b-26e5-4eb0-9d27-459e98f10b74").unwrap();
/// assert_eq!(codec.format(&token), "`claude --resume 01a1e21b-26e5-4eb0-9d27-459e98f10b74`");
/// assert_eq!(codec.token("my-title"), None);
/// ```
pub fn resume_codec() -> ResumeCodec {
    ResumeCodec::of_uuids(CLAUDE, "claude --resume")
}
