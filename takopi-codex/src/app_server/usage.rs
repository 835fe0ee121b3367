//! What one turn has used, from figures that the server gives for the whole thread.

use serde::de::MapAccess;
use serde_json::Value;
use serde_json::value::RawValue;
use takopi_core::model::{Usage, UsageScope};

use crate::common::{Figures, Read, Tolerant, first, next_key, skip};

/// `tokenUsage`: the thread's figures, and those of the last call of the model.
#[derive(Debug)]
pub(super) struct TokenUsage {
    total: Usage,
    last: Option<Usage>,
}

impl<'de> Tolerant<'de> for TokenUsage {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let (mut total, mut last): (Option<Figures>, Option<Figures>) = (None, None);
        while let Some(key) = next_key(&mut object)? {
            match &*key {
                "total" => first(&mut total, &mut object)?,
                "last" => first(&mut last, &mut object)?,
                _ => skip(&mut object)?,
            }
        }
        Ok(total.map(|total| Self { total: of_turn(total), last: last.map(of_turn) }))
    }
}

/// The parameters of `thread/tokenUsage/updated`.
struct UsageParams(TokenUsage);

impl<'de> Tolerant<'de> for UsageParams {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let mut usage: Option<TokenUsage> = None;
        while let Some(key) = next_key(&mut object)? {
            match &*key {
                "tokenUsage" => first(&mut usage, &mut object)?,
                _ => skip(&mut object)?,
            }
        }
        Ok(usage.map(Self))
    }
}

/// How many figures are kept until the turn is named.
const UNNAMED: usize = 64;

/// The usage of one turn.
#[derive(Debug, Default)]
pub(super) struct TurnUsage {
    /// The turn's id, once it is known.
    turn: Option<String>,
    /// The thread's figures before this turn, if they are known.
    baseline: Option<Usage>,
    total: Option<Usage>,
    /// Whether the agent did anything yet.
    agent_seen: bool,
    /// Figures that came before the turn was named, with their turns and whether the agent had done
    /// anything.
    unnamed: Vec<(Option<String>, TokenUsage, bool)>,
}

impl TurnUsage {
    /// The usage of a turn; `fresh` if its thread is new and has used nothing.
    pub(super) fn new(fresh: bool) -> Self {
        Self { baseline: fresh.then(Usage::default), ..Self::default() }
    }

    /// The turn has this id, and its thread's last figures before it were these.
    pub(super) fn named(&mut self, turn: &str, before: Option<&RawValue>) {
        self.turn = Some(turn.to_owned());
        let known = before.and_then(|raw| {
            let Read(params) = serde_json::from_str::<Read<UsageParams>>(raw.get()).ok()?;
            params.map(|UsageParams(usage)| usage.total)
        });
        self.baseline = known.or(self.baseline.take());
        self.count_unnamed();
    }

    /// The turn is over, and another may follow.
    pub(super) fn turn_ended(&mut self) {
        self.turn = None;
    }

    /// The figures of this turn are added to those of the turn before.
    pub(super) fn goes_on(&mut self, turn: &str) {
        self.turn = Some(turn.to_owned());
        self.count_unnamed();
    }

    /// An item of the agent was seen.
    pub(super) fn agent_seen(&mut self) {
        self.agent_seen = true;
    }

    /// The server gave new figures, under the id of this turn or of another.
    pub(super) fn update(&mut self, turn: Option<&str>, usage: TokenUsage) {
        if self.turn.is_some() {
            return self.count(turn, usage, self.agent_seen);
        }
        // The last ones are for the whole thread: of very many those count.
        if self.unnamed.len() == UNNAMED {
            self.unnamed.pop();
        }
        self.unnamed.push((turn.map(str::to_owned), usage, self.agent_seen));
    }

    fn count_unnamed(&mut self) {
        for (turn, usage, agent_seen) in std::mem::take(&mut self.unnamed) {
            self.count(turn.as_deref(), usage, agent_seen);
        }
    }

    fn count(&mut self, turn: Option<&str>, usage: TokenUsage, agent_seen: bool) {
        let TokenUsage { total, last } = usage;
        if turn.is_some_and(|id| self.turn.as_deref().is_some_and(|own| own != id)) {
            // Of another turn: what the thread had used before this one.
            if self.total.is_none() {
                self.baseline = Some(total);
            }
            return;
        }
        if self.baseline.is_none() && !agent_seen {
            // 0.125 gives the thread's figures anew at the start of a turn.
            self.baseline = Some(total);
            return;
        }
        if self.baseline.is_none() {
            // Nothing is known of the thread before this turn's first call of the model, which is
            // the one these figures end with.
            self.baseline = last.map(|last| less(&total, &last));
        }
        self.total = Some(total);
    }

    /// What the turn has used so far.
    pub(super) fn so_far(&mut self) -> Option<Usage> {
        self.count_unnamed();
        let total = self.total.as_ref()?;
        Some(self.baseline.as_ref().map_or_else(|| total.clone(), |before| less(total, before)))
    }
}

fn of_turn(figures: Figures) -> Usage {
    let mut usage = figures.covering(UsageScope::Turn);
    // Its own sum of the others, which exec does not give.
    usage.others.remove("total_tokens");
    usage
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
