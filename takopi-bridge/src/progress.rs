//! The progress tracker: folds the events of a run into the state that presenters show.
//!
//! It does no I/O and reads no clock; the caller passes the time of an event. Promises:
//! - an action is identified by its id and keeps its position, in the order of first events; an
//!   action with only a completed event counts like any other;
//! - turns and telemetry are not steps;
//! - of messages that are streamed the last one is kept apart, as the text that may become the answer. Once
//!   the agent does something else, it was a remark, and becomes a note at the position of its first piece;
//! - of closed actions the last [`REMEMBERED`] are kept, of older ones only the id: a later event
//!   of one neither counts it twice nor moves it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use takopi_core::{
    Action, ActionEvent, ActionKind, Completed, EngineId, Level, Phase, ResumeToken, TakopiEvent,
    Usage,
};

/// How many closed actions are remembered. Open ones always are.
pub const REMEMBERED: usize = 256;

/// The status of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActionStatus {
    /// It started.
    Running,
    /// It is running and was updated.
    Updated,
    /// It ended and did not fail.
    Done,
    /// It ended and failed.
    Failed,
}

impl ActionStatus {
    /// Whether it has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Updated)
    }

    /// The status that an event gives its action.
    pub fn of(event: &ActionEvent) -> Self {
        match (event.phase, event.ok) {
            (Phase::Started, _) => Self::Running,
            (Phase::Updated, _) => Self::Updated,
            (Phase::Completed, Some(false)) => Self::Failed,
            (Phase::Completed, _) => Self::Done,
        }
    }
}

/// An action and its state.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Tracked {
    /// The action as of its last event.
    pub action: Action,
    /// Its status.
    pub status: ActionStatus,
    /// The message of its last event.
    pub message: Option<String>,
    /// The level of its last event, if it has one.
    pub level: Option<Level>,
    /// When it started, as time since the start of the run.
    pub began: Duration,
}

/// The progress of the agent's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan<'a> {
    /// Steps that are done.
    pub done: u64,
    /// Steps in total.
    pub total: u64,
    /// The plan in one line, as the engine wrote it.
    pub title: &'a str,
}

/// The state of a run. See the [module](self).
#[derive(Debug, Clone, Default)]
pub struct Progress {
    engine: Option<EngineId>,
    title: Option<String>,
    resume: Option<ResumeToken>,
    /// By position, which is assigned at the first event and never again.
    actions: BTreeMap<u64, Tracked>,
    places: HashMap<String, u64>,
    closed: usize,
    steps: usize,
    streamed: Option<Streamed>,
    outcome: Option<Completed>,
}

/// The last message that was streamed.
#[derive(Debug, Clone)]
struct Streamed {
    id: String,
    engine: EngineId,
    text: String,
    is_complete: bool,
    began: Duration,
}

impl Progress {
    /// Applies an event. `at` is the time since the run started.
    pub fn apply(&mut self, event: &TakopiEvent, at: Duration) {
        match event {
            TakopiEvent::Started(started) => {
                self.engine = Some(started.engine.clone());
                self.title.clone_from(&started.title);
                self.resume = Some(started.resume.clone());
            }
            TakopiEvent::Action(event) => self.act(event, at),
            TakopiEvent::Completed(completed) => {
                self.engine.get_or_insert_with(|| completed.engine.clone());
                // A session that is not stored cannot be resumed.
                if completed.resume.is_some() || completed.ok {
                    self.resume.clone_from(&completed.resume);
                }
                self.outcome = Some(Completed::clone(completed));
            }
            // Unknown events of later versions are ignored.
            _ => {}
        }
    }

    fn act(&mut self, event: &ActionEvent, at: Duration) {
        self.engine.get_or_insert_with(|| event.engine.clone());
        if event.action.kind == ActionKind::Answer {
            return self.stream(event, at);
        }
        let follows = is_step(&event.action.kind) && !self.places.contains_key(&event.action.id);
        if follows && self.streamed.as_ref().is_some_and(|streamed| streamed.is_complete) {
            self.keep_remark();
        }
        let next = self.places.len() as u64;
        let place = *self.places.entry(event.action.id.clone()).or_insert_with(|| {
            if is_step(&event.action.kind) {
                self.steps += 1;
            }
            next
        });
        let earlier = self.actions.get(&place);
        if earlier.is_some_and(|earlier| !earlier.status.is_open()) {
            self.closed -= 1;
        }
        let reopened = earlier.is_none_or(|earlier| !earlier.status.is_open());
        let began = if reopened { at } else { earlier.map_or(at, |earlier| earlier.began) };
        let mut action = event.action.clone();
        if let Some(earlier) = earlier
            && action.title.is_empty()
        {
            action.title.clone_from(&earlier.action.title);
        }
        let status = ActionStatus::of(event);
        self.actions.insert(
            place,
            Tracked { action, status, message: event.message.clone(), level: event.level, began },
        );
        if !status.is_open() {
            self.closed += 1;
            self.forget();
        }
    }

    /// Adds a piece to the message that is streamed. Another message makes the last one a remark.
    fn stream(&mut self, event: &ActionEvent, at: Duration) {
        if self.streamed.as_ref().is_none_or(|streamed| streamed.id != event.action.id) {
            self.keep_remark();
            // Its position, should it turn out to be a remark.
            let next = self.places.len() as u64;
            self.places.entry(event.action.id.clone()).or_insert(next);
            self.streamed = Some(Streamed {
                id: event.action.id.clone(),
                engine: event.engine.clone(),
                text: String::new(),
                is_complete: false,
                began: at,
            });
        }
        if let Some(streamed) = &mut self.streamed {
            streamed.text.push_str(event.answer_piece().unwrap_or_default());
            streamed.is_complete = event.phase == Phase::Completed;
        }
    }

    /// What was streamed is not the answer: it becomes a note.
    fn keep_remark(&mut self) {
        let Some(Streamed { id, engine, text, began, .. }) = self.streamed.take() else { return };
        if text.trim().is_empty() {
            return;
        }
        let place = self.places.get(&id).copied().unwrap_or(self.places.len() as u64);
        let note = Action::new(id, ActionKind::Note, text).with("phase", "commentary");
        let event = ActionEvent::new(engine, note, Phase::Completed).ok(true);
        self.steps += 1;
        self.closed += 1;
        self.actions.insert(
            place,
            Tracked {
                status: ActionStatus::of(&event),
                action: event.action,
                message: None,
                level: None,
                began,
            },
        );
        self.forget();
    }

    /// The text of the last message that was streamed, for runs that ask for it: the beginning of the
    /// answer, or of a remark. Empty if nothing was streamed since the agent did something else.
    pub fn streamed(&self) -> &str {
        self.streamed.as_ref().map_or("", |streamed| streamed.text.as_str())
    }

    /// Forgets the oldest closed actions beyond the limit.
    fn forget(&mut self) {
        while self.closed > REMEMBERED {
            let oldest = self.actions.iter().find(|(_, tracked)| !tracked.status.is_open());
            let Some((&place, _)) = oldest else { return };
            self.actions.remove(&place);
            self.closed -= 1;
        }
    }

    /// The engine, once an event named it.
    pub fn engine(&self) -> Option<&EngineId> {
        self.engine.as_ref()
    }

    /// The display name of the engine: its title, else its id.
    pub fn label(&self) -> Option<&str> {
        self.title.as_deref().or(self.engine.as_ref().map(EngineId::as_str))
    }

    /// Whether the engine confirmed a session, or the run has ended.
    pub fn is_under_way(&self) -> bool {
        self.resume.is_some() || self.outcome.is_some()
    }

    /// The session, once it is known.
    pub fn resume(&self) -> Option<&ResumeToken> {
        self.resume.as_ref()
    }

    /// The actions, in the order of their first events.
    pub fn actions(&self) -> impl DoubleEndedIterator<Item = &Tracked> {
        self.actions.values()
    }

    /// The actions that have not ended.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = &Tracked> {
        self.actions().filter(|tracked| tracked.status.is_open())
    }

    /// How many steps the agent has started.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The agent's plan, if it has one.
    pub fn plan(&self) -> Option<Plan<'_>> {
        self.actions().rev().find_map(|tracked| plan_of(&tracked.action))
    }

    /// How the run ended, once it has.
    pub fn outcome(&self) -> Option<&Completed> {
        self.outcome.as_ref()
    }

    /// The answer, once there is one.
    pub fn answer(&self) -> Option<&str> {
        self.outcome.as_ref().map(|outcome| outcome.answer.as_str())
    }

    /// The tokens used, once they are known.
    pub fn usage(&self) -> Option<&Usage> {
        self.outcome.as_ref()?.usage.as_ref()
    }
}

/// Whether it counts as a step.
fn is_step(kind: &ActionKind) -> bool {
    !matches!(kind, ActionKind::Turn | ActionKind::Telemetry)
}

/// The plan in an action, if it has one.
pub(crate) fn plan_of(action: &Action) -> Option<Plan<'_>> {
    if action.kind != ActionKind::Note {
        return None;
    }
    let figure = |key| action.detail.get(key).and_then(serde_json::Value::as_u64);
    Some(Plan { done: figure("done")?, total: figure("total")?, title: &action.title })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takopi_core::Started;

    use super::*;

    const ZERO: Duration = Duration::ZERO;

    fn event(id: &str, kind: ActionKind, phase: Phase) -> TakopiEvent {
        ActionEvent::new("lab", Action::new(id, kind, format!("title of {id}")), phase).into()
    }

    fn command(id: &str, phase: Phase) -> TakopiEvent {
        event(id, ActionKind::Command, phase)
    }

    fn fold(events: impl IntoIterator<Item = TakopiEvent>) -> Progress {
        let mut progress = Progress::default();
        for (second, event) in (0..).zip(events) {
            progress.apply(&event, Duration::from_secs(second));
        }
        progress
    }

    fn ids(progress: &Progress) -> Vec<&str> {
        progress.actions().map(|tracked| tracked.action.id.as_str()).collect()
    }

    #[test]
    fn actions_keep_the_place_of_their_first_sight() {
        let progress = fold([
            command("a", Phase::Started),
            command("b", Phase::Started),
            command("a", Phase::Completed),
            command("c", Phase::Completed),
            command("b", Phase::Updated),
        ]);
        assert_eq!(ids(&progress), ["a", "b", "c"]);
        assert_eq!(progress.steps(), 3);
        let open: Vec<_> = progress.open().collect();
        assert_eq!((open.len(), open[0].status), (1, ActionStatus::Updated));
        assert_eq!(open[0].began, Duration::from_secs(1));
    }

    #[test]
    fn turns_and_figures_are_not_steps() {
        let progress = fold([
            event("turn_0", ActionKind::Turn, Phase::Started),
            event("limits", ActionKind::Telemetry, Phase::Completed),
            event("said", ActionKind::Note, Phase::Completed),
        ]);
        assert_eq!(progress.steps(), 1);
    }

    #[test]
    fn what_is_streamed_is_no_step_until_something_follows_it() {
        let piece = |id: &str, phase, text: &str| {
            let action = Action::new(id, ActionKind::Answer, "answer");
            TakopiEvent::from(ActionEvent::new("lab", action, phase).message(text))
        };
        let mut progress = fold([
            piece("m1", Phase::Started, ""),
            command("a", Phase::Started),
            piece("m1", Phase::Updated, "I will "),
            piece("m1", Phase::Updated, "look."),
            command("a", Phase::Completed),
        ]);
        assert_eq!((progress.streamed(), progress.steps()), ("I will look.", 1));
        progress.apply(&piece("m1", Phase::Completed, ""), ZERO);
        assert_eq!(progress.streamed(), "I will look.", "nothing follows it yet");
        progress.apply(&event("limits", ActionKind::Telemetry, Phase::Completed), ZERO);
        assert_eq!(progress.streamed(), "I will look.", "figures are not something that it does");
        progress.apply(&command("b", Phase::Started), ZERO);
        assert_eq!((progress.streamed(), progress.steps()), ("", 3));
        progress.apply(&piece("m2", Phase::Updated, "Done"), ZERO);
        progress.apply(&piece("m3", Phase::Updated, "Really"), ZERO);
        assert_eq!(progress.streamed(), "Really");
        let shown: Vec<_> = progress.actions().map(|tracked| &*tracked.action.title).collect();
        assert_eq!(
            shown,
            ["I will look.", "title of a", "title of limits", "title of b", "Done"],
            "each at the position of its first piece"
        );
    }

    #[test]
    fn a_later_start_opens_a_closed_action_again() {
        let reconnect = |phase| event("codex.reconnect", ActionKind::Note, phase);
        let progress = fold([
            reconnect(Phase::Started),
            reconnect(Phase::Completed),
            reconnect(Phase::Started),
        ]);
        let open: Vec<_> = progress.open().collect();
        assert_eq!(open[0].began, Duration::from_secs(2), "a new episode begins anew");
        assert_eq!(progress.steps(), 1);
    }

    #[test]
    fn a_failed_action_is_distinguished_from_a_completed_one() {
        let mut progress = Progress::default();
        let action = Action::new("a", ActionKind::Command, "false");
        let failed = ActionEvent::new("lab", action, Phase::Completed).ok(false).message("why");
        progress.apply(&failed.into(), ZERO);
        let tracked = progress.actions().next().unwrap();
        assert_eq!(
            (tracked.status, tracked.message.as_deref()),
            (ActionStatus::Failed, Some("why"))
        );
    }

    #[test]
    fn the_session_and_the_outcome_are_kept() {
        let token = ResumeToken::new("lab", "1");
        let mut usage = Usage::default();
        usage.output_tokens = 7;
        let mut progress = fold([Started::new(token.clone()).title("Lab").into()]);
        assert_eq!((progress.label(), progress.resume()), (Some("Lab"), Some(&token)));
        let end = Completed::success("lab", "42").resume(Some(token)).usage(Some(usage));
        progress.apply(&end.into(), ZERO);
        assert_eq!(progress.answer(), Some("42"));
        assert_eq!(progress.usage().map(|usage| usage.output_tokens), Some(7));
    }

    #[test]
    fn the_plan_is_the_latest_one() {
        let plan = |id: &str, done: u64| {
            let action = Action::new(id, ActionKind::Note, format!("todo {done}/3: next"));
            let action = action.with("done", done).with("total", 3);
            TakopiEvent::from(ActionEvent::new("lab", action, Phase::Updated))
        };
        let progress = fold([plan("old", 3), plan("new", 1), plan("new", 2)]);
        assert_eq!(progress.plan().map(|plan| (plan.done, plan.total)), Some((2, 3)));
    }

    #[test]
    fn old_actions_are_forgotten_and_open_ones_are_not() {
        let count = REMEMBERED * 3;
        let closed = |n: usize| command(&format!("c{n}"), Phase::Completed);
        let mut progress = fold([command("open", Phase::Started)]);
        (0..count).for_each(|n| progress.apply(&closed(n), ZERO));
        assert_eq!(progress.actions().count(), REMEMBERED + 1);
        assert_eq!(ids(&progress)[0], "open");
        assert_eq!(progress.steps(), count + 1);
        progress.apply(&closed(0), ZERO);
        assert_eq!(progress.steps(), count + 1, "a forgotten action is not counted twice");
    }

    proptest! {
        #[test]
        fn the_count_of_steps_is_the_count_of_ids(
            heard in proptest::collection::vec((0..20_u8, 0..3_u8), 0..200)
        ) {
            let events = heard.iter().map(|(id, phase)| {
                let phase = [Phase::Started, Phase::Updated, Phase::Completed][usize::from(*phase)];
                command(&id.to_string(), phase)
            });
            let progress = fold(events);
            let mut distinct: Vec<u8> = Vec::new();
            for (id, _) in &heard {
                if !distinct.contains(id) {
                    distinct.push(*id);
                }
            }
            prop_assert_eq!(progress.steps(), distinct.len());
            let expected: Vec<String> = distinct.iter().map(ToString::to_string).collect();
            prop_assert_eq!(ids(&progress), expected);
        }
    }
}
