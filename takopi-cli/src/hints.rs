//! What a person can do about a run that failed.

use futures::FutureExt as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use takopi_bridge::progress::{Progress, Standing};
use takopi_core::locks::{Holder, SessionKey};
use takopi_core::{ActionKind, Completed, Host, Reason, ResumeToken};

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
    let holder = completed.resume.as_ref().and_then(|token| holder(&Host::global().ok()?, token));
    let wait = "wait longer with --wait, or without end by leaving it out";
    match holder {
        Some(holder) => format!("{wait}; {}", held(&holder)),
        None => wait.to_owned(),
    }
}

/// The holder of a session's lock. Lock files answer at once; a lock service that does not is not
/// waited for.
pub(crate) fn holder(host: &Host, token: &ResumeToken) -> Option<Holder> {
    host.session_locks().holder(&SessionKey::new(token)).now_or_never().flatten()
}

/// The holder of a session in words, and since when.
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

/// What to do when the sandbox seems to have kept the agent from something.
pub(crate) fn of_sandbox(progress: &Progress, sandbox: Option<&str>) -> Option<&'static str> {
    // Codex's own default is to read only.
    if sandbox.is_some_and(|sandbox| sandbox != "read-only") {
        return None;
    }
    let refused = progress.actions().any(|tracked| {
        let action = &tracked.action;
        let could_write = matches!(action.kind, ActionKind::Command | ActionKind::FileChange);
        could_write && tracked.standing == Standing::Failed && {
            let output = action.detail.get("output_tail").and_then(Value::as_str);
            let said = [output, tracked.message.as_deref()];
            let said = said.into_iter().flatten().collect::<String>().to_lowercase();
            REFUSALS.iter().any(|refusal| said.contains(refusal))
        }
    });
    refused.then_some(
        "if the agent may only read here: --sandbox workspace-write lets it change files",
    )
}

/// What to do when the agent asked and nobody could answer.
pub(crate) fn of_silence(progress: &Progress, could_ask: bool) -> Option<&'static str> {
    let declined = progress.actions().any(|tracked| {
        tracked.action.kind == ActionKind::Approval && tracked.standing == Standing::Failed
    });
    (declined && !could_ask).then_some(
        "the agent asked for approval and was declined; --approve accept accepts everything",
    )
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
    fn what_a_person_can_act_on_comes_with_a_hint() {
        assert_eq!(hint(Reason::Auth, "refused").as_deref(), Some("log in with `codex login`"));
        assert!(hint(Reason::EngineMissing, "").is_some_and(|hint| hint.contains("npm install")));
        assert!(hint(Reason::SessionBusy, "").is_some_and(|hint| hint.contains("--wait")));
        assert_eq!(hint(Reason::EngineFailed, "the model said no"), None);
        assert_eq!(hint(Reason::Interrupted, "interrupted"), None);
    }

    #[test]
    fn advice_is_not_given_twice() {
        assert_eq!(hint(Reason::Auth, "not logged in; run `codex login`"), None);
    }

    #[test]
    fn a_write_that_was_refused_hints_at_the_sandbox() {
        let failed = |output: &str| {
            let action =
                Action::new("1", ActionKind::Command, "touch a").with("output_tail", output);
            let mut progress = Progress::default();
            let event = ActionEvent::new("codex", action, Phase::Completed).ok(false);
            progress.apply(&event.into(), Duration::ZERO);
            progress
        };
        let refused = failed("touch: cannot touch 'a': Read-only file system\n");
        assert!(of_sandbox(&refused, None).is_some());
        assert!(of_sandbox(&refused, Some("read-only")).is_some());
        assert!(of_sandbox(&refused, Some("workspace-write")).is_none());
        assert!(of_sandbox(&failed("no such file"), None).is_none());
    }
}
