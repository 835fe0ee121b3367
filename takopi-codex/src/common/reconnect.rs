//! Notices that Codex lost its connection to the model and tries again.
//!
//! All of them are news of one action, `codex.reconnect`: a loop of fifty attempts is one note that
//! changes, not fifty.

use takopi_core::model::{Action, ActionEvent, ActionKind, Level, Phase};
use takopi_core::redact::redact;

use crate::CODEX;

/// The id of the action.
pub(crate) const RECONNECT_ID: &str = "codex.reconnect";

/// One notice: `Reconnecting... 2/5`, `Reconnecting... 2/5 (why)`, and since 0.166
/// `Reconnecting... waiting for network (why)`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// What stands behind the dots, without the reason.
    state: String,
    /// Which attempt of how many.
    count: Option<(u32, u32)>,
    reason: Option<String>,
}

impl Notice {
    /// Reads a message; `details` is where app-server puts the reason.
    pub(crate) fn parse(message: &str, details: Option<&str>) -> Option<Self> {
        // Redacted as a whole: a part of a credential is not recognized as one.
        let message = redact(message);
        let rest = message.trim().strip_prefix("Reconnecting")?;
        let rest = rest.strip_prefix("...").or_else(|| rest.strip_prefix('…'))?;
        let (state, reason) = match rest.split_once('(') {
            Some((state, reason)) => (state, reason.strip_suffix(')').or(Some(reason))),
            None => (rest, None),
        };
        let state = state.trim();
        let count = state
            .split_once('/')
            .and_then(|(attempt, max)| Some((attempt.parse().ok()?, max.parse().ok()?)));
        let reason = details.or(reason).map(str::trim).filter(|reason| !reason.is_empty());
        Some(Self { state: state.to_owned(), count, reason: reason.map(str::to_owned) })
    }

    fn action(&self) -> Action {
        let title = format!("Reconnecting... {}", self.state);
        let mut action = Action::new(RECONNECT_ID, ActionKind::Note, title.trim_end());
        if let Some((attempt, max)) = self.count {
            action = action.with("attempt", attempt).with("max", max);
        }
        if let Some(reason) = &self.reason {
            action = action.with("reason", reason.as_str());
        }
        action
    }
}

/// Whether Codex is reconnecting.
#[derive(Debug, Default)]
pub(crate) struct Reconnect {
    open: Option<Action>,
}

impl Reconnect {
    /// Opens or updates the action. The first attempt of an episode opens it again.
    pub(crate) fn notice(&mut self, notice: &Notice) -> ActionEvent {
        let begins = match notice.count {
            Some((attempt, _)) => attempt <= 1,
            None => self.open.is_none(),
        };
        let action = notice.action();
        self.open = Some(action.clone());
        let phase = if begins { Phase::Started } else { Phase::Updated };
        ActionEvent::new(CODEX, action, phase).level(Level::Info)
    }

    /// Closes the action if it is open: the connection is back, or it was given up.
    pub(crate) fn close(&mut self, ok: bool) -> Option<ActionEvent> {
        let action = self.open.take()?;
        let event = ActionEvent::new(CODEX, action, Phase::Completed).ok(ok);
        // That the connection is back shows that the agent goes on; a notice does not.
        Some(if ok { event } else { event.level(Level::Info) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_of_every_release_are_read() {
        let notice = |state: &str, count, reason: Option<&str>| {
            let (state, reason) = (state.to_owned(), reason.map(str::to_owned));
            Some(Notice { state, count, reason })
        };
        for (message, details, expected) in [
            ("Reconnecting... 1/5", None, notice("1/5", Some((1, 5)), None)),
            (
                "Reconnecting... 2/5 (lost (again))",
                None,
                notice("2/5", Some((2, 5)), Some("lost (again)")),
            ),
            ("Reconnecting... 2/5", Some("lost"), notice("2/5", Some((2, 5)), Some("lost"))),
            ("Reconnecting... 2/5", Some(""), notice("2/5", Some((2, 5)), None)),
            (
                "Reconnecting... waiting for network (Connection failed: error sending request)",
                None,
                notice(
                    "waiting for network",
                    None,
                    Some("Connection failed: error sending request"),
                ),
            ),
            ("Reconnecting...", None, notice("", None, None)),
            ("Reconnecting... 2/5 (cut", None, notice("2/5", Some((2, 5)), Some("cut"))),
            (
                r#"Reconnecting... 2/5: token="ab(cd" was refused"#,
                None,
                notice(r#"2/5: token="[redacted]" was refused"#, None, None),
            ),
            ("Reconnecting to the database", None, None),
            ("stream disconnected", Some("Reconnecting... 1/5"), None),
            ("", None, None),
        ] {
            assert_eq!(Notice::parse(message, details), expected, "{message}");
        }
    }

    #[test]
    fn an_episode_is_one_action_and_a_later_one_opens_it_again() {
        let mut reconnect = Reconnect::default();
        let mut phase = |message| reconnect.notice(&Notice::parse(message, None).unwrap()).phase;
        assert_eq!(phase("Reconnecting... 1/5"), Phase::Started);
        assert_eq!(phase("Reconnecting... 2/5 (why)"), Phase::Updated);
        assert_eq!(phase("Reconnecting... waiting for network"), Phase::Updated);
        assert_eq!(phase("Reconnecting... 1/5"), Phase::Started);
        assert_eq!(reconnect.close(true).unwrap().ok, Some(true));
        assert!(reconnect.close(true).is_none());
        let waiting = Notice::parse("Reconnecting... waiting for network", None).unwrap();
        assert_eq!(reconnect.notice(&waiting).phase, Phase::Started);
    }
}
