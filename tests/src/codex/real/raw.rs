//! The real codex with nothing of takopi around it.

use serde_json::Value;

use super::Codex;
use crate::codex::home::TestHome;
use crate::raw::RawProcess;
pub use crate::raw::RawRun;

/// A codex that is running.
pub type RawCodex = RawProcess;

impl RawCodex {
    /// Starts codex in the home's workspace, with its input left open.
    pub fn start(codex: &Codex, home: &TestHome, args: &[&str]) -> Self {
        Self::spawn(home.command(codex).args(args))
    }

    /// Starts `codex exec --json` on a prompt.
    pub async fn exec(codex: &Codex, home: &TestHome, prompt: &str) -> Self {
        Self::start(codex, home, &["exec", "--json", "-"]).prompt(prompt).await
    }

    /// Starts `codex exec --json resume` of a session on a prompt.
    pub async fn resume(codex: &Codex, home: &TestHome, thread: &str, prompt: &str) -> Self {
        Self::start(codex, home, &["exec", "--json", "resume", thread, "-"]).prompt(prompt).await
    }
}

impl RawRun {
    /// The types of the lines of `exec`, each followed by that of its item.
    pub fn kinds(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind =
            |event: &Value| format!("{} {}", text(&event["type"]), text(&event["item"]["type"]));
        self.events().iter().map(|event| kind(event).trim_end().to_owned()).collect()
    }

    /// The thread that the first line of `exec` names.
    pub fn thread(&self) -> String {
        let first = self.events().into_iter().next();
        let thread = first.as_ref().and_then(|first| first["thread_id"].as_str());
        thread.unwrap_or_else(|| panic!("no thread: {self:#?}")).to_owned()
    }

    /// The text of the last agent message that `exec` printed.
    pub fn answer(&self) -> String {
        let events = self.events();
        let last = events.iter().rfind(|event| event["item"]["type"] == "agent_message");
        let text = last.and_then(|event| event["item"]["text"].as_str());
        text.unwrap_or_else(|| panic!("no answer: {self:#?}")).to_owned()
    }

    /// The lines with the thread's id replaced, which differs from one run to the next.
    pub fn neutral(&self) -> Vec<String> {
        let thread = self.thread();
        self.lines.iter().map(|line| line.replace(&thread, "THREAD")).collect()
    }
}
