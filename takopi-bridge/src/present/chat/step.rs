//! An action as a line of Markdown.

use std::fmt::Write as _;

use takopi_core::{ActionKind, Level};

use super::super::action::{self, Changes};
use super::inline::{code, plain};
use crate::progress::{ActionStatus, Tracked, plan_of};

/// The maximum width of an action.
const TITLE: usize = 120;

/// Whether it has a line. The plan is part of the header; turns, telemetry and debug events have
/// none.
pub(super) fn is_shown(tracked: &Tracked) -> bool {
    !matches!(tracked.action.kind, ActionKind::Turn | ActionKind::Telemetry)
        && tracked.level != Some(Level::Debug)
        && plan_of(&tracked.action).is_none()
}

/// ``✗ `cargo test` (exit 101)``.
pub(super) fn line(tracked: &Tracked) -> String {
    let action = &tracked.action;
    let mut line = format!("{} ", mark(tracked));
    if tracked.status == ActionStatus::Done
        && let Some(again) = action::reconnected(action)
    {
        return line + &again;
    }
    line += &match action.kind {
        ActionKind::Command => code(&action.title, TITLE),
        ActionKind::FileChange => files(tracked),
        _ => plain(&action::describe(action, TITLE), TITLE),
    };
    if let Some(particulars) = action::particulars(action) {
        let _ = write!(line, " {}", plain(&particulars, TITLE));
    }
    if let Some(message) = &tracked.message {
        let _ = write!(line, ": {}", plain(message, TITLE));
    }
    line
}

fn mark(tracked: &Tracked) -> &'static str {
    let is_talk = tracked.action.kind == ActionKind::Note && tracked.level.is_none();
    match tracked.status {
        _ if tracked.action.kind == ActionKind::Warning => "!",
        ActionStatus::Done if is_talk => "•",
        status => action::mark(status),
    }
}

/// ``files: update `a.rs`, add `b.rs`, add `c.rs` …and 4 more``.
fn files(tracked: &Tracked) -> String {
    let Some(changes) = Changes::of(&tracked.action) else {
        return plain(&action::describe(&tracked.action, TITLE), TITLE);
    };
    let named = changes.named.iter().map(|(kind, path)| {
        let kind = plain(kind, TITLE);
        format!("{kind} {}", code(path, TITLE / 2)).trim().to_owned()
    });
    let mut files = format!("files: {}", named.collect::<Vec<_>>().join(", "));
    if changes.more > 0 {
        let _ = write!(files, " …and {} more", changes.more);
    }
    files
}
