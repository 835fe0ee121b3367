//! The calls of a turn: which are open, and which were declined.

use std::collections::HashSet;
use std::path::Path;

use takopi_core::EngineId;
use takopi_core::model::TakopiEvent;
use takopi_core::paths::Directory;

use super::call::Call;
use crate::wire::CallUpdate;

/// How many calls can be open. Calls beyond that are not shown.
const OPEN: usize = 1024;
/// How many calls that are over are remembered, so that none is shown again.
const REMEMBERED: usize = 32 * 1024;

/// The calls of a turn.
#[derive(Debug)]
pub(super) struct Calls {
    engine: EngineId,
    directory: Directory,
    open: Vec<Call>,
    over: HashSet<String>,
    any: bool,
}

impl Calls {
    pub(super) fn new(engine: EngineId, directory: &Path) -> Self {
        let real = directory.canonicalize().ok();
        let names = [Some(directory), real.as_deref()];
        let directory = Directory::new(names.into_iter().flatten());
        Self { engine, directory, open: Vec::new(), over: HashSet::new(), any: false }
    }

    /// Whether there was a call.
    pub(super) fn any(&self) -> bool {
        self.any
    }

    /// Whether the agent waits for one. Some agents never close a call that was declined, and nobody reports the end of
    /// another session's.
    pub(super) fn is_running(&self) -> bool {
        self.open.iter().any(|call| !call.is_declined && !call.is_foreign)
    }

    /// News of a call.
    pub(super) fn update(&mut self, update: &CallUpdate, events: &mut Vec<TakopiEvent>) {
        let Some(at) = self.place(update) else { return };
        let call = &mut self.open[at];
        call.is_foreign = false;
        call.update(update);
        if call.is_over() {
            let call = self.open.remove(at);
            if self.over.len() < REMEMBERED {
                self.over.insert(call.id().to_owned());
            }
            call.end(&self.engine, &self.directory, events);
        } else {
            call.show(&self.engine, &self.directory, false, events);
        }
    }

    /// Somebody is asked about a call: it is shown, whatever is known of it.
    pub(super) fn asked(
        &mut self,
        update: &CallUpdate,
        is_foreign: bool,
        events: &mut Vec<TakopiEvent>,
    ) {
        let known = self.open.len();
        let Some(at) = self.place(update) else { return };
        let call = &mut self.open[at];
        call.is_declined = false;
        // One that there was news of has more.
        call.is_foreign |= is_foreign && at == known;
        call.asked(update);
        call.show(&self.engine, &self.directory, true, events);
    }

    /// A call was not approved.
    pub(super) fn declined(&mut self, id: &str) {
        if let Some(call) = self.open.iter_mut().find(|call| call.id() == id) {
            call.is_declined = true;
        }
    }

    /// The turn is over: closes the calls that are open.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        for call in std::mem::take(&mut self.open) {
            call.abandon(&self.engine, &self.directory, events);
        }
    }

    /// The place of a call, new or known; none for one that is over.
    fn place(&mut self, update: &CallUpdate) -> Option<usize> {
        self.any = true;
        if let Some(at) = self.open.iter().position(|call| call.id() == update.id) {
            return Some(at);
        }
        if self.over.contains(&update.id) || self.open.len() >= OPEN {
            return None;
        }
        self.open.push(Call::new(update.id.clone()));
        Some(self.open.len() - 1)
    }
}
