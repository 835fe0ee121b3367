//! `/NAME` and `@branch` at the start of a message.
//!
//! Rules:
//! - only the start of the first line that is not empty is read; the first word that is neither a name nor a
//!   branch ends it, and the message goes on there;
//! - `/NAME` names an engine, a project or a command, in upper or lower case; `/NAME@bot`, the form of
//!   chats with many bots, is the same. `/PROJECT@word` with another word is refused: it is a branch without
//!   the space, and the project itself is not where that was meant to run;
//! - a `/word` that names none of these is refused with the nearest names. `/usr/bin` and `/a.txt` are no such
//!   words: they begin the message;
//! - `@branch` counts only where there is a project, so that a message to `@somebody` stays one.
//!
//! A reply is not read at all: it goes on where the message it replies to ran.

use thiserror::Error;

use crate::config::Projects;

/// How many names an error suggests.
const SUGGESTED: usize = 3;

/// Why a message is not sent to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirectiveError {
    /// The word names nothing.
    #[error("/{name} is no engine, project or command{}", suggestion(.nearest))]
    Unknown {
        /// The word.
        name: String,
        /// The nearest names.
        nearest: Vec<String>,
    },
    /// A branch stands right behind its project.
    #[error("/{project}@{branch}: put a space before @{branch} if that is a branch")]
    NoSpace {
        /// The project.
        project: String,
        /// What is behind it.
        branch: String,
    },
    /// Two projects are named.
    #[error("the message names two projects, {0} and {1}; name one")]
    TwoProjects(String, String),
    /// Two engines are named.
    #[error("the message names two engines, {0} and {1}; name one")]
    TwoEngines(String, String),
    /// Two branches are named.
    #[error("the message names two branches, {0} and {1}; name one")]
    TwoBranches(String, String),
}

fn suggestion(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<String> = names.iter().map(|name| format!("/{name}")).collect();
    format!("; did you mean {}?", names.join(", "))
}

/// A message with its directives taken off.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Message {
    /// The engine that it names.
    pub engine: Option<String>,
    /// The project that it names.
    pub project: Option<String>,
    /// The branch that it names.
    pub branch: Option<String>,
    /// The command that it is; the text has its arguments.
    pub command: Option<String>,
    /// The rest.
    pub text: String,
}

/// The names that messages can use.
#[derive(Debug, Clone, Default)]
pub struct Names {
    engines: Vec<String>,
    projects: Vec<String>,
    commands: Vec<String>,
    /// The account that people write behind a name, in lower case and without `@`.
    bot: Option<String>,
}

enum Named<'a> {
    Engine(&'a str),
    Project(&'a str),
    Command(&'a str),
}

impl Names {
    /// These engines, projects and commands.
    pub fn new<'a, 'b>(
        engines: impl IntoIterator<Item = &'a str>,
        projects: &Projects,
        commands: impl IntoIterator<Item = &'b str>,
    ) -> Self {
        Self {
            engines: engines.into_iter().map(str::to_lowercase).collect(),
            projects: projects.iter().map(|project| project.name.clone()).collect(),
            commands: commands.into_iter().map(str::to_lowercase).collect(),
            bot: None,
        }
    }

    /// Sets the account that people may write behind a name: `/NAME@bot`.
    pub fn bot(mut self, account: &str) -> Self {
        self.bot = Some(account.trim_start_matches('@').to_lowercase());
        self
    }

    /// A project with the name of an engine or a command, which messages could not name.
    pub fn shadowed(&self) -> Option<&str> {
        let others = || self.engines.iter().chain(&self.commands);
        let found = self.projects.iter().find(|project| others().any(|other| other == *project));
        found.map(String::as_str)
    }

    /// Reads the directives of a message. `has_project`: whether `@branch` counts without a project in the
    /// message, because its place has one.
    pub fn read(&self, text: &str, has_project: bool) -> Result<Message, DirectiveError> {
        let mut message = Message::default();
        let mut rest = text.trim_start();
        // Directives stand on one line.
        while let Some((word, behind)) = first_word(rest) {
            if let Some((name, account)) = slash_word(word) {
                match self.named(name) {
                    Some(Named::Engine(engine)) => {
                        set(&mut message.engine, engine, DirectiveError::TwoEngines)?;
                    }
                    Some(Named::Project(project)) => {
                        self.check_account(project, account)?;
                        set(&mut message.project, project, DirectiveError::TwoProjects)?;
                    }
                    Some(Named::Command(command)) if message == Message::default() => {
                        message.command = Some(command.to_owned());
                        behind.trim().clone_into(&mut message.text);
                        return Ok(message);
                    }
                    // A command behind a project is text.
                    Some(Named::Command(_)) => break,
                    None => return Err(self.unknown(name)),
                }
            } else if let Some(branch) = word.strip_prefix('@').filter(|it| !it.is_empty())
                && (has_project || message.project.is_some())
            {
                set(&mut message.branch, branch, DirectiveError::TwoBranches)?;
            } else {
                break;
            }
            rest = behind.trim_start_matches([' ', '\t']);
            if rest.starts_with(['\n', '\r']) {
                break;
            }
        }
        rest.trim().clone_into(&mut message.text);
        Ok(message)
    }

    fn check_account(&self, project: &str, account: Option<&str>) -> Result<(), DirectiveError> {
        match account {
            Some(account) if self.bot.as_deref() != Some(account.to_lowercase().as_str()) => {
                let (project, branch) = (project.to_owned(), account.to_owned());
                Err(DirectiveError::NoSpace { project, branch })
            }
            _ => Ok(()),
        }
    }

    fn named(&self, name: &str) -> Option<Named<'_>> {
        let find = |names: &'_ [String]| names.iter().position(|it| it.eq_ignore_ascii_case(name));
        find(&self.engines)
            .map(|at| Named::Engine(&self.engines[at]))
            .or_else(|| find(&self.commands).map(|at| Named::Command(&self.commands[at])))
            .or_else(|| find(&self.projects).map(|at| Named::Project(&self.projects[at])))
    }

    fn unknown(&self, name: &str) -> DirectiveError {
        let wanted = name.to_lowercase();
        let all = self.engines.iter().chain(&self.projects).chain(&self.commands);
        let mut near: Vec<(usize, &String)> = all
            .map(|known| (strsim::damerau_levenshtein(&wanted, known), known))
            .filter(|(distance, known)| {
                *distance <= (known.len() / 2).max(1) || known.starts_with(&wanted)
            })
            .collect();
        near.sort();
        let nearest = near.into_iter().take(SUGGESTED).map(|(_, known)| known.clone()).collect();
        DirectiveError::Unknown { name: name.to_owned(), nearest }
    }
}

fn set(
    place: &mut Option<String>,
    name: &str,
    twice: fn(String, String) -> DirectiveError,
) -> Result<(), DirectiveError> {
    match place.replace(name.to_owned()) {
        Some(earlier) if earlier != name => Err(twice(earlier, name.to_owned())),
        _ => Ok(()),
    }
}

/// The first word, and what is behind it.
fn first_word(text: &str) -> Option<(&str, &str)> {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// The name of a `/word`, and the account of a `/word@account`.
fn slash_word(word: &str) -> Option<(&str, Option<&str>)> {
    let name = word.strip_prefix('/')?;
    let (name, account) = match name.split_once('@') {
        Some((name, account)) => (name, Some(account)),
        None => (name, None),
    };
    let allowed = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    (!name.is_empty() && name.len() <= 64 && name.chars().all(allowed)).then_some((name, account))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Project;

    fn names() -> Names {
        let mut projects = Projects::default();
        projects.add(Project::new("web", "/srv/web"));
        projects.add(Project::new("webhook", "/srv/hook"));
        Names::new(["codex", "claude"], &projects, ["help", "new"])
    }

    fn read(text: &str) -> Message {
        names().read(text, false).unwrap()
    }

    #[test]
    fn names_come_in_any_order_on_the_first_line_that_is_not_empty() {
        let message = read("\n\n /web @fix/parser /codex make it\nwork");
        assert_eq!(message.project.as_deref(), Some("web"));
        assert_eq!(message.branch.as_deref(), Some("fix/parser"));
        assert_eq!(message.engine.as_deref(), Some("codex"));
        assert_eq!(message.text, "make it\nwork");
        let named = names().bot("@My_Bot");
        let message = named.read("/WEB@my_bot\n@later is text", false).unwrap();
        assert_eq!((message.project.as_deref(), message.branch), (Some("web"), None));
        assert_eq!(message.text, "@later is text");
    }

    #[test]
    fn the_first_other_word_ends_the_directives() {
        assert_eq!(
            read("look at /web @x"),
            Message { text: "look at /web @x".into(), ..Message::default() }
        );
        for text in ["/usr/bin/env is missing", "/a.txt", "/", "@somebody hello", "@ x", "/web/src"]
        {
            assert_eq!(read(text).text, text);
            assert_eq!(read(text).project, None);
        }
    }

    #[test]
    fn a_branch_counts_where_there_is_a_project() {
        let message = names().read("@größe/x go", true).unwrap();
        assert_eq!(message.branch.as_deref(), Some("größe/x"));
        assert_eq!(read("@x go").branch, None);
        assert_eq!(read("@x /web go").text, "@x /web go", "the project comes first");
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_nearest_names() {
        let error = |text: &str| names().read(text, false).unwrap_err().to_string();
        assert_eq!(error("/wbe fix"), "/wbe is no engine, project or command; did you mean /web?");
        assert_eq!(
            error("/webh"),
            "/webh is no engine, project or command; did you mean /web, /webhook?"
        );
        assert_eq!(error("/zzzzzzzz"), "/zzzzzzzz is no engine, project or command");
        assert_eq!(error("/web /zzzzzzzz"), "/zzzzzzzz is no engine, project or command");
    }

    #[test]
    fn a_branch_without_a_space_is_refused_and_not_lost() {
        for names in [names(), names().bot("my_bot")] {
            let error = names.read("/web@fix/parser do it", false).unwrap_err().to_string();
            assert_eq!(
                error,
                "/web@fix/parser: put a space before @fix/parser if that is a branch"
            );
        }
    }

    #[test]
    fn two_of_a_kind_are_refused_and_twice_the_same_is_not() {
        let error = |text: &str| names().read(text, false).unwrap_err().to_string();
        assert_eq!(
            error("/web /webhook x"),
            "the message names two projects, web and webhook; name one"
        );
        assert_eq!(
            error("/codex /claude"),
            "the message names two engines, codex and claude; name one"
        );
        assert_eq!(error("/web @a @b"), "the message names two branches, a and b; name one");
        assert_eq!(read("/web /web x").text, "x");
    }

    #[test]
    fn a_command_takes_the_rest_as_its_arguments() {
        let message = read("/help /web @x");
        assert_eq!((message.command.as_deref(), message.text.as_str()), (Some("help"), "/web @x"));
        let message = read("/web /help x");
        assert_eq!((message.command, message.text.as_str()), (None, "/help x"));
    }

    #[test]
    fn a_project_that_messages_cannot_name_is_reported() {
        assert_eq!(names().shadowed(), None);
        let mut projects = Projects::default();
        projects.add(Project::new("help", "/x"));
        assert_eq!(Names::new([], &projects, ["help"]).shadowed(), Some("help"));
    }

    proptest! {
        /// Nothing of a message is lost but directives and the space around it.
        #[test]
        fn the_rest_of_a_message_is_its_end(text in "\\PC*", has_project: bool) {
            if let Ok(message) = names().read(&text, has_project) {
                prop_assert!(text.trim().ends_with(&message.text));
            }
        }
    }
}
