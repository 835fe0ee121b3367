#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! - [`config`]: what the configuration says about projects;
//! - [`directive`]: reads `/NAME` and `@branch` at the start of a message;
//! - [`context`]: the line under an answer that names where it ran, and reads it back;
//! - [`worktree`]: the git worktree of a branch: found, or created once;
//! - [`prune`]: removes worktrees that are not needed any more.
//!
//! Git is called as a program. These functions block; call them from a thread that may.
//!
//! ```
//! use serde_json::json;
//! use takopi_projects::{Context, Names, Projects};
//!
//! let table = json!({ "web": { "path": "/srv/web", "engine": "claude" } });
//! let projects = Projects::read(table.as_object().unwrap())?;
//! let names = Names::new(["codex", "claude"], &projects, ["help"]);
//! let message = names.read("/web @fix/parser make the test pass", true)?;
//! assert_eq!(message.text, "make the test pass");
//!
//! let context = Context::new("web").branch("fix/parser");
//! assert_eq!(context.to_string(), "`ctx: web @fix/parser`");
//! assert_eq!(Context::find("done\n\n`ctx: web @fix/parser`"), Some(context));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod config;
pub mod context;
pub mod directive;
mod exclude;
mod git;
mod place;
pub mod prune;
pub mod published;
pub mod worktree;

pub use config::{ConfigError, Project, Projects};
pub use context::Context;
pub use directive::{DirectiveError, Message, Names};
pub use exclude::keep_out_of_status;
pub use git::{Git, GitError};
pub use place::PlaceError;
pub use prune::{Kept, Pruned};
pub use published::{Published, PublishedError};
pub use worktree::{Repository, WorktreeError};
