//! Hints: what a person can do about a run that failed.

use futures::FutureExt as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use takopi_bridge::progress::{ActionStatus, Progress};
use takopi_core::catalog::EngineEntry;
use takopi_core::locks::{Holder, SessionKey};
use takopi_core::{ActionKind, Completed, Host, Reason, ResumeToken};

use crate::{engines, resume};

/// What commands print when a sandbox refuses something.
const REFUSALS: &[&str] =
    &["read-only file system", "operation not permitted", "permission denied", "read-only sandbox"];

/// What to do about a failed run: the engine's own hint, or a general one.
pub(crate) fn of_run(completed: &Completed) -> Option<String> {
    let error = completed.error.as_deref().unwrap_or_default();
    let entry = engines::find(completed.engine.as_str()).ok();
    let hint = entry.and_then(|entry| entry.hint(completed)).or_else(|| general(completed))?;
    let hint = match another(completed) {
        Some(another) => format!("{hint}; {another}"),
        None => hint,
    };
    // The error may contain the advice already.
    let quoted = hint.split('`').nth(1);
    (!quoted.is_some_and(|command| error.contains(command))).then_some(hint)
}

/// What to use in place of an engine that is missing: another one that is installed. A session belongs to its
/// engine.
fn another(completed: &Completed) -> Option<String> {
    if completed.reason != Some(Reason::EngineMissing) || completed.resume.is_some() {
        return None;
    }
    let mut others = engines::all().filter(|entry| entry.id() != completed.engine);
    // Of those that need no program, none is meant for work.
    let installed =
        others.find(|entry| entry.id() != takopi_core::demo::DEMO && entry.is_installed())?;
    Some(format!("{} is installed: choose it with --engine {}", installed.title(), installed.id()))
}

/// The hint for a reason that is the same for every engine.
fn general(completed: &Completed) -> Option<String> {
    let hint = match completed.reason.as_ref()? {
        Reason::SessionBusy => return Some(busy(completed)),
        Reason::SessionNotFound if resume::stores(&completed.engine) => {
            "list the stored sessions with `takopi sessions`"
        }
        Reason::ContextTooLong => "start a new session: omit --resume",
        Reason::UsageLimit | Reason::RateLimit | Reason::Overloaded => "try again later",
        Reason::NoWorker => "`takopi fleet status` shows the workers and what they offer",
        Reason::TimeoutIdle => "raise the limit with --idle-timeout",
        Reason::TimeoutWall => "raise the limit with --timeout",
        Reason::SpawnFailed | Reason::ProcessDied => "check the installation with `takopi doctor`",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn busy(completed: &Completed) -> String {
    let holder = completed.resume.as_ref().and_then(|token| holder(&Host::global().ok()?, token));
    let wait = "wait longer with --wait, or without a limit by omitting it";
    match holder {
        Some(holder) => format!("{wait}; {}", held(&holder)),
        None => wait.to_owned(),
    }
}

/// The holder of a session's lock. A lock service that does not answer at once is not waited for.
pub(crate) fn holder(host: &Host, token: &ResumeToken) -> Option<Holder> {
    host.session_locks().holder(&SessionKey::new(token)).now_or_never().flatten()
}

/// The holder of a session and since when, for a message.
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

/// What to do when the sandbox seems to have refused something.
pub(crate) fn of_sandbox(
    entry: &dyn EngineEntry,
    progress: &Progress,
    sandbox: Option<&str>,
) -> Option<String> {
    let hint = entry.sandbox_hint(sandbox)?;
    let refused = progress.actions().any(|tracked| {
        let action = &tracked.action;
        let can_write = matches!(action.kind, ActionKind::Command | ActionKind::FileChange);
        can_write && tracked.status == ActionStatus::Failed && {
            let output = action.detail.get("output_tail").and_then(Value::as_str);
            let texts = [output, tracked.message.as_deref()];
            let text = texts.into_iter().flatten().collect::<String>().to_lowercase();
            REFUSALS.iter().any(|refusal| text.contains(refusal))
        }
    });
    refused.then_some(hint)
}

/// What to do when approval requests were declined because no person could decide them.
pub(crate) fn of_declined(entry: Option<&dyn EngineEntry>, progress: &Progress) -> Option<String> {
    let declined = progress.actions().any(|tracked| {
        // A permission mode or a rule may have declined too, and would again.
        let by_option = tracked.message.as_deref().is_some_and(|it| it.contains("--approve deny"));
        let is_approval = tracked.action.kind == ActionKind::Approval;
        is_approval && tracked.status == ActionStatus::Failed && by_option
    });
    let edits = entry.and_then(EngineEntry::edits_hint);
    let edits = edits.map(|edits| format!(", {edits}")).unwrap_or_default();
    declined.then(|| {
        let asked = "the agent asked for approval and was declined";
        format!("{asked}; --approve accept accepts every request{edits}")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use takopi_core::{Action, ActionEvent, Phase};

    use super::*;

    fn hint(reason: Reason, error: &str) -> Option<String> {
        of_run(&Completed::failure("codex", reason, error))
    }

    #[test]
    fn failures_that_a_person_can_repair_have_a_hint() {
        assert_eq!(hint(Reason::Auth, "refused").as_deref(), Some("log in with `codex login`"));
        assert!(hint(Reason::EngineMissing, "").is_some_and(|hint| hint.contains("npm install")));
        assert!(hint(Reason::SessionBusy, "").is_some_and(|hint| hint.contains("--wait")));
        assert_eq!(hint(Reason::EngineFailed, "the model said no"), None);
        assert_eq!(hint(Reason::Interrupted, "interrupted"), None);
    }

    #[test]
    fn advice_that_is_in_the_error_is_not_repeated() {
        assert_eq!(hint(Reason::Auth, "not logged in; run `codex login`"), None);
    }

    #[test]
    fn a_refused_write_gives_a_hint_about_the_sandbox() {
        let failed = |output: &str| {
            let action =
                Action::new("1", ActionKind::Command, "touch a").with("output_tail", output);
            let mut progress = Progress::default();
            let event = ActionEvent::new("codex", action, Phase::Completed).ok(false);
            progress.apply(&event.into(), Duration::ZERO);
            progress
        };
        let refused = failed("touch: cannot touch 'a': Read-only file system\n");
        let of_sandbox =
            |progress, sandbox| super::of_sandbox(&takopi_codex::CodexEntry, progress, sandbox);
        assert!(of_sandbox(&refused, None).is_some());
        assert!(of_sandbox(&refused, Some("read-only")).is_some());
        assert!(of_sandbox(&refused, Some("workspace-write")).is_none());
        assert!(of_sandbox(&failed("no such file"), None).is_none());
    }
}
