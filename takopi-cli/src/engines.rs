//! The engines of the command, and the one that a command line chooses.
//!
//! Everything that differs between engines is in their [`EngineEntry`]. Adding an engine to the command is
//! adding its entry to [`built_in`]. Agents that the configuration file names are added by [`configure`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use clap::builder::{OsStringValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, FromArgMatches};
use takopi_acp::{AcpEntry, Agent};
use takopi_claude::ClaudeEntry;
use takopi_codex::CodexEntry;
use takopi_core::catalog::{EngineEntry, EngineSetup, Feature, Program, TransportInfo};
use takopi_core::demo::DemoEntry;
use takopi_core::process::EnvPolicy;
use takopi_core::{EngineId, Runner};
use takopi_pi::PiEntry;

use crate::args::{Approve, RunOptions, TOKEN};
use crate::exit::Usage;
use crate::fleet::FleetFlags;

/// A list of entries, which live as long as the command.
type Entries = Vec<&'static dyn EngineEntry>;

/// The engines that takopi knows by itself; the first is the default.
fn built_in() -> &'static [&'static dyn EngineEntry] {
    static ENTRIES: LazyLock<Entries> = LazyLock::new(|| {
        let mut entries: Entries = vec![&CodexEntry, &ClaudeEntry, &PiEntry];
        entries.extend(AcpEntry::presets().into_iter().map(leaked));
        entries.push(&DemoEntry);
        entries
    });
    &ENTRIES
}

/// The agents of the configuration file, by the name of the engine that they are or replace.
static CONFIGURED: OnceLock<Entries> = OnceLock::new();

fn leaked(entry: AcpEntry) -> &'static dyn EngineEntry {
    Box::leak(Box::new(entry))
}

/// Adds the agents of the configuration file, once: the file is read once.
pub(crate) fn configure(agents: Vec<Agent>) {
    if !agents.is_empty() {
        let _ = CONFIGURED.set(agents.into_iter().map(AcpEntry::new).map(leaked).collect());
    }
}

/// All engines; the first is the default. One of the configuration file replaces the known one of its name.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn EngineEntry> {
    let configured = CONFIGURED.get().map_or(&[][..], Vec::as_slice);
    let is_replaced =
        |entry: &&'static dyn EngineEntry| configured.iter().any(|own| own.id() == entry.id());
    let known = built_in().iter().copied().filter(move |entry| !is_replaced(entry));
    // The demo is the last.
    let (demo, known): (Entries, Entries) =
        known.partition(|entry| entry.id() == takopi_core::demo::DEMO);
    known.into_iter().chain(configured.iter().copied()).chain(demo)
}

/// Whether an engine of this name is built in and cannot be replaced by a command line.
pub(crate) fn is_fixed(name: &str) -> bool {
    let known = built_in().iter().any(|entry| entry.id().as_str() == name);
    known && Agent::preset(name).is_none()
}

/// Flags that not every engine understands: the argument's id, the flag, the setting it sets.
const ENGINE_FLAGS: [EngineFlag; 8] = [
    EngineFlag { id: "model", flag: "--model", setting: "model" },
    EngineFlag { id: "effort", flag: "--effort", setting: "effort" },
    EngineFlag { id: "sandbox", flag: "--sandbox", setting: "sandbox" },
    EngineFlag { id: "ephemeral", flag: "--ephemeral", setting: "ephemeral" },
    EngineFlag { id: "permission_mode", flag: "--permission-mode", setting: "permission_mode" },
    EngineFlag { id: "settings", flag: "-c", setting: "options" },
    EngineFlag { id: "image", flag: "--image", setting: "images" },
    EngineFlag { id: "output_schema", flag: "--output-schema", setting: "output_schema" },
];

struct EngineFlag {
    id: &'static str,
    flag: &'static str,
    setting: &'static str,
}

/// The engine of this name.
pub(crate) fn find(name: &str) -> Result<&'static dyn EngineEntry, Usage> {
    let found = all().find(|entry| entry.id().as_str() == name);
    found.ok_or_else(|| {
        let known: Vec<String> = all().map(|entry| entry.id().to_string()).collect();
        Usage::new(format!("unknown engine `{name}`; known engines: {}", known.join(", ")))
    })
}

/// The engine that the options name, or the default.
pub(crate) fn named(name: Option<&str>) -> Result<&'static dyn EngineEntry, Usage> {
    name.map_or(Ok(built_in()[0]), find)
}

/// A runner of every engine as it is by default, this one first: to read sessions, not to run them.
pub(crate) fn readers(first: &EngineId) -> Result<Vec<Arc<dyn Runner>>, Usage> {
    let first_of_all = all().filter(|entry| entry.id() == *first);
    let others = all().filter(|entry| entry.id() != *first);
    first_of_all.chain(others).map(|entry| make(entry, &EngineSetup::new())).collect()
}

/// The names of engines, for messages: `/codex, /claude`.
pub(crate) fn directives(engines: &[EngineId]) -> String {
    let names: Vec<String> = engines.iter().map(|engine| format!("/{engine}")).collect();
    names.join(", ")
}

/// The programs that engines run.
pub(crate) fn programs() -> impl Iterator<Item = &'static Program> {
    built_in().iter().filter_map(|entry| entry.program())
}

/// All transports of all engines.
pub(crate) fn transports() -> impl Iterator<Item = &'static TransportInfo> {
    built_in().iter().flat_map(|entry| entry.transports())
}

/// The engine of a command, set up as its options ask.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) entry: &'static dyn EngineEntry,
    transport: &'static TransportInfo,
    setup: EngineSetup,
    fleet: FleetFlags,
}

impl Chosen {
    /// The engine that the options choose. A flag that it does not understand is refused; defaults from
    /// the environment and the configuration file apply only where they are understood.
    pub(crate) fn of(options: &RunOptions) -> Result<Self, Usage> {
        let chosen = Self::beside_others(options)?;
        let own = chosen.entry.program().map(|program| program.flag);
        let typed = |flag: &&str| Some(*flag) != own && options.flags.is_typed(flag);
        match programs().map(|program| program.flag).find(typed) {
            Some(other) => Err(refused(chosen.entry, &format!("--{other}"))),
            None => Ok(chosen),
        }
    }

    /// The same where other engines can be used too: their programs may be named.
    pub(crate) fn beside_others(options: &RunOptions) -> Result<Self, Usage> {
        let entry = named(options.engine.as_deref())?;
        for flag in &ENGINE_FLAGS {
            if options.flags.is_typed(flag.id) && !entry.understands(flag.setting) {
                return Err(refused(entry, flag.flag));
            }
        }
        let transport = match entry.transport(options.transport.as_deref()) {
            Ok(transport) => transport,
            Err(_) if is_known_transport(options) => entry.default_transport(),
            Err(error) => return Err(Usage::new(error.to_string())),
        };
        let setup = setup(entry, options).transport(transport.name.to_owned());
        let fleet = options.fleet.clone();
        let chosen = Self { entry, transport, setup, fleet };
        match options.approve {
            Some(approve) if !chosen.allows(approve) => Err(chosen.cannot_ask()),
            _ => Ok(chosen),
        }
    }

    /// Hooks, tool servers and settings in files of the working directory apply.
    pub(crate) fn with_project_settings(mut self) -> Self {
        self.setup = self.setup.project_settings(true);
        self
    }

    /// The agent leaves no work in the background, unless an option allows it.
    pub(crate) fn without_background(mut self) -> Self {
        self.setup = self.setup.background(false);
        self
    }

    /// The other engines.
    pub(crate) fn others(&self) -> impl Iterator<Item = &'static dyn EngineEntry> {
        let chosen = self.entry.id();
        all().filter(move |entry| entry.id() != chosen)
    }

    /// Whether the agent can ask for approval.
    pub(crate) fn can_ask(&self) -> bool {
        self.transport.supports(Feature::Approvals)
    }

    /// Whether approval requests can be decided in this way.
    fn allows(&self, approve: Approve) -> bool {
        self.can_ask() || approve == Approve::Deny
    }

    fn cannot_ask(&self) -> Usage {
        let mut transports = self.entry.transports().iter();
        let able = transports.find(|transport| transport.supports(Feature::Approvals));
        let hint =
            able.map(|able| format!(": --approve ask and accept need --transport {}", able.name));
        Usage::new(format!(
            "{} cannot ask for approval over {}{}",
            self.entry.id(),
            self.transport.name,
            hint.unwrap_or_default(),
        ))
    }

    /// A runner that keeps an idle session warm for this long.
    pub(crate) fn runner(&self, keep_warm: Duration) -> Result<Arc<dyn Runner>, Usage> {
        Ok(self.fleet.submitting(make(self.entry, &self.setup.clone().keep_warm(keep_warm))?))
    }

    /// A runner for many sessions, this many of them busy at once, that share few processes.
    pub(crate) fn shared_runner(&self, busy: usize) -> Result<Arc<dyn Runner>, Usage> {
        Ok(self.fleet.submitting(make(self.entry, &self.setup.clone().shared_by(busy))?))
    }
}

fn refused(entry: &dyn EngineEntry, flag: &str) -> Usage {
    let engine = entry.id();
    Usage::new(format!(
        "{flag} is not an option of {engine}; remove it, or choose another --engine"
    ))
}

/// A runner of an engine beside the chosen one, with what applies to it of the options.
pub(crate) fn other_runner(
    entry: &'static dyn EngineEntry,
    options: &RunOptions,
    keep_warm: Duration,
) -> Result<Arc<dyn Runner>, Usage> {
    Ok(options.fleet.submitting(make(entry, &setup(entry, options).keep_warm(keep_warm))?))
}

/// The sessions of an engine as files that another machine can resume, if they are.
#[cfg(feature = "fleet")]
pub(crate) fn portable(
    entry: &'static dyn EngineEntry,
    options: &RunOptions,
) -> Option<Arc<dyn takopi_core::catalog::PortableSessions>> {
    entry.portable(&setup(entry, options))
}

/// A runner of this machine, for so many runs at once.
#[cfg(feature = "fleet")]
pub(crate) fn worker_runner(
    entry: &'static dyn EngineEntry,
    options: &RunOptions,
    busy: usize,
) -> Result<Arc<dyn Runner>, Usage> {
    make(entry, &setup(entry, options).background(false).shared_by(busy))
}

/// What the options say about an engine.
fn setup(entry: &'static dyn EngineEntry, options: &RunOptions) -> EngineSetup {
    // An agent must not be able to use the tokens of `takopi serve` and `takopi telegram`, or the fleet's database.
    let own = [TOKEN, "TAKOPI_TELEGRAM_TOKEN"].into_iter().chain(options.fleet.secrets());
    let policy = own.fold(EnvPolicy::default(), EnvPolicy::deny);
    let program = entry.program().and_then(|program| options.flags.programs.get(program.flag));
    EngineSetup::new()
        .program(program.cloned())
        .env_policy(policy)
        .options(options.settings_of(entry).options)
}

fn make(entry: &dyn EngineEntry, setup: &EngineSetup) -> Result<Arc<dyn Runner>, Usage> {
    entry.runner(setup).map_err(|error| Usage::new(error.to_string()))
}

/// Whether the transport is another engine's and was not typed: a default that does not apply here.
fn is_known_transport(options: &RunOptions) -> bool {
    let name = options.transport.as_deref();
    !options.flags.is_typed("transport") && transports().any(|known| Some(known.name) == name)
}

/// The flags that engines bring along (their programs), and which flags were typed rather than taken from
/// the environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct EngineFlags {
    /// The programs that were named, by flag.
    pub(crate) programs: BTreeMap<&'static str, PathBuf>,
    typed: Vec<String>,
}

impl EngineFlags {
    /// Whether the argument of this id was on the command line.
    pub(crate) fn is_typed(&self, id: &str) -> bool {
        self.typed.iter().any(|typed| typed == id)
    }

    /// Takes programs that were not named from the configuration file.
    pub(crate) fn fill(&mut self, programs: BTreeMap<&'static str, PathBuf>) {
        for (flag, program) in programs {
            self.programs.entry(flag).or_insert(program);
        }
    }
}

impl Args for EngineFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        programs().fold(command, |command, program| {
            command.arg(
                Arg::new(program.flag)
                    .long(program.flag)
                    .value_name("PATH")
                    .env(program.variable)
                    .value_parser(OsStringValueParser::new())
                    .value_hint(clap::ValueHint::AnyPath)
                    // After the flags of every engine.
                    .display_order(500)
                    .help(format!("The {} program to run", program.name)),
            )
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for EngineFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named = programs().filter_map(|program| {
            // A variable that is set to nothing counts as not set.
            let path = matches.get_one::<OsString>(program.flag).filter(|path| !path.is_empty())?;
            Some((program.flag, PathBuf::from(path)))
        });
        let typed = matches.ids().map(clap::Id::as_str);
        let typed = typed.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        Ok(Self { programs: named.collect(), typed: typed.map(str::to_owned).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses a name. The known ones are in `--help` and completions; others are refused with a message of
/// their own when they are looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NameParser {
    Engine,
    Transport,
}

impl TypedValueParser for NameParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(match self {
            Self::Engine => Box::new(all().map(|entry| {
                PossibleValue::new(entry.id().to_string()).help(entry.title().to_owned())
            })),
            // Those of engines with a choice.
            Self::Transport => {
                let choices = built_in().iter().filter(|entry| entry.transports().len() > 1);
                Box::new(
                    choices
                        .flat_map(|entry| entry.transports())
                        .map(|transport| PossibleValue::new(transport.name).help(transport.about)),
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_engines_and_program_flags_are_unique() {
        let mut names: Vec<String> = all().map(|entry| entry.id().to_string()).collect();
        names.extend(programs().map(|program| program.flag.to_owned()));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_engine_has_a_transport() {
        for entry in all() {
            assert!(!entry.transports().is_empty(), "{}", entry.id());
        }
    }
}
