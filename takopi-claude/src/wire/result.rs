//! The end of a turn: how it went, and what it used.

use serde_json::value::RawValue;

use takopi_core::jsonl::Object;

/// The end of a turn. Not always of a run: a sub-agent in the background wakes the model again.
#[derive(Debug, Default)]
pub(crate) struct TurnResult {
    pub(crate) session: Option<String>,
    /// `success` also for failures of the model's service; see `is_error`.
    pub(crate) subtype: Option<String>,
    pub(crate) is_error: bool,
    /// The last text block of the last message, or the error.
    pub(crate) text: Option<String>,
    /// The answer as JSON, if a schema was asked for.
    pub(crate) structured: Option<String>,
    pub(crate) errors: Vec<String>,
    pub(crate) terminal_reason: Option<String>,
    pub(crate) status: Option<i64>,
    pub(crate) api_error: Option<String>,
    pub(crate) denials: Vec<Denial>,
    /// The host's messages that it ends, if this version names them.
    pub(crate) message_ids: Option<Vec<String>>,
    /// Whether a task that ended began the turn, and no message.
    pub(crate) is_unasked: bool,
    /// What the turn used, without sub-agents.
    pub(crate) usage: Option<Tokens>,
    /// What was used since the last result, with sub-agents; since 2.1.325.
    pub(crate) since_last: Option<Tokens>,
    /// Of the session since 2.1.325, before that of the process.
    pub(crate) total_cost_usd: Option<f64>,
}

/// A tool that was refused.
#[derive(Debug, Clone, Default)]
pub(crate) struct Denial {
    pub(crate) tool: Option<String>,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) input: Option<Box<RawValue>>,
}

/// Token figures.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tokens {
    /// Without those that the model's cache had or took.
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
    pub(crate) thinking: u64,
    pub(crate) cost_usd: Option<f64>,
}

impl TurnResult {
    pub(super) fn of(line: &Object<'_>) -> Self {
        let denials = line.list("permission_denials").into_iter();
        Self {
            session: line.text("session_id"),
            subtype: line.text("subtype"),
            is_error: line.flag("is_error") == Some(true),
            text: line.text("result"),
            structured: line.raw("structured_output").map(|raw| raw.get().to_owned()),
            errors: line.texts("errors"),
            terminal_reason: line.text("terminal_reason"),
            status: line.int("api_error_status"),
            api_error: line.text("api_error"),
            denials: denials.map(|denial| Denial::of(&Object::of(denial))).collect(),
            message_ids: line.has("user_message_uuids").then(|| line.texts("user_message_uuids")),
            is_unasked: line.object("origin").text("kind").as_deref() == Some("task-notification"),
            usage: line.has("usage").then(|| Tokens::of_usage(&line.object("usage"))),
            since_last: line
                .has("model_usage_since_last_result")
                .then(|| Tokens::of_models(&line.object("model_usage_since_last_result"))),
            total_cost_usd: line.number("total_cost_usd").filter(|cost| *cost >= 0.0),
        }
    }

    /// Whether the turn went well. API errors have the subtype `success`, and some failures of old
    /// versions are not marked as errors.
    pub(crate) fn is_ok(&self) -> bool {
        self.subtype.as_deref() == Some("success") && !self.is_error
    }
}

impl Denial {
    pub(super) fn of(line: &Object<'_>) -> Self {
        Self {
            tool: line.text("tool_name"),
            tool_use_id: line.text("tool_use_id"),
            message: line.text("message"),
            input: line.raw("tool_input").map(ToOwned::to_owned),
        }
    }
}

impl Tokens {
    fn of_usage(usage: &Object<'_>) -> Self {
        let count = |name| usage.count(name).unwrap_or_default();
        let details = usage.object("output_tokens_details");
        Self {
            input: count("input_tokens"),
            cache_read: count("cache_read_input_tokens"),
            cache_write: count("cache_creation_input_tokens"),
            output: count("output_tokens"),
            thinking: details.count("thinking_tokens").unwrap_or_default(),
            cost_usd: None,
        }
    }

    fn of_models(models: &Object<'_>) -> Self {
        let mut sum = Self { cost_usd: Some(0.0), ..Self::default() };
        for (_, raw) in models.iter() {
            let model = Object::of(raw);
            let count = |name| model.count(name).unwrap_or_default();
            sum.add(&Self {
                input: count("inputTokens"),
                cache_read: count("cacheReadInputTokens"),
                cache_write: count("cacheCreationInputTokens"),
                output: count("outputTokens"),
                thinking: count("thinkingTokens"),
                cost_usd: model.number("costUSD").filter(|cost| *cost >= 0.0),
            });
        }
        sum
    }

    /// Adds figures to these. The cost is known only if both are.
    pub(crate) fn add(&mut self, other: &Self) {
        let fields = [
            (&mut self.input, other.input),
            (&mut self.cache_read, other.cache_read),
            (&mut self.cache_write, other.cache_write),
            (&mut self.output, other.output),
            (&mut self.thinking, other.thinking),
        ];
        for (sum, more) in fields {
            *sum = sum.saturating_add(more);
        }
        self.cost_usd = self.cost_usd.zip(other.cost_usd).map(|(sum, more)| sum + more);
    }
}
