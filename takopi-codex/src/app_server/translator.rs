//! From what an app-server tells of a turn to takopi's events.
//!
//! Pure: notifications in, events out, no I/O and no clock. Items, errors and ends go through the
//! translation both transports share; what is streamed on top of them (text, output, plans) is
//! gathered and said once a batch, as `updated` events, by [`TurnTranslator::flush`]. How often that
//! is depends on how fast the consumer reads: progress is coalesced, items are not.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use takopi_core::model::{
    Action, ActionEvent, ActionKind, Completed, Level, Phase, Reason, TakopiEvent, Usage,
    UsageScope,
};

use super::message::Notification;
use super::streams::{Stream, Streams};
use crate::CODEX;
use crate::common::{Directory, Figures, Item, Read, Translation};
use crate::failure::Fault;

/// Under this id the plan of a turn is shown.
const PLAN_ID: &str = "codex.plan";
/// Under this id rate limits are told.
const LIMITS_ID: &str = "codex.rate_limits";

/// One turn.
#[derive(Debug)]
pub(super) struct TurnTranslator {
    translation: Translation,
    /// The turn's id, once it is known.
    turn: Option<String>,
    streams: Streams,
    /// The thread's figures before this turn, if they are known.
    baseline: Option<Usage>,
    total: Option<Usage>,
    /// Whether the agent did anything yet.
    agent_heard: bool,
    limits: Option<String>,
    plan: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemTold<'a> {
    #[serde(borrow)]
    item: &'a RawValue,
}

#[derive(Deserialize)]
struct ItemHead<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ErrorTold<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

#[derive(Deserialize)]
struct TurnTold<'a> {
    #[serde(borrow)]
    turn: TurnBody<'a>,
}

#[derive(Deserialize)]
struct TurnBody<'a> {
    #[serde(borrow, default)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageTold<'a> {
    #[serde(borrow)]
    token_usage: UsageBody<'a>,
    #[serde(borrow, default)]
    turn_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct UsageBody<'a> {
    #[serde(borrow)]
    total: &'a RawValue,
    #[serde(borrow)]
    last: &'a RawValue,
}

impl TurnTranslator {
    /// A turn in a directory; `fresh` says that the thread is new and has used nothing.
    pub(super) fn new(title: &str, directory: Directory, fresh: bool) -> Self {
        Self {
            translation: Translation::new(title, directory),
            turn: None,
            streams: Streams::default(),
            baseline: fresh.then(Usage::default),
            total: None,
            agent_heard: false,
            limits: None,
            plan: None,
        }
    }

    /// The turn has this id, and its thread was last told to have used this.
    pub(super) fn named(&mut self, turn: &str, usage_before: Option<&RawValue>) {
        self.turn = Some(turn.to_owned());
        let known = usage_before.and_then(|raw| {
            let told: UsageTold<'_> = serde_json::from_str(raw.get()).ok()?;
            figures(told.token_usage.total)
        });
        self.baseline = known.or(self.baseline.take());
    }

    /// The server confirmed the thread.
    pub(super) fn thread_started(&mut self, id: &str, events: &mut Vec<TakopiEvent>) {
        self.translation.thread_started(id, events);
    }

    /// Whether a tool may be at work.
    pub(super) fn tool_at_work(&self) -> bool {
        self.translation.tool_at_work()
    }

    /// Whether `Completed` was said.
    pub(super) fn is_over(&self) -> bool {
        self.translation.is_over()
    }

    /// Ends the turn from outside.
    pub(super) fn finish(&mut self, completed: Completed, events: &mut Vec<TakopiEvent>) {
        self.close_plan(events);
        self.translation.finish(completed, events);
    }

    /// Translates one notification.
    pub(super) fn told(&mut self, told: &Notification, events: &mut Vec<TakopiEvent>) {
        if self.is_over() {
            return;
        }
        let params = told.params.get();
        match told.method.as_str() {
            "turn/started" => self.translation.turn_started(events),
            "item/started" => self.item(Phase::Started, params, events),
            "item/completed" => self.item(Phase::Completed, params, events),
            "item/agentMessage/delta" => self.streams.add(Stream::Message, params),
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" | "item/plan/delta" => {
                self.streams.add(Stream::Note, params);
            }
            "item/commandExecution/outputDelta" | "item/fileChange/outputDelta" => {
                self.streams.add(Stream::Output, params);
            }
            "item/mcpToolCall/progress" => self.streams.replace(Stream::Progress, params),
            "turn/plan/updated" => self.plan(params, events),
            "thread/tokenUsage/updated" => self.usage(params),
            "account/rateLimits/updated" => self.rate_limits(params, events),
            "error" => {
                if let Ok(ErrorTold { error }) = serde_json::from_str(params) {
                    self.translation.stream_error(&fault(error), events);
                }
            }
            "warning" | "guardianWarning" | "configWarning" => {
                let told: Value = serde_json::from_str(params).unwrap_or_default();
                let text =
                    told.get("message").or_else(|| told.get("summary")).and_then(Value::as_str);
                self.translation
                    .warning(text.unwrap_or("the app-server warns, but not of what"), events);
            }
            "turn/completed" => self.completed(params, events),
            other => tracing::debug!(method = other, "not translated"),
        }
    }

    /// Says what was streamed since the last time.
    pub(super) fn flush(&mut self, events: &mut Vec<TakopiEvent>) {
        if !self.is_over() {
            self.streams.flush(events);
        }
    }

    fn item(&mut self, phase: Phase, params: &str, events: &mut Vec<TakopiEvent>) {
        let Ok(ItemTold { item: raw }) = serde_json::from_str(params) else { return };
        let Ok(Read(Some(item))) = serde_json::from_str::<Read<Item<'_>>>(raw.get()) else {
            return;
        };
        let head: Option<ItemHead<'_>> = serde_json::from_str(raw.get()).ok();
        if phase == Phase::Completed
            && let Some(head) = &head
            && head.kind.as_deref() == Some("agentMessage")
            && head.text.as_deref().is_some_and(is_turn_aborted)
        {
            return self.finish(interrupted(), events);
        }
        self.agent_heard |=
            head.as_ref().is_none_or(|head| head.kind.as_deref() != Some("userMessage"));
        let is_text = head.as_ref().and_then(|head| head.kind.as_deref()).is_some_and(is_text);
        if phase == Phase::Started && is_text {
            // exec tells of these when they are complete; here their text may be streamed before.
            return;
        }
        let before = events.len();
        self.translation.item(phase, item, events);
        let id = head.and_then(|head| head.id).unwrap_or_default();
        if phase == Phase::Completed {
            let closing = self.streams.close(&id);
            let shown = events[before..].iter().any(|event| is_about(event, &id));
            events.extend(closing.filter(|_| !shown).map(TakopiEvent::from));
        } else {
            for event in &events[before..] {
                if let TakopiEvent::Action(event) = event {
                    self.streams.opened(&event.action);
                }
            }
        }
    }

    fn plan(&mut self, params: &str, events: &mut Vec<TakopiEvent>) {
        let Ok(told) = serde_json::from_str::<Value>(params) else { return };
        let Some(Value::Array(steps)) = told.get("plan") else { return };
        let items: Vec<Value> = steps
            .iter()
            .map(|step| {
                serde_json::json!({
                    "text": step.get("step"),
                    "completed": step.get("status").and_then(Value::as_str) == Some("completed"),
                })
            })
            .collect();
        let phase = if self.plan.is_some() { Phase::Updated } else { Phase::Started };
        let item = serde_json::json!({ "id": PLAN_ID, "type": "todo_list", "items": items });
        self.todo(phase, &item, events);
        self.plan = Some(item);
    }

    fn todo(&mut self, phase: Phase, item: &Value, events: &mut Vec<TakopiEvent>) {
        let text = item.to_string();
        if let Ok(Read(Some(item))) = serde_json::from_str::<Read<Item<'_>>>(&text) {
            self.translation.item(phase, item, events);
        }
    }

    /// The plan ends with its turn, as it stands.
    fn close_plan(&mut self, events: &mut Vec<TakopiEvent>) {
        if let Some(item) = self.plan.take() {
            self.todo(Phase::Completed, &item, events);
        }
    }

    fn usage(&mut self, params: &str) {
        let Ok(UsageTold { token_usage, turn_id }) = serde_json::from_str(params) else { return };
        let Some(total) = figures(token_usage.total) else { return };
        if turn_id.is_some_and(|id| self.turn.as_deref().is_some_and(|own| own != id)) {
            // Of another turn: what the thread had used before this one.
            if self.total.is_none() {
                self.baseline = Some(total);
            }
            return;
        }
        if self.baseline.is_none() && !self.agent_heard {
            // 0.125 tells the thread's figures anew at the start of a turn.
            self.baseline = Some(total);
            return;
        }
        if self.baseline.is_none() {
            // Nothing was told of the thread before this turn's first call of the model, which is
            // the one these figures end with.
            self.baseline = figures(token_usage.last).map(|last| less(&total, &last));
        }
        self.total = Some(total);
    }

    fn rate_limits(&mut self, params: &str, events: &mut Vec<TakopiEvent>) {
        let Ok(told) = serde_json::from_str::<Value>(params) else { return };
        let Some(Value::Object(limits)) = told.get("rateLimits") else { return };
        let known = ["primary", "secondary", "credits"];
        if known.iter().all(|key| limits.get(*key).is_none_or(Value::is_null)) {
            return;
        }
        let text = told.to_string();
        if self.limits.as_ref() == Some(&text) {
            return;
        }
        self.limits = Some(text);
        let mut action = Action::new(LIMITS_ID, ActionKind::Telemetry, "rate limits");
        action.detail = limits.clone().into();
        let event = ActionEvent::new(CODEX, action, Phase::Completed).ok(true).level(Level::Debug);
        events.push(event.into());
    }

    fn completed(&mut self, params: &str, events: &mut Vec<TakopiEvent>) {
        self.close_plan(events);
        let usage = self.total.as_ref().map(|total| match &self.baseline {
            Some(baseline) => less(total, baseline),
            None => total.clone(),
        });
        let Ok(TurnTold { turn }) = serde_json::from_str(params) else {
            let error = "the end of the turn was not understood";
            return self
                .finish(Completed::failure(CODEX, Reason::Protocol, error).usage(usage), events);
        };
        match &*turn.status {
            "completed" => self.translation.turn_completed(usage, events),
            "interrupted" => self.finish(interrupted().usage(usage), events),
            _ => {
                let fault = turn.error.map_or_else(|| Fault::new("the turn failed"), fault);
                let reason = fault.reason();
                let completed = Completed::failure(CODEX, reason.clone(), fault.error(&reason));
                self.translation.finish(completed.usage(usage), events);
            }
        }
    }
}

/// What an interrupted turn ends with.
pub(super) fn interrupted() -> Completed {
    Completed::failure(CODEX, Reason::Interrupted, "interrupted")
}

/// Whether a message is nothing but the marker of a turn that was aborted. Quoted, it is text.
pub(super) fn is_turn_aborted(text: &str) -> bool {
    let text = text.trim();
    text == "<turn_aborted/>"
        || text == "<turn_aborted>"
        || (text.starts_with("<turn_aborted>")
            && text
                .strip_suffix("</turn_aborted>")
                .is_some_and(|rest| !rest.contains("</turn_aborted>")))
}

/// Whether items of this type are nothing but text.
fn is_text(kind: &str) -> bool {
    matches!(kind, "agentMessage" | "reasoning" | "plan")
}

fn fault(raw: &RawValue) -> Fault<'_> {
    match serde_json::from_str::<Read<Fault<'_>>>(raw.get()) {
        Ok(Read(Some(fault))) => fault,
        _ => Fault::new("codex did not say what went wrong"),
    }
}

fn figures(raw: &RawValue) -> Option<Usage> {
    let Read(figures) = serde_json::from_str::<Read<Figures>>(raw.get()).ok()?;
    let mut usage = figures?.covering(UsageScope::Turn);
    // Its own sum of the others, which exec does not give.
    usage.others.remove("total_tokens");
    Some(usage)
}

/// The figures of one turn: the thread's at its end less the thread's before.
fn less(total: &Usage, before: &Usage) -> Usage {
    let mut usage = total.clone();
    usage.input_tokens = total.input_tokens.saturating_sub(before.input_tokens);
    usage.cached_input_tokens =
        total.cached_input_tokens.saturating_sub(before.cached_input_tokens);
    usage.output_tokens = total.output_tokens.saturating_sub(before.output_tokens);
    usage.reasoning_output_tokens =
        total.reasoning_output_tokens.saturating_sub(before.reasoning_output_tokens);
    for (key, value) in &mut usage.others {
        if let (Some(now), Some(then)) =
            (value.as_u64(), before.others.get(key).and_then(Value::as_u64))
        {
            *value = now.saturating_sub(then).into();
        }
    }
    usage
}

fn is_about(event: &TakopiEvent, id: &str) -> bool {
    matches!(event, TakopiEvent::Action(event) if event.action.id == id)
}
