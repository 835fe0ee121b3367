//! What a run used and cost.
//!
//! Since 2.1.325 a result carries what was used since the last one, with sub-agents: the sum over the
//! results of a run is the run. Before that the figures of the turns are added, which leave out
//! sub-agents. `modelUsage` and `total_cost_usd` are sums over the process or the session, and say nothing
//! of a run by themselves: without figures since the last result, the cost is what `total_cost_usd` grew
//! by, if its value before the run is known, and else it is not known.

use takopi_core::model::{Usage, UsageScope};

use crate::wire::{Tokens, TurnResult};

/// The figures of a run.
#[derive(Debug)]
pub(super) struct Figures {
    sum: Option<Tokens>,
    /// `total_cost_usd` before the run.
    before: Option<f64>,
    /// `total_cost_usd` of the last result.
    total: Option<f64>,
}

impl Figures {
    /// `fresh` if nothing was used before.
    pub(super) fn new(fresh: bool) -> Self {
        Self { sum: None, before: fresh.then_some(0.0), total: None }
    }

    pub(super) fn cost_before(&mut self, total_usd: f64) {
        self.before = Some(total_usd);
    }

    pub(super) fn total_cost(&self) -> Option<f64> {
        self.total
    }

    /// A result of the run.
    pub(super) fn add(&mut self, result: &TurnResult) {
        self.seen(result);
        let Some(tokens) = result.since_last.as_ref().or(result.usage.as_ref()) else { return };
        match &mut self.sum {
            Some(sum) => sum.add(tokens),
            None => self.sum = Some(*tokens),
        }
    }

    /// A result of another turn.
    pub(super) fn skip(&mut self, result: &TurnResult) {
        self.seen(result);
        self.before = result.total_cost_usd;
    }

    fn seen(&mut self, result: &TurnResult) {
        self.total = result.total_cost_usd.or(self.total);
    }

    /// What the run used.
    pub(super) fn usage(&self) -> Option<Usage> {
        let tokens = self.sum?;
        let mut usage = Usage::default();
        usage.input_tokens =
            tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
        usage.cached_input_tokens = tokens.cache_read;
        usage.output_tokens = tokens.output;
        usage.reasoning_output_tokens = tokens.thinking;
        usage.scope = UsageScope::Turn;
        usage.others.insert("cache_write_input_tokens".to_owned(), tokens.cache_write.into());
        Some(usage)
    }

    /// What the run cost, in US dollars.
    pub(super) fn cost_usd(&self) -> Option<f64> {
        let grown = || Some((self.total? - self.before?).max(0.0));
        self.sum?.cost_usd.or_else(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(usage: u64, since: Option<(u64, f64)>, total: f64) -> TurnResult {
        let tokens = |input, cost_usd| Tokens { input, cost_usd, ..Tokens::default() };
        TurnResult {
            usage: Some(tokens(usage, None)),
            since_last: since.map(|(input, cost)| tokens(input, Some(cost))),
            total_cost_usd: Some(total),
            ..TurnResult::default()
        }
    }

    #[test]
    fn figures_since_the_last_result_are_added_up_and_cumulative_ones_are_not() {
        let mut figures = Figures::new(false);
        figures.add(&result(22, Some((55, 0.5)), 7.5));
        figures.add(&result(11, Some((0, 0.0)), 7.5));
        assert_eq!(figures.usage().unwrap().input_tokens, 55);
        assert_eq!(figures.cost_usd(), Some(0.5));
    }

    #[test]
    fn without_them_the_turns_are_added_and_the_cost_is_the_growth_if_it_is_known() {
        let mut figures = Figures::new(true);
        figures.add(&result(22, None, 0.5));
        figures.add(&result(11, None, 0.75));
        assert_eq!(figures.usage().unwrap().input_tokens, 33);
        assert_eq!(figures.cost_usd(), Some(0.75));

        let mut resumed = Figures::new(false);
        resumed.add(&result(22, None, 0.5));
        assert_eq!(resumed.cost_usd(), None, "what was before is not known");

        let mut warm = Figures::new(false);
        warm.cost_before(0.75);
        warm.skip(&result(5, None, 1.0));
        warm.add(&result(5, None, 1.5));
        assert_eq!((warm.cost_usd(), warm.total_cost()), (Some(0.5), Some(1.5)));
        assert_eq!(warm.usage().unwrap().input_tokens, 5);
    }

    #[test]
    fn input_includes_what_the_cache_had() {
        let mut figures = Figures::new(true);
        let usage =
            Tokens { input: 11, cache_read: 3, cache_write: 5, output: 7, ..Tokens::default() };
        figures.add(&TurnResult { usage: Some(usage), ..TurnResult::default() });
        let usage = figures.usage().unwrap();
        assert_eq!((usage.input_tokens, usage.cached_input_tokens), (19, 3));
        assert_eq!(usage.others["cache_write_input_tokens"], 5);
    }
}
