//! The proving ground itself: what the other tests rely on.

mod browser;
mod claude;
mod fake_claude;
mod fake_codex;
mod model;
mod skip;
