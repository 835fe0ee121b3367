//! Runs on the workers of a fleet: `--fleet`, `takopi worker` and `takopi fleet`.
//!
//! The address of the fleet's database is what `--fleet=URL` says, else `TAKOPI_FLEET`, else `url` in the table `[fleet]`. It says
//! where the fleet is; only `--fleet` sends runs there. A password is never taken from the command line, where others can read it,
//! and never reaches an agent.

mod command;
mod demo;
mod doctor;
mod manage;
mod metrics;
mod picture;
mod watched;
mod work;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use takopi_core::{ResumeToken, Runner};
use takopi_fleet::board::pg::Url;
use takopi_fleet::board::{BoardError, OnGone, OnLoss};
use takopi_fleet::submit::{FleetEngine, FleetOptions};
use takopi_fleet::{Board as _, PgBoard};
use takopi_projects::{Git, Published};

pub(crate) use command::{FleetArgs, main};
pub(crate) use doctor::findings;
pub(crate) use work::{WorkerArgs, main as worker};

use crate::args::{RunArgs, RunOptions};
use crate::config::FleetTable;
use crate::exit::Usage;
use crate::{run, serve};

/// The variable with the address of the database.
pub(crate) const VARIABLE: &str = "TAKOPI_FLEET";

/// Among how many runs the last session is looked for.
const LOOKED_AT: u32 = 1000;

/// The place that stands for the repository of the directory.
const REPOSITORY: &str = "git";

/// The flags of commands that can run on a fleet.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FleetFlags {
    /// Run on the workers of a fleet. Its database is named here, by TAKOPI_FLEET, or by `url` of [fleet] in the
    /// configuration file
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    fleet: Option<String>,
    /// Run only on workers with this label; can be repeated
    #[arg(long = "on", value_name = "LABEL", requires = "fleet")]
    labels: Vec<String>,
    /// Run in this place of the workers, for which the directory here stands; `git`: in its repository, at the commit that is
    /// checked out here and was pushed
    #[arg(long, value_name = "NAME", requires = "fleet")]
    place: Option<String>,
    /// The table of the configuration file.
    #[arg(skip)]
    table: FleetTable,
    /// The fleet that runs are submitted to.
    #[arg(skip)]
    joined: Option<Joined>,
}

/// A fleet, and how runs are submitted to it.
#[derive(Clone)]
struct Joined {
    board: Arc<PgBoard>,
    options: FleetOptions,
    /// Of the connections.
    runtime: &'static tokio::runtime::Runtime,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("options", &self.options).finish_non_exhaustive()
    }
}

/// How runs are submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submitting {
    /// Somebody waits for them: without this process they are cancelled.
    Attended,
    /// Their results are picked up later, if this process dies.
    Unattended,
    /// The same, and a run that is lost with its worker is not repeated.
    AtMostOnce,
}

impl FleetFlags {
    pub(crate) fn fill(&mut self, table: FleetTable) {
        self.table = table;
    }

    /// Variables that no agent gets: those of the fleet, and how its database is opened.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &'static str> + use<> {
        let known = self.fleet.is_some() || self.table.url.is_some() || variable().is_some();
        let opens = ["PGPASSWORD", "PGPASSFILE"].into_iter().filter(move |_| known);
        std::iter::once(VARIABLE).chain(opens)
    }

    /// Refuses what a fleet cannot do.
    pub(crate) fn check(&self, args: &RunArgs) -> Result<(), Usage> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        let first = args.prompt.first().map_or("", String::as_str);
        if fleet.is_empty() && is_address(first) {
            return Err(Usage::new("the address belongs to the flag: --fleet=URL"));
        }
        Ok(())
    }

    /// The session that the user ran last on the fleet with this runner; `None` if runs are not submitted to one.
    pub(crate) fn last(&self, runner: &dyn Runner) -> anyhow::Result<Option<ResumeToken>> {
        let Some(Joined { board, runtime, .. }) = &self.joined else { return Ok(None) };
        let jobs = runtime.block_on(board.jobs(LOOKED_AT)).map_err(anyhow::Error::new);
        let jobs = jobs.map_err(explained)?;
        let engine = runner.engine();
        let sessions = jobs.into_iter().filter(|job| engine.as_str() == job.engine);
        let last = sessions.filter_map(|job| job.session).find_map(|id| runner.token(&id));
        let none =
            || Usage::new(format!("--last: none of your last runs on the fleet is of {engine}"));
        Ok(Some(last.ok_or_else(none)?))
    }

    /// The runner in the fleet for one of this machine, if runs are submitted to a fleet.
    pub(crate) fn submitting(&self, local: Arc<dyn Runner>) -> Arc<dyn Runner> {
        let Some(Joined { board, options, .. }) = &self.joined else { return local };
        // The engine of this machine does not know the session.
        let command = format!("takopi run {} --engine {} --resume", self.flag(), local.engine());
        let codec = local.resume_codec().written_as(command);
        let engine = FleetEngine::new(board.clone(), local.engine(), codec);
        Arc::new(engine.options(options.clone()).runner())
    }

    /// How the fleet is named in a command: as it was here, if that needs no quotes.
    fn flag(&self) -> String {
        let plain = |url: &&str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@,%+=".contains(c);
            !url.is_empty() && url.chars().all(is_plain)
        };
        let named = self.fleet.as_deref().filter(plain);
        named.map_or_else(|| "--fleet".to_owned(), |url| format!("--fleet={url}"))
    }

    /// The page of the fleet, if there is one.
    pub(crate) fn pages(&self) -> axum::Router {
        let board = self.joined.as_ref().map(|joined| joined.board.clone());
        board.map_or_else(axum::Router::new, serve::fleet::routes)
    }

    fn options(&self, how: Submitting) -> FleetOptions {
        let mut options = FleetOptions::default();
        options.needs = self.labels.iter().map(|label| format!("label:{label}")).collect();
        options.places = places(&self.table).map(|(name, path)| (path, name)).collect();
        options.on_gone = match how {
            Submitting::Attended => OnGone::Cancel,
            Submitting::Unattended | Submitting::AtMostOnce => OnGone::Continue,
        };
        options.on_loss = match how {
            Submitting::AtMostOnce => OnLoss::Fail,
            Submitting::Attended | Submitting::Unattended => OnLoss::Retry,
        };
        options
    }
}

impl RunOptions {
    /// Connects to the fleet, if runs are to be submitted to one.
    pub(crate) fn join_fleet(&mut self, how: Submitting) -> anyhow::Result<()> {
        let Some(named) = &self.fleet.fleet else { return Ok(()) };
        let url = address(Some(named), &self.fleet.table)?;
        let mut options = self.fleet.options(how);
        if let Some(place) = self.fleet.place.clone() {
            let here = self.cd.clone().map_or_else(std::env::current_dir, Ok)?;
            let mut here = std::path::absolute(here)?;
            if place == REPOSITORY {
                // Git names its top directory without links.
                here = here.canonicalize().unwrap_or(here);
                options.places.push(repository(&here)?);
            } else {
                options.places.push((here.clone(), place));
            }
            self.cd = Some(here);
        }
        // Connections live for as long as the command, on a runtime of their own: the command's begins later.
        let runtime: &'static _ = Box::leak(Box::new(run::runtime()?));
        let board = Arc::new(runtime.block_on(open(url))?);
        self.fleet.joined = Some(Joined { board, options, runtime });
        Ok(())
    }
}

/// The repository of a directory, as a place.
fn repository(here: &Path) -> Result<(PathBuf, String), Usage> {
    let found = Published::of(&Git::default(), here)
        .map_err(|error| Usage::new(format!("--place {REPOSITORY}: {error}")))?;
    Ok((found.root, format!("git:{}@{}", found.url, found.commit)))
}

fn variable() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|url| !url.is_empty())
}

/// Whether somebody means an address by this.
fn is_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// The address of the fleet's database: as named on the command line, else by the variable, else by the table.
fn address(named: Option<&str>, table: &FleetTable) -> Result<Url, Usage> {
    let named = named.filter(|url| !url.is_empty());
    if named.is_some_and(Url::has_password) {
        let text = "a password on the command line can be read by others: use PGPASSWORD, a password file (~/.pgpass), or TAKOPI_FLEET";
        return Err(Usage::new(text));
    }
    let url = named.map(str::to_owned).or_else(variable).or_else(|| table.url.clone());
    let url = url.ok_or_else(|| {
        Usage::new("no fleet is named: --fleet=postgres://USER@HOST/DATABASE, TAKOPI_FLEET, or `url` of [fleet] in the configuration file")
    })?;
    url.parse().map_err(|error| Usage::new(format!("{error}")))
}

/// What to do about an error, if the user of the database is the cause.
fn explained(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<BoardError>() {
        Some(BoardError::Refused(detail)) if detail.contains("permission denied") => {
            anyhow!(
                "{detail}: `grant takopi_submit to USER` for submitters, `grant takopi_work to USER` for workers; the rest is for the owner of the schema"
            )
        }
        _ => error,
    }
}

/// The places of this machine, by name.
fn places(table: &FleetTable) -> impl Iterator<Item = (String, PathBuf)> {
    table.places.iter().map(|(name, path)| {
        let path = serve::expanded(path);
        (name.clone(), std::path::absolute(&path).unwrap_or(path))
    })
}

/// Connects to a fleet whose queue this takopi knows.
async fn open(url: Url) -> Result<PgBoard, BoardError> {
    let board = PgBoard::connect(url).await?;
    let (found, known) = (board.schema_version().await.unwrap_or(0), PgBoard::newest_schema());
    if found < known {
        return Err(BoardError::Schema(format!(
            "the fleet's queue has version {found}, this takopi needs {known}: run `takopi fleet init`"
        )));
    }
    Ok(board)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_password_is_refused_on_the_command_line_and_taken_from_the_file() {
        let table = |url: &str| FleetTable { url: Some(url.to_owned()), ..FleetTable::default() };
        let with = "postgres://a:secret@localhost/f";
        let error = address(Some(with), &FleetTable::default()).unwrap_err().to_string();
        assert!(error.contains("PGPASSWORD") && !error.contains("secret"), "{error}");
        assert_eq!(address(Some(""), &table(with)).unwrap().to_string(), "a@localhost/f");
        let named = address(Some("postgres://b@localhost/g"), &table(with)).unwrap();
        assert_eq!(named.to_string(), "b@localhost/g");
        assert!(address(Some("nonsense"), &table(with)).is_err());
    }

    #[test]
    fn a_resume_line_names_the_fleet_as_the_command_did() {
        let flag = |fleet: &str| {
            FleetFlags { fleet: Some(fleet.to_owned()), ..FleetFlags::default() }.flag()
        };
        assert_eq!(flag(""), "--fleet");
        assert_eq!(flag("postgres://a@db.example/f"), "--fleet=postgres://a@db.example/f");
        assert_eq!(flag("postgres://a@db/f?x=1&y=2"), "--fleet", "a shell would read more into it");
        assert_eq!(flag("host=db user=a"), "--fleet");
    }

    #[test]
    fn the_database_is_kept_from_agents_where_there_is_a_fleet() {
        let secrets = |fleet: Option<&str>| {
            let flags = FleetFlags { fleet: fleet.map(str::to_owned), ..FleetFlags::default() };
            flags.secrets().collect::<Vec<_>>()
        };
        assert_eq!(secrets(Some("")), ["TAKOPI_FLEET", "PGPASSWORD", "PGPASSFILE"]);
        // A password for something else is not taken from people who have no fleet.
        assert_eq!(secrets(None), ["TAKOPI_FLEET"]);
    }
}
