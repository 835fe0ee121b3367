//! From the lines of one run to takopi's events, and when the run is over.
//!
//! Pure: lines in, events out, no I/O and no clock.

use std::path::PathBuf;

use takopi_core::model::{Completed, TakopiEvent};

use crate::wire::Message;

/// What a run is, before its first line.
#[derive(Debug, Clone)]
pub(crate) struct TurnSetup {
    /// What `Started` calls the engine.
    pub(crate) title: String,
    /// The session that was asked for: chosen by takopi, or resumed.
    pub(crate) session: String,
    /// Where the agent works.
    pub(crate) directory: PathBuf,
    /// The `uuid` of the message that begins the run.
    pub(crate) message_id: String,
    /// Whether session and process are new and have cost nothing.
    pub(crate) fresh: bool,
    /// Whether pieces of the answer are emitted.
    pub(crate) deltas: bool,
}

/// One run.
#[derive(Debug)]
pub(crate) struct Translator {
    setup: TurnSetup,
}

impl Translator {
    /// A run.
    pub(crate) fn new(setup: TurnSetup) -> Self {
        Self { setup }
    }

    /// Translates one line.
    pub(crate) fn message(&mut self, message: &Message, events: &mut Vec<TakopiEvent>) {
        let _ = (message, events, &self.setup);
    }

    /// A further message of ours was sent: the run is over only when results have named all of them.
    pub(crate) fn steered(&mut self, message_id: String) {
        drop(message_id);
    }

    /// The process reports its state. Learnt from the first such line, too.
    pub(crate) fn reports_state(&mut self) {}

    /// Somebody was asked about this call, and the driver shows it.
    pub(crate) fn asked(&mut self, tool_use_id: &str) {
        let _ = tool_use_id;
    }

    /// What `total_cost_usd` was before the run, if it is known.
    pub(crate) fn cost_before(&mut self, total_usd: f64) {
        let _ = total_usd;
    }

    /// What `total_cost_usd` was last: what comes before the next run.
    pub(crate) fn total_cost(&self) -> Option<f64> {
        None
    }

    /// Whether the run is over.
    pub(crate) fn is_over(&self) -> bool {
        false
    }

    /// Whether a tool runs that the agent waits for.
    pub(crate) fn tool_running(&self) -> bool {
        false
    }

    /// Whether the login was refused: to wait for the retries is of no use.
    pub(crate) fn authentication_failed(&self) -> bool {
        false
    }

    /// The session that the process opened, if it is not the one that was asked for.
    pub(crate) fn session_mismatch(&self) -> Option<&str> {
        None
    }

    /// Ends the run. Closes what is open, and returns the end: as the results have it if the run is
    /// over, else `otherwise`, completed by the answer so far, usage, cost, limits and session.
    pub(crate) fn finish(
        &mut self,
        otherwise: Completed,
        events: &mut Vec<TakopiEvent>,
    ) -> Completed {
        let _ = events;
        otherwise
    }
}
