//! How the runs of a conversation are to be run, as a person chose when it began.
//!
//! What is not chosen is as the command line says. A choice is checked before the conversation begins.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use takopi_bridge::RunContext;
use takopi_core::settings::directory_problem;
use takopi_core::{EngineId, RunSettings};

use crate::args::{Approve, RunOptions};
use crate::engines;

/// The most bytes of one of them.
const MOST: usize = 4096;
/// The efforts that engines know; any other can be typed.
const EFFORTS: [&str; 5] = ["minimal", "low", "medium", "high", "xhigh"];

/// What was chosen for a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Choice {
    pub(super) engine: Option<String>,
    pub(super) project: Option<String>,
    /// A branch of the project.
    pub(super) branch: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) model: Option<String>,
    pub(super) effort: Option<String>,
    pub(super) approve: Option<Approve>,
    /// The directory and the settings of the project: those of every message, although only the first one
    /// names it.
    #[serde(skip)]
    pub(super) placed: RunSettings,
}

impl Choice {
    /// Leaves out what is empty, and refuses what cannot be.
    pub(super) fn checked(mut self) -> Result<Self, String> {
        let (place, model) = ([&mut self.project, &mut self.branch], &mut self.model);
        let others = [&mut self.engine, &mut self.cwd, model, &mut self.effort];
        for field in place.into_iter().chain(others) {
            let text = field.take().map(|text| text.trim().to_owned());
            *field = text.filter(|text| !text.is_empty());
            if field.as_ref().is_some_and(|text| text.len() > MOST) {
                return Err("the choice is too long".to_owned());
            }
        }
        if let Some(engine) = &self.engine {
            engines::find(engine).map_err(|error| error.to_string())?;
        }
        // One word each, as a message writes them.
        for name in [&self.project, &self.branch].into_iter().flatten() {
            if name.contains(char::is_whitespace) {
                return Err(format!("{name:?} is not the name of a project or a branch"));
            }
        }
        if self.branch.is_some() && self.project.is_none() {
            return Err("a branch needs a project".to_owned());
        }
        if self.project.is_some() && self.cwd.is_some() {
            return Err("a project has its own directory; choose one of them".to_owned());
        }
        if let Some(directory) = &mut self.cwd {
            let path = expanded(directory);
            if let Some(problem) = directory_problem(&path) {
                return Err(problem);
            }
            let path = std::path::absolute(&path).unwrap_or(path);
            *directory = path.to_string_lossy().into_owned();
        }
        Ok(self)
    }

    /// Project and branch as a message names them, with the engine, which is then chosen before the project's.
    pub(super) fn directives(&self) -> String {
        let Some(project) = &self.project else { return String::new() };
        let branch = self.branch.as_ref().map(|it| format!("@{it} ")).unwrap_or_default();
        let engine = self.engine.as_ref().map(|it| format!("/{it} ")).unwrap_or_default();
        format!("/{project} {branch}{engine}")
    }

    /// The choice and the context of a message, each with what the other has: runs are in the directory of the
    /// context, with the model and effort that were chosen.
    pub(super) fn placed(mut self, context: Option<RunContext>) -> (Self, Option<RunContext>) {
        let Some(mut context) = context else { return (self, None) };
        let directory = context.settings.cwd.as_deref();
        self.cwd = directory.map(|it| it.to_string_lossy().into_owned());
        self.placed = context.settings;
        context.settings = self.settings();
        (self, Some(context))
    }

    pub(super) fn engine(&self) -> Option<EngineId> {
        self.engine.clone().map(EngineId::from)
    }

    /// The settings of a run.
    pub(super) fn settings(&self) -> RunSettings {
        let mut settings = RunSettings::new();
        settings.cwd = self.placed.cwd.clone().or_else(|| self.cwd.clone().map(PathBuf::from));
        settings.model.clone_from(&self.model);
        settings.effort.clone_from(&self.effort);
        settings.fill_from(&self.placed);
        settings
    }
}

/// A directory in which `~` is the home directory.
pub(crate) fn expanded(directory: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match (directory.strip_prefix('~'), home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(directory),
    }
}

/// What can be chosen, and what it is if nothing is.
pub(super) fn offered(options: &RunOptions) -> Value {
    let default = engines::named(options.engine.as_deref()).map(|entry| entry.id().to_string());
    let engines = engines::all().map(|entry| {
        let settings = options.settings_of(entry);
        json!({
            "id": entry.id(),
            "title": entry.title(),
            "model": entry.understands("model").then(|| settings.model.unwrap_or_default()),
            "effort": entry.understands("effort").then(|| settings.effort.unwrap_or_default()),
        })
    });
    let directory = options.settings().cwd.or_else(|| std::env::current_dir().ok());
    let projects = options.projects.iter().map(
        |project| json!({ "name": project.name, "path": project.path, "engine": project.engine }),
    );
    json!({
        "projects": projects.collect::<Vec<_>>(),
        "engine": default.unwrap_or_default(),
        "engines": engines.collect::<Vec<_>>(),
        "directory": directory.map(|it| it.display().to_string()),
        "efforts": EFFORTS,
        "approve": options.approve.unwrap_or(Approve::Ask),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_checked_and_what_is_empty_is_not_chosen() {
        let checked = |text: &str| serde_json::from_str::<Choice>(text).unwrap().checked();
        assert_eq!(checked(r#"{"engine":"","model":" ","cwd":null}"#), Ok(Choice::default()));
        let good =
            checked(r#"{"engine":"demo","cwd":"/","approve":"accept","model":" m "}"#).unwrap();
        assert_eq!((good.model.as_deref(), good.approve), (Some("m"), Some(Approve::Accept)));
        assert_eq!(good.settings().cwd, Some(PathBuf::from("/")));
        assert!(
            checked(r#"{"engine":"robot"}"#).unwrap_err().starts_with("unknown engine `robot`")
        );
        let nowhere = checked(r#"{"cwd":"/nowhere/at/all"}"#).unwrap_err();
        assert_eq!(nowhere, "the directory /nowhere/at/all does not exist");
        assert!(serde_json::from_str::<Choice>(r#"{"sandbox":"off"}"#).is_err());
    }

    #[test]
    fn a_project_is_named_as_a_message_does_and_has_its_own_directory() {
        let checked = |text: &str| serde_json::from_str::<Choice>(text).unwrap().checked();
        let chosen = checked(r#"{"project":"web","branch":"fix/tabs","engine":"demo"}"#).unwrap();
        assert_eq!(chosen.directives(), "/web @fix/tabs /demo ");
        assert_eq!(checked("{}").unwrap().directives(), "");
        for wrong in
            [r#"{"branch":"a"}"#, r#"{"project":"web","cwd":"/"}"#, r#"{"project":"web x"}"#]
        {
            assert!(checked(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_chosen_counts_before_the_settings_of_the_project() {
        let mut settings = RunSettings::new().cwd("/srv/web");
        settings.model = Some("small".to_owned());
        settings.effort = Some("low".to_owned());
        settings.sandbox = Some("read-only".to_owned());
        let chosen = Choice { model: Some("large".to_owned()), ..Choice::default() };
        let (choice, context) = chosen.placed(Some(RunContext::new(settings)));
        let settings = context.unwrap().settings;
        assert_eq!(
            (settings.model.as_deref(), settings.effort.as_deref()),
            (Some("large"), Some("low"))
        );
        assert_eq!(choice.cwd.as_deref(), Some("/srv/web"));
        // Later messages name no project.
        assert_eq!(settings.sandbox.as_deref(), Some("read-only"));
        assert_eq!(choice.settings(), settings);
    }
}
