//! The lists of the chat: its conversations, and what waits and runs in them.

use takopi_bridge::present::{Line, Style};
use takopi_bridge::{JobInfo, JobStatus, Place, Target};

use super::Chat;

impl Chat {
    /// Cancels what waits and runs in this conversation, and reports it.
    pub(super) fn cancel_here(&mut self) {
        let waited = self.cancel_placing(self.current);
        let runs = self.jobs().iter().any(|job| job.place == self.place());
        if runs || !waited {
            self.cancel(self.place());
        }
    }

    /// Cancels jobs, and reports which.
    pub(super) fn cancel(&mut self, target: impl Into<Target>) {
        let cancelled = self.bridge.cancel(target, Some("you"));
        if cancelled.is_empty() {
            self.note("nothing is waiting or running in this conversation");
        }
        for cancelled in cancelled {
            let prompt =
                self.prompts.get(&cancelled.job).map(|it| it.1.clone()).unwrap_or_default();
            self.note(&format!("{cancelled}: {prompt}"));
        }
    }

    pub(super) fn list_sessions(&mut self) {
        let jobs = self.jobs();
        let lines = self.titles.iter().enumerate().map(|(at, title)| {
            let number = at + 1;
            let place = Place::new(number.to_string());
            let state = jobs.iter().find(|job| job.place == place).map(state).unwrap_or_default();
            let mark = if number == self.current { "▸" } else { " " };
            Line::new()
                .with(Style::Plain, format!("{mark} {number}  {title}"))
                .with(Style::Warn, format!("  {state}"))
        });
        let lines: Vec<Line> = lines.collect();
        self.view.say(&lines);
    }

    pub(super) fn list_jobs(&mut self) {
        let lines = self.jobs().into_iter().map(|job| {
            let prompt = self.prompts.get(&job.job).map_or("", |it| it.1.as_str());
            let head = format!("[{}] {}", job.place.chat, state(&job));
            Line::new().with(Style::Warn, head).with(Style::Plain, format!("  {prompt}"))
        });
        let waits = self.placing.waiting().map(|(conversation, prompt)| {
            let head = format!("[{conversation}] waiting for git");
            Line::new().with(Style::Warn, head).with(Style::Plain, format!("  {prompt}"))
        });
        let lines: Vec<Line> = lines.chain(waits).collect();
        match lines.as_slice() {
            [] => self.note("nothing is waiting or running"),
            lines => self.view.say(lines),
        }
    }
}

fn state(job: &JobInfo) -> String {
    match job.status {
        JobStatus::Running => "running".to_owned(),
        status => status.to_string(),
    }
}
