//! The calls of a run: which are open, which were refused, and the agent's list of tasks.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use takopi_core::model::TakopiEvent;
use takopi_core::paths::Directory;

use super::call::{Call, denied_unseen, head};
use super::plan::Plan;
use crate::wire::{Denial, Nested, Object, Task, ToolProgress, User};

/// How many calls can be open, and how many that were asked about are remembered. Calls beyond that are
/// not shown.
const CALLS: usize = 1024;
/// How many calls are remembered, so that none is shown again.
const REMEMBERED: usize = 32 * 1024;

/// The calls of a run.
#[derive(Debug)]
pub(super) struct Calls {
    cwd: PathBuf,
    directory: Directory,
    /// Those that were started and have not ended, in their order.
    open: Vec<Call>,
    /// Those that were ever started.
    started: HashSet<String>,
    /// Those that somebody was asked about, or whose refusal was shown.
    asked: HashSet<String>,
    plan: Plan,
    /// How many actions got an id from us.
    named: u32,
}

impl Calls {
    /// Calls in a directory.
    pub(super) fn new(cwd: PathBuf) -> Self {
        Self {
            directory: Directory::new([cwd.as_path()]),
            cwd,
            open: Vec::new(),
            started: HashSet::new(),
            asked: HashSet::new(),
            plan: Plan::default(),
            named: 0,
        }
    }

    /// The program's own name of the directory: it resolves links.
    pub(super) fn is_in(&mut self, cwd: Option<&str>) {
        let names = [Some(self.cwd.as_path()), cwd.map(Path::new)];
        self.directory = Directory::new(names.into_iter().flatten());
    }

    /// Whether the agent waits for one.
    pub(super) fn is_running(&self) -> bool {
        self.open.iter().any(Call::is_running)
    }

    /// Somebody is asked about a call.
    pub(super) fn asked(&mut self, id: &str) {
        if self.asked.len() < CALLS {
            self.asked.insert(id.to_owned());
        }
    }

    /// A call begins.
    pub(super) fn start(
        &mut self,
        id: Option<&str>,
        tool: &str,
        input: Option<&RawValue>,
        nested: Option<&Nested>,
        events: &mut Vec<TakopiEvent>,
    ) {
        let id = match id.filter(|id| !id.trim().is_empty()) {
            Some(id) => id.to_owned(),
            None => self.new_id("call"),
        };
        let is_known = self.started.contains(&id);
        if is_known || self.open.len() >= CALLS {
            return;
        }
        if self.started.len() < REMEMBERED {
            self.started.insert(id.clone());
        }
        let call = Call::new(id, tool, input, nested, &self.directory);
        if !call.is_of_plan() {
            events.push(call.started().into());
        }
        self.open.push(call);
    }

    /// Calls returned.
    pub(super) fn returned(&mut self, line: &User, events: &mut Vec<TakopiEvent>) {
        let output = line.output.as_deref();
        for result in &line.results {
            let Some(call) = self.take(result.tool_use_id.as_deref()) else { continue };
            if call.is_of_plan() && !result.is_error {
                let input = call.input.as_deref().map(Object::of).unwrap_or_default();
                let output = output.map(Object::of).unwrap_or_default();
                if let Some(event) = self.plan.called(&call.tool, &input, &output) {
                    events.push(event.into());
                    continue;
                }
            }
            let was_asked = self.asked.contains(&call.action.id);
            match call.returned(result, output, was_asked) {
                Ok(event) => events.push(event.into()),
                Err(call) => {
                    events.push(call.updated().into());
                    self.open.push(*call);
                }
            }
        }
    }

    /// A call that the model's service ran returned.
    pub(super) fn served(
        &mut self,
        id: Option<&str>,
        error: Option<&str>,
        events: &mut Vec<TakopiEvent>,
    ) {
        events.extend(self.take(id).map(|call| TakopiEvent::from(call.served(error))));
    }

    /// A call became a task. Of a command that is so after two seconds, and no news. Here and below the result is
    /// whether the call is an open one of this run.
    pub(super) fn task_started(&mut self, task: &Task) -> bool {
        let Some(call) = self.get(task.tool_use_id.as_deref()) else { return false };
        call.task.clone_from(&task.id);
        true
    }

    /// What the task of a call does.
    pub(super) fn task_progress(&mut self, task: &Task, events: &mut Vec<TakopiEvent>) -> bool {
        let Some(call) = self.get(task.tool_use_id.as_deref()) else { return false };
        if let Some(description) = task.description.as_deref().map(head) {
            call.action.detail.insert("progress", description);
            events.push(call.updated().into());
        }
        true
    }

    /// Whether there is a call of this task.
    pub(super) fn has_task(&self, task: &Task) -> bool {
        let id = self.call_of(task);
        self.open.iter().any(|call| Some(&call.action.id) == id.as_ref())
    }

    /// The task of a call ended.
    pub(super) fn task_ended(&mut self, task: &Task, events: &mut Vec<TakopiEvent>) -> bool {
        let id = self.call_of(task);
        let Some(call) = self.get(id.as_deref()) else { return false };
        if call.in_background {
            let call = self.take(id.as_deref());
            events.extend(call.map(|call| TakopiEvent::from(call.task_ended(task))));
        } else {
            // The result of the call comes behind it.
            call.ended = Some(task.clone());
        }
        true
    }

    /// The id of the call that a task is of.
    fn call_of(&self, task: &Task) -> Option<String> {
        let of_task = |call: &&Call| call.task.is_some() && call.task == task.id;
        match &task.tool_use_id {
            Some(id) => Some(id.clone()),
            None => self.open.iter().find(of_task).map(|call| call.action.id.clone()),
        }
    }

    /// A call still runs. It is the tool's own line, although it looks like one of a sub-agent.
    pub(super) fn progress(
        &mut self,
        progress: &ToolProgress,
        events: &mut Vec<TakopiEvent>,
    ) -> bool {
        let Some(call) = self.get(progress.tool_use_id.as_deref()) else { return false };
        if let Some(seconds) = progress.seconds {
            call.action.detail.insert("elapsed_seconds", seconds);
        }
        events.push(call.updated().into());
        true
    }

    /// A call was refused. That is shown once, and not here if somebody was asked.
    pub(super) fn denied(&mut self, denial: &Denial, events: &mut Vec<TakopiEvent>) -> bool {
        let key = denial.tool_use_id.as_ref().or(denial.tool.as_ref()).cloned().unwrap_or_default();
        let call = self.get(denial.tool_use_id.as_deref());
        let is_open = call.is_some();
        if let Some(call) = call {
            call.is_denied = true;
        }
        if self.asked.contains(&key) || self.asked.len() >= CALLS {
            return is_open;
        }
        self.asked(&key);
        let id = self.new_id("denied");
        let cwd = self.cwd.display().to_string();
        let event = match self.get(denial.tool_use_id.as_deref()) {
            Some(call) => call.denied(id, denial, cwd),
            None => denied_unseen(id, denial, cwd, &self.directory),
        };
        events.push(event.into());
        is_open
    }

    /// The run is over: closes the calls that are open, and the list of tasks.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        events.extend(self.plan.close().map(TakopiEvent::from));
        let shown = self.open.drain(..).filter(|call| !call.is_of_plan());
        events.extend(shown.map(|call| TakopiEvent::from(call.abandoned())));
    }

    fn get(&mut self, id: Option<&str>) -> Option<&mut Call> {
        self.open.iter_mut().find(|call| Some(call.action.id.as_str()) == id)
    }

    fn take(&mut self, id: Option<&str>) -> Option<Call> {
        let at = self.open.iter().position(|call| Some(call.action.id.as_str()) == id)?;
        Some(self.open.remove(at))
    }

    /// An id for what Claude Code gave none.
    fn new_id(&mut self, what: &str) -> String {
        let id = format!("claude.{what}_{}", self.named);
        self.named += 1;
        id
    }
}
