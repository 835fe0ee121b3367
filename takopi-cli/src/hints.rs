//! What a person can do about a run that failed.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use takopi_bridge::progress::{Progress, Standing};
use takopi_core::locks::{Holder, SessionKey, SessionLocks as _};
use takopi_core::{ActionKind, Completed, Host, Reason};

/// How to install codex.
pub(crate) const INSTALL: &str = "npm install -g @openai/codex";
/// What sandboxes say when they refuse something.
const REFUSALS: &[&str] =
    &["read-only file system", "operation not permitted", "permission denied", "read-only sandbox"];

/// What to do about the way a run ended, if there is something.
pub(crate) fn of_run(completed: &Completed) -> Option<String> {
    let error = completed.error.as_deref().unwrap_or_default();
    let hint = match completed.reason.as_ref()? {
        Reason::EngineMissing => {
            format!("install it with `{INSTALL}`, or name it with --codex-bin PATH")
        }
        Reason::EngineTooOld => format!("update it with `{INSTALL}@latest`"),
        Reason::Auth => "log in with `codex login`".to_owned(),
        Reason::SessionBusy => busy(completed),
        Reason::SessionNotFound => {
            "`takopi sessions` lists the sessions of this machine".to_owned()
        }
        Reason::ContextTooLong => "begin a new session: leave out --resume".to_owned(),
        Reason::UsageLimit | Reason::RateLimit | Reason::Overloaded => "try again later".to_owned(),
        Reason::TimeoutIdle => "give it longer with --idle-timeout".to_owned(),
        Reason::TimeoutWall => "give it longer with --timeout".to_owned(),
        Reason::SpawnFailed | Reason::ProcessDied => {
            "`takopi doctor` looks for the cause".to_owned()
        }
        _ => return None,
    };
    // Errors may bring their own advice.
    let quoted = hint.split('`').nth(1);
    (!quoted.is_some_and(|command| error.contains(command))).then_some(hint)
}

fn busy(completed: &Completed) -> String {
    let holder = completed
        .resume
        .as_ref()
        .and_then(|token| Host::global().ok()?.file_locks().holder(&SessionKey::new(token)));
    let wait = "wait longer with --wait, or without end by leaving it out";
    match holder {
        Some(holder) => format!("{wait}; {}", held(&holder)),
        None => wait.to_owned(),
    }
}

/// Who holds a session, and since when.
pub(crate) fn held(holder: &Holder) -> String {
    let since =
        i64::try_from(holder.since).ok().and_then(|since| Timestamp::from_second(since).ok());
    match since {
        Some(since) => {
            let since = since.to_zoned(TimeZone::system()).strftime("%H:%M:%S");
            format!("held by pid {} since {since}", holder.pid)
        }
        None => format!("held by pid {}", holder.pid),
    }
}

/// What to do when the sandbox kept the agent from something.
pub(crate) fn of_sandbox(progress: &Progress, sandbox: Option<&str>) -> Option<&'static str> {
    if sandbox.is_some_and(|sandbox| sandbox != "read-only") {
        return None;
    }
    let refused = progress.actions().any(|tracked| {
        let action = &tracked.action;
        let could_write = matches!(action.kind, ActionKind::Command | ActionKind::FileChange);
        could_write && tracked.standing == Standing::Failed && {
            let detail = serde_json::to_string(&action.detail).unwrap_or_default().to_lowercase();
            REFUSALS.iter().any(|refusal| detail.contains(refusal))
        }
    });
    refused
        .then_some("the agent may only read here; --sandbox workspace-write lets it change files")
}

/// What to do when the agent asked and nobody could answer.
pub(crate) fn of_silence(progress: &Progress, could_ask: bool) -> Option<&'static str> {
    let declined = progress.actions().any(|tracked| {
        tracked.action.kind == ActionKind::Approval && tracked.standing == Standing::Failed
    });
    (declined && !could_ask)
        .then_some("the agent asked for leave and got none; --approve accept gives it")
}
