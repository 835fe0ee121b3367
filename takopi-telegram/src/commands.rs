//! The commands of the bot. A command stands at the beginning of a message; everything else is a prompt.

use std::fmt::Write as _;

use serde_json::{Value, json};
use takopi_bridge::{MessageId, Place, Target};
use takopi_projects::Context;

use crate::bot::Bot;
use crate::files;
use crate::prompt::root;
use crate::state::PlaceState;
use crate::transport::place_key;
use crate::update::Message;

/// The commands: name, description.
const COMMANDS: [(&str, &str); 9] = [
    ("cancel", "cancel the run you reply to, or all of this chat"),
    ("new", "begin a new conversation"),
    ("ctx", "show project, branch, engine and model of this chat"),
    ("projects", "list the projects"),
    ("agent", "choose the engine for this chat: /agent claude"),
    ("model", "choose the model for this chat: /model NAME"),
    ("effort", "choose the reasoning effort for this chat: /effort high"),
    ("file", "send a file or directory of the project: /file get PATH"),
    ("help", "show what you can write"),
];

/// The names of all commands.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    // The first message that Telegram's clients send to a bot is `/start`.
    COMMANDS.iter().map(|(name, _)| *name).chain(["start"])
}

/// The menu for the service.
pub(crate) fn menu() -> Value {
    COMMANDS.iter().map(|(name, about)| json!({ "command": name, "description": about })).collect()
}

/// The command at the beginning of a text, and the rest.
pub(crate) fn read(text: &str) -> Option<(&'static str, &str)> {
    let text = text.trim();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let name = text[..end].strip_prefix('/')?;
    let name = name.split_once('@').map_or(name, |(name, _bot)| name);
    let found = names().find(|known| known.eq_ignore_ascii_case(name))?;
    Some((found, text[end..].trim()))
}

impl Bot {
    /// Runs a command. `Err` is a refusal; both are shown.
    pub(crate) async fn command(
        &self,
        name: &str,
        rest: &str,
        message: &Message,
        place: &Place,
    ) -> Result<(), String> {
        let text = match name {
            "cancel" => self.cancel(message, place),
            "new" => {
                self.new_conversation(place, message.id);
                "the next message begins a new conversation".to_owned()
            }
            "ctx" => self.where_am_i(place),
            "projects" => self.list_projects(),
            "agent" => self.choose_engine(rest, place)?,
            "model" => self.choose(rest, place, "model", |state| &mut state.model),
            "effort" => self.choose(rest, place, "effort", |state| &mut state.effort),
            "file" => return self.file(rest, message, place).await,
            _ => self.help(),
        };
        self.notice(place, message, text);
        Ok(())
    }

    fn cancel(&self, message: &Message, place: &Place) -> String {
        let target = match &message.reply {
            Some(reply) => Target::Message(MessageId::from(reply.id.to_string()).at(&place.chat)),
            None => Target::Place(place.clone()),
        };
        let cancelled = self.bridge.cancel(target, Some(&message.user.name));
        if cancelled.is_empty() {
            return "there is nothing to cancel".to_owned();
        }
        cancelled.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
    }

    fn state(&self, place: &Place) -> PlaceState {
        self.store.read(|stored| stored.places.get(&place_key(place)).cloned()).unwrap_or_default()
    }

    fn where_am_i(&self, place: &Place) -> String {
        let state = self.state(place);
        let bound = self.projects.of_chat(&place.chat, place.thread.as_deref());
        let last = state.footer.as_deref().and_then(Context::find);
        let mut text = match (last, bound) {
            (Some(context), _) => context.to_string(),
            (None, Some(project)) => Context::new(&project.name).to_string(),
            (None, None) => "no project; name one with /NAME".to_owned(),
        };
        let default = self.engines.first().map(ToString::to_string);
        let project = bound.and_then(|project| project.engine.clone());
        let engine = state.engine.or(project).or(default).unwrap_or_default();
        let _ = write!(text, "\n\nengine {engine}");
        for (name, value) in [("model", state.model), ("effort", state.effort)] {
            let _ = write!(text, " · {name} {}", value.as_deref().unwrap_or("default"));
        }
        let _ = write!(text, "\n\nchat id {}", place_key(place));
        text
    }

    fn list_projects(&self) -> String {
        if self.projects.is_empty() {
            return "there are no projects; `takopi projects add` registers one".to_owned();
        }
        let line = |project: &takopi_projects::Project| {
            let missing = if project.path.is_dir() { "" } else { " (missing)" };
            format!("- /{}{missing}", project.name)
        };
        self.projects.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn choose_engine(&self, rest: &str, place: &Place) -> Result<String, String> {
        let known: Vec<&str> = self.engines.iter().map(takopi_core::EngineId::as_str).collect();
        if !rest.is_empty() && !known.iter().any(|known| known.eq_ignore_ascii_case(rest)) {
            return Err(format!("there is no engine {rest}; known engines: {}", known.join(", ")));
        }
        let name = rest.to_lowercase();
        Ok(self.choose(&name, place, "engine", |state| &mut state.engine))
    }

    /// Sets what a place has chosen; nothing takes it back.
    fn choose(
        &self,
        value: &str,
        place: &Place,
        what: &str,
        field: impl Fn(&mut PlaceState) -> &mut Option<String>,
    ) -> String {
        let value = Some(value.trim()).filter(|value| !value.is_empty());
        let value: Option<String> = value.map(|value| value.chars().take(100).collect());
        self.store.change(|stored| {
            let state = stored.used(place_key(place));
            field(state).clone_from(&value);
        });
        match value {
            Some(value) => format!("new conversations here use {what} {value}"),
            None => format!("new conversations here use the default {what}"),
        }
    }

    async fn file(&self, rest: &str, message: &Message, place: &Place) -> Result<(), String> {
        let Some(path) = rest.strip_prefix("get ").map(str::trim).filter(|path| !path.is_empty())
        else {
            return Err("write /file get PATH, with a path in the project".to_owned());
        };
        let replied = match &message.reply {
            Some(reply) => self.context_of(reply, place).await?,
            None => None,
        };
        let context = match (replied, self.bridge.context_in(place)) {
            (Some(replied), _) => Some(replied),
            (None, Some(last)) => last,
            // Since the start there was no run: as `/ctx` says.
            (None, None) => {
                let footer = self.state(place).footer.unwrap_or_default();
                self.context_in_text(&footer, place).await?
            }
        };
        let bound = self.projects.of_chat(&place.chat, place.thread.as_deref());
        let otherwise = bound.map_or(&self.directory, |project| &project.path);
        let directory = root(context.as_ref(), otherwise).to_owned();
        let (path, limit) = (path.to_owned(), self.config.max_file);
        let fetched = tokio::task::spawn_blocking(move || files::fetch(&directory, &path, limit));
        let fetched = fetched.await.map_err(|error| error.to_string())?;
        let file = fetched.map_err(|error| {
            tracing::warn!(%error, user = message.user.id, "a file was not sent");
            error.to_string()
        })?;
        let mut params = json!({
            "chat_id": message.origin.chat,
            "reply_parameters": { "message_id": message.id },
        });
        if let Some(topic) = message.origin.topic {
            params["message_thread_id"] = topic.into();
        }
        let sent = self.transport.send_file(message.origin.chat, &params, &file).await;
        sent.map_err(|error| format!("cannot send the file: {error}"))
    }

    fn help(&self) -> String {
        let engines: Vec<String> = self.engines.iter().map(|it| format!("/{it}")).collect();
        let mut text = format!(
            "Write a message, and the agent answers. Reply to go on in its session.\n\n\
             Before a message: /PROJECT, @branch, or an engine ({}).\n\n",
            engines.join(", ")
        );
        for (name, about) in COMMANDS {
            let _ = writeln!(text, "- /{name}: {about}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_project_gets_the_name_of_a_command() {
        for name in names() {
            assert!(takopi_projects::config::RESERVED.contains(&name), "{name}");
        }
    }
}
