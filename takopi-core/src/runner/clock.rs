//! The limits of a run: idle and wall clock.
//!
//! Pure: moments in, deadlines out. Every sign of activity restarts the idle limit. It is paused while
//! a tool runs (until it completes or a later item appears), while an approval waits, and while the
//! consumer does not read. Neither limit counts while the run waits for a lock.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::RunError;
use crate::model::{Action, ActionEvent, ActionKind, Phase, Reason};

pub(super) struct Clock {
    idle: Option<Duration>,
    wall: Option<Duration>,
    /// When the engine was started, moved on by the time spent waiting for locks.
    started: Instant,
    /// When the engine was last active.
    active: Instant,
    /// Items that began and are not completed.
    open: HashSet<String>,
    /// The latest item, if it is a tool and open.
    tool: Option<String>,
    idle_pauses: usize,
    waiting_since: Option<Instant>,
}

impl Clock {
    pub(super) fn new(idle: Option<Duration>, wall: Option<Duration>, now: Instant) -> Self {
        Self {
            idle,
            wall,
            started: now,
            active: now,
            open: HashSet::new(),
            tool: None,
            idle_pauses: 0,
            waiting_since: None,
        }
    }

    /// The engine is started now.
    pub(super) fn start(&mut self, now: Instant) {
        (self.started, self.active) = (now, now);
    }

    pub(super) fn renew_idle(&mut self, now: Instant) {
        self.active = now;
    }

    /// Notes from an action whether a tool runs. Returns whether the deadline moved nearer.
    pub(super) fn observe(&mut self, event: &ActionEvent) -> bool {
        let Action { id, kind, .. } = &event.action;
        if self.idle.is_none() || !is_item(kind) {
            return false;
        }
        let was_running = self.tool.is_some();
        if event.phase == Phase::Completed {
            // An earlier item that completes is no later one that appears.
            if !self.open.remove(id) || self.tool.as_ref() == Some(id) {
                self.tool = None;
            }
        } else if self.open.insert(id.clone()) {
            self.tool = kind.is_tool().then(|| id.clone());
        }
        was_running && self.tool.is_none()
    }

    /// No tool runs any more. Returns whether the deadline moved nearer.
    pub(super) fn no_tool_running(&mut self) -> bool {
        self.tool.take().is_some()
    }

    pub(super) fn pause_idle(&mut self) {
        self.idle_pauses += 1;
    }

    pub(super) fn resume_idle(&mut self, now: Instant) {
        self.idle_pauses = self.idle_pauses.saturating_sub(1);
        self.active = now;
    }

    /// A lock is waited for.
    pub(super) fn wait(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// The wait is over.
    pub(super) fn go_on(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.started += now.saturating_duration_since(since);
            self.active = now;
        }
    }

    /// When the first limit will be reached, if nothing changes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.waiting_since.is_some() {
            return None;
        }
        let wall = self.wall.and_then(|wall| self.started.checked_add(wall));
        [self.idle_deadline(), wall].into_iter().flatten().min()
    }

    fn idle_deadline(&self) -> Option<Instant> {
        if self.idle_pauses > 0 || self.tool.is_some() {
            return None;
        }
        self.idle.and_then(|idle| self.active.checked_add(idle))
    }

    /// The failure of the limit that is reached, if one is.
    pub(super) fn expired(&self, now: Instant) -> Option<RunError> {
        let deadline = self.deadline().filter(|deadline| *deadline <= now)?;
        match (self.idle, self.wall) {
            (Some(idle), _) if self.idle_deadline() == Some(deadline) => Some(RunError::new(
                Reason::TimeoutIdle,
                format!("the engine sent nothing for {idle:?} (idle limit)"),
            )),
            (_, wall) => Some(RunError::new(
                Reason::TimeoutWall,
                format!(
                    "the run took longer than {:?} (wall-clock limit)",
                    wall.unwrap_or_default()
                ),
            )),
        }
    }
}

/// Whether an action of this kind is a step of the agent. An approval, a warning and telemetry are
/// not: they do not show that an earlier tool is done.
fn is_item(kind: &ActionKind) -> bool {
    !matches!(kind, ActionKind::Approval | ActionKind::Warning | ActionKind::Telemetry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn action(id: &str, kind: ActionKind, phase: Phase) -> ActionEvent {
        ActionEvent::new("lab", Action::new(id, kind, id), phase)
    }

    #[test]
    fn idle_is_renewed_by_every_event_and_named_when_it_fires() {
        let begin = Instant::now();
        let mut clock = Clock::new(Some(10 * SECOND), None, begin);
        assert_eq!(clock.deadline(), Some(begin + 10 * SECOND));
        clock.renew_idle(begin + 5 * SECOND);
        assert!(clock.expired(begin + 14 * SECOND).is_none());
        let RunError { reason, message, .. } = clock.expired(begin + 15 * SECOND).unwrap();
        assert_eq!(reason, Reason::TimeoutIdle);
        assert!(message.contains("10s") && message.contains("idle"), "{message}");
    }

    #[test]
    fn the_limits_count_from_the_start_of_the_engine() {
        let begin = Instant::now();
        for (idle, wall) in [(Some(SECOND), None), (None, Some(SECOND))] {
            let mut clock = Clock::new(idle, wall, begin);
            clock.start(begin + 5 * SECOND);
            assert_eq!(clock.deadline(), Some(begin + 6 * SECOND));
        }
    }

    #[test]
    fn idle_waits_for_an_open_tool_until_it_completes_or_a_later_item_appears() {
        let begin = Instant::now();
        let mut clock = Clock::new(Some(SECOND), None, begin);
        assert!(
            !clock.observe(&action("early", ActionKind::Note, Phase::Completed)),
            "no tool ran"
        );
        assert!(!clock.observe(&action("a", ActionKind::Command, Phase::Started)));
        assert_eq!(clock.deadline(), None);
        assert!(clock.observe(&action("a", ActionKind::Command, Phase::Completed)));
        assert!(clock.deadline().is_some());
        clock.observe(&action("b", ActionKind::Command, Phase::Started));
        clock.observe(&action("n", ActionKind::Note, Phase::Completed));
        assert!(clock.deadline().is_some(), "b went to the background");
        clock.observe(&action("n", ActionKind::Note, Phase::Started));
        assert!(clock.deadline().is_some(), "a note is no work");
    }

    #[test]
    fn idle_waits_for_the_latest_of_several_tools() {
        let mut clock = Clock::new(Some(SECOND), None, Instant::now());
        clock.observe(&action("a", ActionKind::Command, Phase::Started));
        clock.observe(&action("b", ActionKind::Tool, Phase::Started));
        clock.observe(&action("a", ActionKind::Command, Phase::Updated));
        clock.observe(&action("a", ActionKind::Command, Phase::Completed));
        assert_eq!(clock.deadline(), None, "b still runs, and started before a completed");
        assert!(clock.observe(&action("b", ActionKind::Tool, Phase::Completed)));
        assert!(clock.deadline().is_some());
    }

    #[test]
    fn idle_waits_for_a_tool_that_is_only_asked_about_or_warned_of() {
        let mut clock = Clock::new(Some(SECOND), None, Instant::now());
        clock.observe(&action("plan", ActionKind::Note, Phase::Started));
        clock.observe(&action("a", ActionKind::Command, Phase::Started));
        for phase in [Phase::Started, Phase::Completed] {
            clock.observe(&action("ask", ActionKind::Approval, phase));
        }
        clock.observe(&action("w", ActionKind::Warning, Phase::Completed));
        clock.observe(&action("plan", ActionKind::Note, Phase::Updated));
        clock.observe(&action("plan", ActionKind::Note, Phase::Completed));
        assert_eq!(clock.deadline(), None);
    }

    #[test]
    fn the_wall_clock_counts_tools_but_not_waiting_for_a_lock() {
        let begin = Instant::now();
        let mut clock = Clock::new(Some(SECOND), Some(10 * SECOND), begin);
        clock.observe(&action("a", ActionKind::Command, Phase::Started));
        assert_eq!(clock.deadline(), Some(begin + 10 * SECOND));
        clock.wait(begin + SECOND);
        assert_eq!(clock.deadline(), None);
        clock.go_on(begin + 5 * SECOND);
        assert_eq!(clock.deadline(), Some(begin + 14 * SECOND));
        let RunError { reason, message, .. } = clock.expired(begin + 14 * SECOND).unwrap();
        assert_eq!(reason, Reason::TimeoutWall);
        assert!(message.contains("10s") && message.contains("wall"), "{message}");
    }

    #[test]
    fn idle_pauses_while_an_approval_is_open() {
        let begin = Instant::now();
        let mut clock = Clock::new(Some(SECOND), None, begin);
        clock.pause_idle();
        assert_eq!(clock.deadline(), None);
        clock.resume_idle(begin + 9 * SECOND);
        assert_eq!(clock.deadline(), Some(begin + 10 * SECOND));
    }
}
