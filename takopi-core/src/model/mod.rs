//! The event model: what a consumer of takopi sees.
//!
//! One run is one ordered stream of [`TakopiEvent`]s: any number of [`ActionEvent`]s, exactly one
//! [`Started`] when the engine confirms the session, and exactly one [`Completed`], which is last.
//!
//! The JSON shape is one object a line. Absent optional fields are omitted, unknown fields are
//! ignored on read, and an unknown [`ActionKind`] or [`Reason`] survives a round trip. The JSON
//! Schema of the stream is [`schema::stream_schema`]; a copy is checked in as
//! `docs/events.schema.json`.

mod action;
pub mod bounds;
mod detail;
mod event;
mod ids;
mod keywords;
mod pieces;
mod rates;
pub mod schema;
mod text;
mod usage;

pub use action::{Action, ActionEvent, Level, Phase};
pub use detail::{Detail, DetailWriter};
pub use event::{Completed, Started, TakopiEvent};
pub use ids::{EngineId, ResumeToken};
pub use keywords::{ActionKind, Reason};
pub use pieces::AnswerPieces;
pub use rates::{RateLimitWindow, RateLimits};
pub use text::{OUTPUT_TAIL_BYTES, tail};
pub use usage::{Usage, UsageScope};
