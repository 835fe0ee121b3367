//! What a line of the chat asks for: a command, a decision on an approval request, or a message.

use takopi_core::Decision;
use takopi_core::runner::Reply;
use tokio::sync::mpsc;

use super::{Chat, Ended, Outcome};
use crate::{approve, engines};

const HELP: &str = "\
/new  start another conversation
/sessions  list the conversations; /switch N  switch to one
/queue  list waiting and running messages; /cancel  cancel those of this conversation
/quit  exit
A message with a resume line resumes that session. The name of an engine before a message sends it to that
engine, in a session of its own: ENGINES.
A space before a line sends it as a message even if it looks like a command.
Alt-Enter or a backslash at its end continues a message on another line. Up and Ctrl-R find earlier messages;
Tab completes commands, engines, projects and files after @. Ctrl-C drops what is typed, then cancels the turn, then exits.";
/// The commands.
pub(super) const COMMANDS: [&str; 7] =
    ["/quit", "/help", "/new", "/sessions", "/queue", "/cancel", "/switch"];

/// What a line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Continue,
    Exit,
}

/// Whether a line is kept in the history. A decision is not: it was for one question.
pub(super) fn is_kept(line: &str) -> bool {
    line.starts_with(' ') || decision(line.trim()).is_none()
}

/// The decision that a word is.
fn decision(word: &str) -> Option<Decision> {
    let mut keys = word.chars();
    keys.next().and_then(approve::decision).filter(|_| keys.next().is_none())
}

impl Chat {
    /// Handles a line.
    pub(super) fn line(&mut self, line: &str, ended: &mpsc::Sender<Ended>) -> After {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (None, _) => {}
            _ if line.starts_with(' ') => self.message(line, ended),
            (Some("/quit"), None) => return After::Exit,
            (Some("/help"), None) => {
                self.view.print(&HELP.replace("ENGINES", &engines::directives(&self.engines)));
            }
            (Some("/new"), None) => self.current = self.titles.len() + 1,
            (Some("/sessions"), None) => self.list_sessions(),
            (Some("/queue"), None) => self.list_jobs(),
            (Some("/cancel"), None) => self.cancel_here(),
            (Some("/switch"), number) => match number.and_then(|it| it.parse().ok()) {
                Some(number) if (1..=self.titles.len()).contains(&number) => self.current = number,
                _ => self.error("/switch needs the number of a conversation; /sessions lists them"),
            },
            (Some(word), None) if self.decides(word) => {}
            (Some(word), _) if self.is_mistyped(word) && !line.trim_end().contains('\n') => {
                self.result = Outcome::Failed;
                let problem = if COMMANDS.contains(&word) {
                    format!("{word} takes no arguments")
                } else {
                    format!("unknown command {word}; /help lists the commands")
                };
                self.error(&format!(
                    "{problem}; to send the line as a message, put a space before it"
                ));
            }
            _ => self.message(line, ended),
        }
        After::Continue
    }

    /// Whether the first word of a line looks like a command and is not an engine. Paths do not.
    fn is_mistyped(&self, word: &str) -> bool {
        let Some(name) = word.strip_prefix('/').filter(|name| !name.is_empty()) else {
            return false;
        };
        let plain = name.chars().all(|it| it.is_alphanumeric() || "-_".contains(it));
        let engine = self.engines.iter().any(|engine| engine.as_str().eq_ignore_ascii_case(name));
        plain && !engine && self.projects.get(name).is_none()
    }

    /// Decides the approval request of this conversation that is shown, if there is one and the word is a decision and no
    /// answer. Requests of other conversations are not decided from here.
    fn decides(&mut self, word: &str) -> bool {
        let Some(decision) = decision(word) else { return false };
        let here = self.place();
        if let Some((question, number)) = self.view.requests.of(&here.chat) {
            if self.begun.is_none_or(|shown| shown <= number) {
                self.note(&format!(
                    "{word:?} was typed before this request was shown; read it, then decide"
                ));
                self.result = Outcome::Failed;
                return true;
            }
            if self.bridge.is_answer(question, word, decision) {
                return false;
            }
            // It may have been withdrawn, or be too long to be accepted unseen.
            if let Err(error) = self.bridge.choose(question, decision, "you") {
                self.note(&error.to_string());
            }
            return true;
        }
        let elsewhere = self.view.requests.all().next().map(|question| question.chat.clone());
        if let Some(chat) = &elsewhere {
            self.note(&format!(
                "no approval request here; there is one in [{chat}]: /switch {chat}"
            ));
        } else {
            let hint = "to send it as a message, put a space before it";
            self.note(&format!("nothing was asked, so {word:?} was not sent; {hint}"));
        }
        self.result = Outcome::Failed;
        true
    }

    /// Declines what is asked: the input has ended, so nobody can answer.
    pub(super) fn decline_all(&self) {
        for question in self.view.requests.all() {
            let reply = Reply::from(Decision::Decline).because("standard input has ended");
            // It may be decided by now.
            let _ = self.bridge.choose(question, reply, "takopi");
        }
    }
}
