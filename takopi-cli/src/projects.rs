//! Projects in the command: `takopi projects`, `--project`, `--branch`, and `/NAME @branch` before a prompt.

use std::path::Path;

use clap::{Args, Subcommand};
use takopi_bridge::RunContext;
use takopi_bridge::present::clean;
use takopi_core::RunSettings;
use takopi_projects::config::{RESERVED, check_name};
use takopi_projects::{Context, Message, Names, Project, Projects, Repository};

use crate::args::RunOptions;
use crate::config::{self, Access, Config};
use crate::engines;
use crate::exit::{self, Usage};
use crate::terminal::{self, Terminal};

#[derive(Debug, Args)]
pub(crate) struct ProjectsArgs {
    #[command(subcommand)]
    command: Option<ProjectsCommand>,
}

#[derive(Debug, Subcommand)]
enum ProjectsCommand {
    /// Register the repository of the current directory
    Add {
        /// The name; by default that of the directory
        name: Option<String>,
    },
    /// Remove clean worktrees whose branch is merged or gone
    Prune {
        /// Only those of this project
        name: Option<String>,
    },
}

pub(crate) fn main(
    args: &ProjectsArgs,
    config: &Config,
    file: Option<&Path>,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    match &args.command {
        None => list(&config.projects, terminal),
        Some(ProjectsCommand::Add { name }) => add(name.as_deref(), &config.projects, file),
        Some(ProjectsCommand::Prune { name }) => prune(name.as_deref(), &config.projects),
    }
}

/// The names that messages can use. `commands` are those of the place.
pub(crate) fn names<'a>(
    projects: &Projects,
    commands: impl IntoIterator<Item = &'a str>,
) -> Result<Names, Usage> {
    let engines: Vec<String> = engines::all().map(|entry| entry.id().to_string()).collect();
    let names = Names::new(engines.iter().map(String::as_str), projects, commands);
    match names.shadowed() {
        Some(name) => Err(Usage::new(format!(
            "project `{name}` has the name of an engine or a command; give it another name"
        ))),
        None => Ok(names),
    }
}

impl RunOptions {
    /// Moves to the project and branch that the options name: directory, engine and settings. Returns
    /// where that is, if it has a name.
    pub(crate) fn enter_project(&mut self) -> anyhow::Result<Option<Context>> {
        let (named, branch) = (self.project.take(), self.branch.take());
        let project = match (&named, &branch) {
            (None, None) => return Ok(None),
            (Some(name), _) => {
                self.projects.project_of(&Context::new(name)).map_err(usage)?.clone()
            }
            // The repository of the directory, without a name.
            (None, Some(_)) => {
                let here = self.cd.clone().map_or_else(std::env::current_dir, Ok)?;
                Project::new("here", std::path::absolute(here)?)
            }
        };
        if self.cd.is_some() && self.flags.is_typed("cd") && named.is_some() {
            return Err(Usage::new("--cd and --project both name a directory; use one").into());
        }
        self.cd = Some(project.directory(branch.as_deref()).map_err(usage)?);
        if let Some(engine) = &project.engine
            && !self.flags.is_typed("engine")
            && !self.engine_chosen
        {
            self.change_engine(&engines::find(engine)?.id());
        }
        let chosen = engines::named(self.engine.as_deref())?;
        let mut settings = project.settings_for(&chosen.id(), &chosen.id());
        settings.retain(|name| chosen.understands(name));
        settings.fill_from(&self.defaults);
        self.defaults = settings;
        let mut context = Context::new(project.name);
        context.branch = branch;
        Ok(named.map(|_| context))
    }

    /// The engine, unless the prompt or the session names one.
    pub(crate) fn usual_engine(&self) -> Option<&str> {
        let project = self.project.as_deref().and_then(|name| self.projects.get(name));
        let engine = project.and_then(|project| project.engine.as_deref());
        engine.filter(|_| !self.flags.is_typed("engine")).or(self.engine.as_deref())
    }

    /// Chooses the project and branch of a run that is resumed, as the lines under its answer name them: the last resume
    /// line, and the one directly above it. The same anywhere else is part of the answer.
    pub(crate) fn return_to(&mut self, text: &str) -> Result<(), Usage> {
        if self.project.is_some() || self.branch.is_some() || self.flags.is_typed("cd") {
            return Ok(());
        }
        let runners = engines::readers(&engines::named(self.usual_engine())?.id())?;
        let resumes = |line: &str| runners.iter().any(|it| it.extract_resume(line).is_some());
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.iter().rposition(|line| resumes(line)).map_or(0, |at| at + 1);
        if let Some(context) = Context::at_end(&lines[..last].join("\n"), resumes) {
            self.project = Some(context.project);
            self.branch = context.branch;
        }
        Ok(())
    }
}

fn usage(error: impl std::fmt::Display) -> Usage {
    Usage::new(error.to_string())
}

/// Takes the directives off a prompt on the command line: `takopi run /web @fix 'make it work'`, in one
/// argument or in several.
pub(crate) fn take_directives(
    prompt: &mut Vec<String>,
    options: &mut RunOptions,
) -> Result<(), Usage> {
    let names = names(&options.projects, [])?;
    let begins = |text: &&String| text.trim_start().starts_with(['/', '@']);
    while let Some(first) = prompt.first().filter(begins) {
        let Message { engine, project, branch, text, .. } =
            names.read(first, options.project.is_some()).map_err(usage)?;
        if text == first.trim() {
            return Ok(());
        }
        if let Some(engine) = engine {
            let mut typed = options.engine.clone().filter(|_| options.flags.is_typed("engine"));
            choose("engine", &mut typed, Some(engine.clone()))?;
            options.choose_engine(&engines::find(&engine)?.id());
        }
        choose("project", &mut options.project, project)?;
        choose("branch", &mut options.branch, branch)?;
        if !text.is_empty() {
            prompt[0] = text;
            return Ok(());
        }
        prompt.remove(0);
    }
    Ok(())
}

/// Chooses what the prompt names, unless something else is chosen already.
fn choose(what: &str, chosen: &mut Option<String>, named: Option<String>) -> Result<(), Usage> {
    // Projects have no case, branches do.
    let is_same = |a: &str, b: &str| a == b || (what == "project" && a.eq_ignore_ascii_case(b));
    match (chosen.as_ref(), named) {
        (Some(earlier), Some(named)) if !is_same(earlier, &named) => Err(Usage::new(format!(
            "the {what} is {earlier}, and the prompt names {named}; name one"
        ))),
        (_, Some(named)) => {
            *chosen = Some(named);
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

/// Whether a message of a chat names a project: then [`place`] calls git. `Err` as there.
pub(crate) fn names_project(text: &str, projects: &Projects) -> Result<bool, String> {
    read(text, projects).map(|message| message.project.is_some())
}

fn read(text: &str, projects: &Projects) -> Result<Message, String> {
    let names = names(projects, []).map_err(|error| error.to_string())?;
    names.read(text, false).map_err(|error| error.to_string())
}

/// A message of a chat: the text for the bridge, and where it runs. `Err` if it begins with a `/word` that
/// names nothing. Blocks while git works.
pub(crate) fn place(
    text: &str,
    projects: &Projects,
) -> Result<Option<(String, RunContext)>, String> {
    let message = read(text, projects)?;
    let Some(project) = message.project else { return Ok(None) };
    if message.text.is_empty() {
        return Err(format!("the message says nothing; write what to do behind /{project}"));
    }
    let mut context = Context::new(project);
    context.branch = message.branch;
    let found = projects.project_of(&context).map_err(|error| error.to_string())?;
    let directory = projects.directory(&context).map_err(|error| error.to_string())?;
    let mut settings = RunSettings::new().cwd(directory);
    let engine = message.engine.or_else(|| found.engine.clone());
    if engine == found.engine {
        settings.fill_from(&found.settings);
    }
    let text = match engine {
        Some(engine) => format!("/{engine} {}", message.text),
        None => message.text,
    };
    Ok(Some((text, RunContext::new(settings).line(context.to_string()))))
}

fn list(projects: &Projects, terminal: Terminal) -> anyhow::Result<u8> {
    if projects.is_empty() {
        terminal.note("no projects; `takopi projects add` registers the current repository");
        return Ok(exit::OK);
    }
    let mut lines = Vec::new();
    for project in projects.iter() {
        let state = match Repository::open(project) {
            Ok(repository) => {
                let branch = repository.current().unwrap_or_else(|| "(no branch)".to_owned());
                format!("on {branch}, {} worktrees", repository.count())
            }
            Err(_) if project.path.is_dir() => "not a git repository".to_owned(),
            Err(_) => "missing".to_owned(),
        };
        let engine = project.engine.as_ref().map(|it| format!(", {it}")).unwrap_or_default();
        let path = project.path.display();
        lines.push(format!("{:<16} {path}  ({state}{engine})\n", project.name));
    }
    terminal::print(lines.concat().as_bytes())?;
    Ok(exit::OK)
}

fn add(name: Option<&str>, projects: &Projects, file: Option<&Path>) -> anyhow::Result<u8> {
    let here = std::env::current_dir()?;
    let repository = Repository::open(&Project::new("here", &here))
        .map_err(|_| Usage::new(format!("{} is not in a git repository", here.display())))?;
    let path = repository.main_directory();
    let named = name.map(str::to_owned).or_else(|| {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        Some(name.chars().map(safe).collect::<String>().trim_matches('-').to_owned())
    });
    let name = named.unwrap_or_default().to_lowercase();
    check_name(&name).map_err(|error| Usage::new(format!("{name:?} is no name: {error}")))?;
    check_free(&name, path, projects)?;
    let table = format!("[projects.{name}]\npath = {}\n", toml_text(&path.to_string_lossy()));
    // Another process may have added one meanwhile.
    let check = |now: &Config| check_free(&name, path, &now.projects);
    let file = config::append(file, &table, Access::AsItIs, check)?;
    let text = format!("project {name}: {} (in {})\n", path.display(), file.display());
    terminal::print(text.as_bytes())?;
    Ok(exit::OK)
}

/// Refuses the name of a project that there is, or that messages could not name.
fn check_free(name: &str, path: &Path, projects: &Projects) -> Result<(), Usage> {
    let hint = "choose another name: takopi projects add OTHER_NAME";
    if let Some(known) = projects.get(name) {
        let path = known.path.display();
        return Err(Usage::new(format!("project {name} exists: {path}; {hint}")));
    }
    if RESERVED.contains(&name) {
        return Err(Usage::new(format!("/{name} is a command of takopi's chats; {hint}")));
    }
    let mut all = projects.clone();
    all.add(Project::new(name, path));
    names(&all, []).map(|_| ())
}

/// A text as TOML writes it. A JSON string is one.
pub(crate) fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn prune(name: Option<&str>, projects: &Projects) -> anyhow::Result<u8> {
    let chosen: Vec<&Project> = match name {
        Some(name) => vec![projects.project_of(&Context::new(name)).map_err(usage)?],
        None => projects.iter().collect(),
    };
    let mut code = exit::OK;
    let mut lines = Vec::new();
    for project in chosen {
        match Repository::open(project).and_then(|repository| repository.prune()) {
            Ok(pruned) => {
                lines.extend(pruned.iter().map(|one| format!("{}: {one}", project.name)));
            }
            Err(error) => {
                lines.push(format!("{}: {error}", project.name));
                code = exit::FAILED;
            }
        }
    }
    if lines.is_empty() {
        lines.push("there are no worktrees".to_owned());
    }
    // Agents name the files.
    let lines: Vec<String> = lines.iter().map(|line| format!("{}\n", clean(line))).collect();
    terminal::print(lines.concat().as_bytes())?;
    Ok(code)
}
