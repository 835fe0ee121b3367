//! The configuration file: defaults for flags and `TAKOPI_*` variables that are not set.
//!
//! `--config`, else `TAKOPI_CONFIG`, else `takopi/config.toml` under `XDG_CONFIG_HOME` or `~/.config`.
//! Its keys are the names of the flags; a table with the name of an engine has settings for that engine alone,
//! which win over those above it. `[engines.NAME]` is an agent that speaks ACP, by its command line. A file that is
//! named must exist; errors name the file and the line.

mod append;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use takopi_acp::{AcpEntry, Agent};
use takopi_core::catalog::{COMMON_SETTINGS, EngineEntry};
use takopi_core::{EngineId, RunSettings};
use takopi_projects::Projects;
use toml::Spanned;

pub(crate) use self::append::{Access, append};
use crate::args::{Approve, Color};
use crate::engines;
use crate::exit::Usage;

/// The settings of a file.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) engine: Option<String>,
    pub(crate) transport: Option<String>,
    pub(crate) approve: Option<Approve>,
    /// The programs of engines, by flag.
    pub(crate) programs: BTreeMap<&'static str, PathBuf>,
    pub(crate) color: Option<Color>,
    /// The settings of every run.
    pub(crate) run: RunSettings,
    /// The settings of runs on one engine, by engine.
    pub(crate) engines: BTreeMap<EngineId, RunSettings>,
    /// The projects.
    pub(crate) projects: Projects,
    /// The table of `takopi telegram`.
    pub(crate) telegram: Map<String, Value>,
    /// The table of the fleet.
    pub(crate) fleet: FleetTable,
    /// The agents that the file names by their command lines.
    pub(crate) agents: Vec<Agent>,
}

/// The table `[fleet]`, for those who submit and for workers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FleetTable {
    /// The address of the database.
    pub(crate) url: Option<String>,
    /// The directories of this machine that are places of the fleet, by their names.
    pub(crate) places: BTreeMap<String, String>,
    /// The name of the worker.
    pub(crate) name: Option<String>,
    /// How many runs the worker takes at once.
    pub(crate) slots: Option<u32>,
    /// The labels of the worker.
    pub(crate) labels: Vec<String>,
    /// The engines of the worker.
    pub(crate) engines: Vec<String>,
    /// The owners of repositories that the worker serves: `HOST/OWNER`, or `file`.
    pub(crate) git: Vec<String>,
    /// The places whose content is on this machine only.
    pub(crate) own_places: Vec<String>,
    /// What jobs may ask of the worker.
    pub(crate) allow: AllowTable,
}

/// The table `[fleet.allow]`: what is not said is as by default, `*` allows all.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AllowTable {
    pub(crate) sandboxes: Option<Vec<String>>,
    pub(crate) permission_modes: Option<Vec<String>>,
    pub(crate) options: Option<Vec<String>>,
    pub(crate) env: Option<Vec<String>>,
    /// Whether submitters may answer approval requests.
    pub(crate) approvals: Option<bool>,
    /// Whether jobs may run without a place.
    pub(crate) scratch: Option<bool>,
}

/// A table `[engines.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AgentTable {
    /// Only `acp`; takopi's own agents need none.
    kind: Option<String>,
    /// The program and its arguments.
    command: Option<Vec<String>>,
    /// The name of the session store.
    sessions: Option<String>,
    /// The command that resumes a session interactively.
    resume: Option<String>,
    /// What people read.
    title: Option<String>,
}

impl AgentTable {
    fn into_agent(self, name: &str) -> Result<Agent, String> {
        match self.kind.as_deref() {
            Some("acp") => {}
            None if Agent::preset(name).is_some() => {}
            None => return Err(format!("engines.{name}: `kind` is missing; it must be \"acp\"")),
            Some(kind) => {
                return Err(format!("engines.{name}: unknown kind `{kind}`; known: acp"));
            }
        }
        if engines::is_fixed(name) {
            return Err(format!("engines.{name}: {name} is built in; choose another name"));
        }
        let need = |what: &str| format!("engines.{name}: `{what}` is missing");
        let agent = match (Agent::preset(name), self.command) {
            (Some(preset), Some(command)) => preset.with_command(command),
            (Some(preset), None) => Ok(preset),
            (None, command) => {
                let command = command.ok_or_else(|| need("command"))?;
                let store = self.sessions.clone().ok_or_else(|| {
                    let what = need("sessions");
                    format!("{what}: name the agent's session store, the same for engines that reach the same sessions")
                })?;
                Agent::custom(name, command, store)
            }
        };
        let mut agent = agent.map_err(|error| error.to_string())?;
        if let Some(store) = self.sessions {
            agent = agent.with_store(store).map_err(|error| error.to_string())?;
        }
        if let Some(resume) = self.resume {
            agent = agent.resumed_by(&resume).map_err(|error| error.to_string())?;
        }
        if let Some(title) = self.title {
            agent = agent.with_title(title);
        }
        Ok(agent)
    }
}

impl Config {
    /// Sets one setting by its name.
    fn set(&mut self, name: &str, value: Value) -> Result<(), String> {
        fn read<T: DeserializeOwned>(value: Value) -> Result<Option<T>, String> {
            serde_json::from_value(value).map(Some).map_err(|error| error.to_string())
        }
        match name {
            "engine" => {
                let engine: String = read(value)?.unwrap_or_default();
                self.check_engine(&engine)?;
                self.engine = Some(engine);
            }
            "transport" => {
                let transport: String = read(value)?.unwrap_or_default();
                let known: Vec<&str> = engines::transports().map(|known| known.name).collect();
                if !known.contains(&transport.as_str()) {
                    let known = known.join(", ");
                    return Err(format!("unknown transport `{transport}`; known: {known}"));
                }
                self.transport = Some(transport);
            }
            "engines" => {
                let tables: BTreeMap<String, AgentTable> = read(value)?.unwrap_or_default();
                for (name, table) in tables {
                    self.agents.push(table.into_agent(&name)?);
                }
            }
            "approve" => self.approve = read(value)?,
            "color" => self.color = read(value)?,
            "projects" => {
                let table: Map<String, Value> = read(value)?.unwrap_or_default();
                self.projects = Projects::read(&table).map_err(|error| error.to_string())?;
            }
            "fleet" => self.fleet = read(value)?.unwrap_or_default(),
            "telegram" => self.telegram = read(value)?.unwrap_or_default(),
            _ if let Some(program) = engines::programs().find(|program| program.flag == name) => {
                self.programs.extend(read(value)?.map(|path: PathBuf| (program.flag, path)));
            }
            _ if let (Some(agent), Value::Object(settings)) = (self.agent(name), &value) => {
                return self.set_engine(&AcpEntry::new(agent.clone()), settings);
            }
            _ if let (Ok(entry), Value::Object(settings)) = (engines::find(name), &value) => {
                return self.set_engine(entry, settings);
            }
            _ => self.run.set(name, &value).map_err(|error| error.to_string())?,
        }
        Ok(())
    }

    /// Refuses a name that is no engine's.
    fn check_engine(&self, name: &str) -> Result<(), String> {
        match self.agent(name) {
            Some(_) => Ok(()),
            None => engines::find(name).map(|_| ()).map_err(|error| error.to_string()),
        }
    }

    /// The agent of this name.
    fn agent(&self, name: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.id().as_str() == name)
    }

    /// Sets what the table of an engine has.
    fn set_engine(
        &mut self,
        entry: &dyn EngineEntry,
        settings: &Map<String, Value>,
    ) -> Result<(), String> {
        let own = self.engines.entry(entry.id()).or_default();
        for (name, value) in settings {
            own.set(name, value).map_err(|error| error.to_string())?;
        }
        let mut understood = own.clone();
        understood.retain(|name| entry.understands(name));
        if understood != *own {
            let known = [entry.settings(), COMMON_SETTINGS].concat();
            let engine = entry.id();
            return Err(format!(
                "a setting that {engine} does not have; it has {}",
                known.join(", ")
            ));
        }
        Ok(())
    }
}

/// Reads the named file, or the user's own if there is one.
pub(crate) fn load(named: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = named.map(Path::to_owned).or_else(default_path) else {
        return Ok(Config::default());
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Config::default());
        }
        Err(error) => {
            return Err(Usage::new(format!("cannot read {}: {error}", path.display())).into());
        }
    };
    let config = parse(&text, &path)?;
    engines::configure(config.agents.clone());
    Ok(config)
}

/// The user's own file, whether or not it exists.
pub(crate) fn default_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("XDG_CONFIG_HOME")
        .filter(|directory| directory.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("takopi/config.toml"))
}

pub(crate) fn parse(text: &str, path: &Path) -> Result<Config, Usage> {
    let at = |span: Option<Range<usize>>, message: &str| {
        let line = span.map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Usage::new(format!("{}:{line}: {message}", path.display()))
    };
    let entries: BTreeMap<String, Spanned<Value>> =
        toml::from_str(text).map_err(|error| at(error.span(), error.message()))?;
    let mut config = Config::default();
    // Others may name the engines that are defined here.
    let (defined, others): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|(name, _)| name == "engines");
    let mut projects = None;
    for (name, value) in defined.into_iter().chain(others) {
        let span = value.span();
        projects = Some(span.clone()).filter(|_| name == "projects").or(projects);
        config.set(&name, value.into_inner()).map_err(|error| at(Some(span), &error))?;
    }
    for project in config.projects.iter() {
        let Some(engine) = &project.engine else { continue };
        let of = |error| format!("project {}: {error}", project.name);
        config.check_engine(engine).map_err(|error| at(projects.clone(), &of(error)))?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text, Path::new("c.toml")).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let unknown = error("model = 'x'\n\nmodle = 'y'\n");
        assert!(unknown.starts_with("c.toml:3: unknown setting `modle`"), "{unknown}");
        let kind = error("# c\ntransport = 'telegraph'");
        assert!(
            kind.starts_with("c.toml:2: unknown transport `telegraph`; known: app-server, exec"),
            "{kind}"
        );
        let engine = error("engine = 'abacus'");
        assert_eq!(
            engine,
            "c.toml:1: unknown engine `abacus`; known engines: codex, claude, pi, opencode, gemini, qwen, codex-acp, claude-acp, demo"
        );
        let project = error("\n[projects.web]\npath = '/w'\nengine = 'abacus'");
        let said = "project web: unknown engine `abacus`; known engines: codex, ";
        assert!(project.starts_with("c.toml:2: ") && project.contains(said), "{project}");
        let syntax = error("model = \n");
        assert!(syntax.starts_with("c.toml:1: "), "{syntax}");
        let table = error("model = 'x'\n[claude]\nsandbox = 'read-only'\n");
        assert!(table.contains("a setting that claude does not have; it has model, "), "{table}");
        assert!(error("[abacus]\nmodel = 'x'\n").contains("unknown setting `abacus`"));
        let length = error("model = 'x'\nwait = 'soon'");
        assert!(length.starts_with("c.toml:2: `wait`: expected a length of time"), "{length}");
    }

    #[test]
    fn agents_are_defined_by_their_command_lines() {
        let text = "engine = 'mine'\n[mine]\nmodel = 'm'\n[engines.mine]\nkind = 'acp'\n\
                    command = ['my-agent', '--acp']\nsessions = 'my-agent'\nresume = 'my-agent --session'\n\
                    [engines.opencode]\ncommand = ['/opt/opencode', 'acp']\n";
        let config = parse(text, Path::new("c.toml")).unwrap();
        assert_eq!(config.engine.as_deref(), Some("mine"));
        assert_eq!(config.engines[&EngineId::from("mine")].model.as_deref(), Some("m"));
        let agent = config.agent("mine").unwrap();
        assert_eq!(
            (agent.command(), agent.store()),
            (&["my-agent".into(), "--acp".into()][..], "my-agent")
        );
        let known = config.agent("opencode").unwrap();
        assert_eq!((known.command()[0].as_str(), known.store()), ("/opt/opencode", "opencode"));
    }

    #[test]
    fn an_agent_that_is_not_well_defined_is_refused_by_what_is_wrong() {
        for (table, message) in [
            (
                "[engines.mine]\ncommand = ['x']",
                "engines.mine: `kind` is missing; it must be \"acp\"",
            ),
            ("[engines.mine]\nkind = 'http'", "unknown kind `http`; known: acp"),
            ("[engines.mine]\nkind = 'acp'\nsessions = 's'", "engines.mine: `command` is missing"),
            (
                "[engines.mine]\nkind = 'acp'\ncommand = ['x']",
                "engines.mine: `sessions` is missing: name the",
            ),
            (
                "[engines.mine]\nkind = 'acp'\ncommand = []\nsessions = 's'",
                "the command of engine mine is empty",
            ),
            ("[engines.mine]\nkind = 'acp'\ncommand = 'x'\nsessions = 's'", "expected a sequence"),
            ("[engines.mine]\nkind = 'acp'\ncomand = ['x']", "unknown field `comand`"),
            ("[engines.codex]\nkind = 'acp'\ncommand = ['x']\nsessions = 's'", "codex is built in"),
            (
                "[engines.\"My Agent\"]\nkind = 'acp'\ncommand = ['x']\nsessions = 's'",
                "no name for an engine",
            ),
            (
                "[engines.mine]\nkind = 'acp'\ncommand = ['x']\nsessions = 'a b'",
                "no name for a session store",
            ),
        ] {
            let error = error(table);
            assert!(error.starts_with("c.toml:1: ") && error.contains(message), "{table}: {error}");
        }
    }

    #[test]
    fn every_setting_is_read() {
        let text = "engine = 'demo'\ntransport = 'app-server'\nmodel = 'm'\neffort = 'e'\n\
                    sandbox = 's'\napprove = 'deny'\ncodex-bin = '/c'\nwait = 0\n\
                    idle-timeout = '5m'\ntimeout = 1.5\ncolor = 'never'\n";
        let config = parse(text, Path::new("c.toml")).unwrap();
        assert_eq!(config.engine.as_deref(), Some("demo"));
        assert_eq!(config.transport.as_deref(), Some("app-server"));
        assert_eq!(config.programs["codex-bin"], Path::new("/c"));
        assert_eq!(config.run.idle_timeout.unwrap().as_secs(), 300);
        assert_eq!(config.run.wall_timeout.unwrap().as_millis(), 1500);
    }

    /// Any file is parsed, or refused with its name and an existing line.
    #[test]
    fn fuzz_config() {
        let seeds = [
            "engine = 'demo'\ntransport = 'app-server'\nwait = 0\nidle-timeout = '5m'\ntimeout = 1.5\n",
            "# c\ncolor = \"never\"\n[codex]\nmodel = \"\"\"x\"\"\"\n",
        ];
        let seeds = seeds.map(|text| text.as_bytes().to_vec());
        takopi_tests::fuzz::run("config", seeds, |input| {
            let text = String::from_utf8_lossy(input);
            if let Err(error) = parse(&text, Path::new("c.toml")) {
                let error = error.to_string();
                let line = error.strip_prefix("c.toml:").and_then(|rest| rest.split_once(':'));
                let line: usize = line.expect("file, line, message").0.parse().expect("a number");
                assert!((1..=text.matches('\n').count() + 1).contains(&line), "{error}");
            }
        });
    }
}
