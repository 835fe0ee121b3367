//! The three events of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ActionEvent, EngineId, RateLimits, Reason, ResumeToken, Usage};

/// The engine confirmed the session. Comes exactly once in a run that gets so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Started {
    /// The engine that runs.
    pub engine: EngineId,
    /// The session; with it the conversation can go on later.
    pub resume: ResumeToken,
    /// What to call the engine, e.g. `Codex`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Further facts: model, directory, …
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Value>,
}

impl Started {
    /// The session `resume` is confirmed.
    pub fn new(resume: ResumeToken) -> Self {
        Self { engine: resume.engine.clone(), resume, title: None, meta: Map::new() }
    }

    /// Sets the engine's display name.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }
}

/// The run is over. Comes exactly once in every run, and last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Completed {
    /// The engine that ran, or should have.
    pub engine: EngineId,
    /// Whether the turn succeeded.
    pub ok: bool,
    /// The agent's answer; empty when there is none.
    pub answer: String,
    /// The session, if it is known. A resume that failed before `Started` carries the token asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeToken>,
    /// What went wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went wrong, for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Tokens used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The limits of the account, if the engine reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<RateLimits>,
    /// What the run cost in US dollars, if the engine reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Completed {
    /// A run that succeeded.
    pub fn success(engine: impl Into<EngineId>, answer: impl Into<String>) -> Self {
        Self {
            engine: engine.into(),
            ok: true,
            answer: answer.into(),
            resume: None,
            error: None,
            reason: None,
            usage: None,
            rate_limits: None,
            cost_usd: None,
        }
    }

    /// A run that failed.
    pub fn failure(engine: impl Into<EngineId>, reason: Reason, error: impl Into<String>) -> Self {
        Self {
            ok: false,
            error: Some(error.into()),
            reason: Some(reason),
            ..Self::success(engine, String::new())
        }
    }

    /// Sets the answer, such as the partial answer of a failed run.
    pub fn answer(mut self, answer: impl Into<String>) -> Self {
        self.answer = answer.into();
        self
    }

    /// Names the session.
    pub fn resume(mut self, resume: Option<ResumeToken>) -> Self {
        self.resume = resume;
        self
    }

    /// Adds the figures.
    pub fn usage(mut self, usage: Option<Usage>) -> Self {
        self.usage = usage;
        self
    }

    /// Adds the limits of the account.
    pub fn rate_limits(mut self, rate_limits: Option<RateLimits>) -> Self {
        self.rate_limits = rate_limits;
        self
    }

    /// Adds what the run cost, in US dollars.
    pub fn cost_usd(mut self, cost_usd: Option<f64>) -> Self {
        self.cost_usd = cost_usd;
        self
    }
}

/// One event of a run.
///
/// ```
/// use takopi_core::model::{ResumeToken, Started, TakopiEvent};
///
/// let started = TakopiEvent::from(Started::new(ResumeToken::new("codex", "0199…")).title("Codex"));
/// let line = serde_json::to_string(&started)?;
/// assert_eq!(
///     line,
///     r#"{"type":"started","engine":"codex","resume":{"engine":"codex","value":"0199…"},"title":"Codex"}"#
/// );
/// assert_eq!(serde_json::from_str::<TakopiEvent>(&line)?, started);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(description = "One event of a run.")]
#[non_exhaustive]
pub enum TakopiEvent {
    /// The engine confirmed the session.
    Started(Started),
    /// The agent does something.
    Action(ActionEvent),
    /// The run is over.
    Completed(Box<Completed>),
}

impl From<Started> for TakopiEvent {
    fn from(started: Started) -> Self {
        Self::Started(started)
    }
}

impl From<ActionEvent> for TakopiEvent {
    fn from(action: ActionEvent) -> Self {
        Self::Action(action)
    }
}

impl From<Completed> for TakopiEvent {
    fn from(completed: Completed) -> Self {
        Self::Completed(Box::new(completed))
    }
}

impl TakopiEvent {
    /// About how many bytes the event takes; what the consumer's buffer is bounded by.
    pub fn weight(&self) -> usize {
        const FIXED: usize = 128;
        FIXED
            + match self {
                Self::Started(started) => {
                    started.title.as_ref().map_or(0, String::len) + map_weight(&started.meta)
                }
                Self::Action(event) => {
                    event.action.id.len()
                        + event.action.title.len()
                        + event.message.as_ref().map_or(0, String::len)
                        + event.action.detail.weight()
                }
                Self::Completed(completed) => {
                    completed.answer.len()
                        + completed.error.as_ref().map_or(0, String::len)
                        + completed.usage.as_ref().map_or(0, |usage| map_weight(&usage.others))
                        + completed.rate_limits.as_ref().map_or(0, limits_weight)
                }
            }
    }
}

fn limits_weight(limits: &RateLimits) -> usize {
    limits.windows.iter().map(|window| window.name.len() + 32).sum()
}

fn map_weight(map: &Map<String, Value>) -> usize {
    entries_weight(map.iter().map(|(name, value)| (name.as_str(), value)))
}

pub(super) fn entries_weight<'a>(entries: impl Iterator<Item = (&'a str, &'a Value)>) -> usize {
    entries.map(|(name, value)| name.len() + 32 + value_weight(value)).sum()
}

fn value_weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(|value| 16 + value_weight(value)).sum(),
        Value::Object(map) => map_weight(map),
    }
}
