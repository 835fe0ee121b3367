//! The configuration file: defaults for flags and `TAKOPI_*` variables that are not set.
//!
//! `--config`, else `TAKOPI_CONFIG`, else `takopi/config.toml` under `XDG_CONFIG_HOME` or `~/.config`.
//! Its keys are the names of the flags; a table with the name of an engine has settings for that engine alone,
//! which win over those above it. A file that is named must exist; errors name the file and the
//! line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use takopi_core::catalog::{COMMON_SETTINGS, EngineEntry};
use takopi_core::{EngineId, RunSettings};
use toml::Spanned;

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
                engines::find(&engine).map_err(|error| error.to_string())?;
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
            "approve" => self.approve = read(value)?,
            "color" => self.color = read(value)?,
            _ if let Some(program) = engines::programs().find(|program| program.flag == name) => {
                self.programs.extend(read(value)?.map(|path: PathBuf| (program.flag, path)));
            }
            _ if let (Ok(entry), Value::Object(settings)) = (engines::find(name), &value) => {
                return self.set_engine(entry, settings);
            }
            _ => self.run.set(name, &value).map_err(|error| error.to_string())?,
        }
        Ok(())
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
    Ok(parse(&text, &path)?)
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
    for (name, value) in entries {
        let span = value.span();
        config.set(&name, value.into_inner()).map_err(|error| at(Some(span), &error))?;
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
        assert_eq!(engine, "c.toml:1: unknown engine `abacus`; known engines: codex, claude, demo");
        let syntax = error("model = \n");
        assert!(syntax.starts_with("c.toml:1: "), "{syntax}");
        let table = error("model = 'x'\n[claude]\nsandbox = 'read-only'\n");
        assert!(table.contains("a setting that claude does not have; it has model, "), "{table}");
        assert!(error("[abacus]\nmodel = 'x'\n").contains("unknown setting `abacus`"));
        let length = error("model = 'x'\nwait = 'soon'");
        assert!(length.starts_with("c.toml:2: `wait`: expected a length of time"), "{length}");
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
