//! pi as a takopi engine.
//!
//! # Modules
//!
//! A prompt goes out as a line of JSON to a process that stays, and comes back as lines:
//!
//! - `pi`, `options`, `launch`, `extension`, `prompt`: which program, how it is started, and what it is sent;
//! - `engine`: the session, its process and its lease; `driver`: one run; `client`: the process and who gets its lines;
//! - `dialog`, `approvals`: what the agent asks of its host, and the answers;
//! - `wire`: the lines that pi prints, parsed once, tolerantly;
//! - `translator`: lines of one run into events, and when the run is over;
//! - `failure`: why a run failed, for machines and for people;
//! - `entry`, `doctor`, `sessions`: the engine in a catalog, its installation checks, its stored sessions;
//! - `permission_mode`: what the agent may do without asking.

mod approvals;
mod client;
mod dialog;
mod doctor;
mod driver;
mod engine;
mod entry;
mod extension;
mod failure;
mod launch;
mod options;
mod permission_mode;
mod pi;
mod prompt;
mod sessions;
mod translator;
mod wire;

use takopi_core::EngineId;
use takopi_core::runner::ResumeCodec;
use takopi_core::version::Version;

pub use engine::PiEngine;
pub use entry::PiEntry;
pub use permission_mode::PERMISSION_MODES;
pub use pi::Pi;
#[doc(hidden)]
pub use translator::translate_lines;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The name of the engine.
pub const PI: EngineId = EngineId::from_static("pi");

/// What the engine is called where people read.
const TITLE: &str = "pi";

/// The oldest release takopi works with: the first that reports whether a run was aborted.
pub const MINIMUM_VERSION: Version = Version::new(1, 1, 0);

/// How pi's sessions are written: `` `pi --session <id>` ``.
///
/// A session is a UUID in lower case, and all of it: pi takes a prefix for the newest session that
/// begins with it, and does not find an id in upper case.
///
/// ```
/// let codec = takopi_pi::resume_codec();
/// let token = codec.token("01A1E443-1aa9-70f6-9a71-8421d061dced").unwrap();
/// assert_eq!(codec.format(&token), "`pi --session 01a1e443-1aa9-70f6-9a71-8421d061dced`");
/// assert_eq!(codec.token("01a1e443"), None);
/// ```
pub fn resume_codec() -> ResumeCodec {
    ResumeCodec::of_uuids(PI, "pi --session").also(&["takopi run --engine pi --resume"])
}
