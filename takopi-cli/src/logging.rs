//! Logs. Prompts are never logged.
//!
//! `TAKOPI_LOG` is a filter such as `debug` or `takopi_core=trace,info`; `TAKOPI_LOG_FILE` a file to
//! append to instead of standard error; `--verbose` sets a filter if `TAKOPI_LOG` does not.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::str::FromStr as _;
use std::sync::Mutex;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::exit::Usage;

/// Starts logging if it is asked for, or by default at a level; returns whether it goes to standard error.
pub(crate) fn start(verbose: u8, default: Option<&str>) -> anyhow::Result<bool> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let file = set("TAKOPI_LOG_FILE");
    let filter = match set("TAKOPI_LOG") {
        Some(filter) => filter.to_string_lossy().into_owned(),
        None => match (verbose, &file, default) {
            (0, None, None) => return Ok(false),
            (0, None, Some(level)) => level.to_owned(),
            (0 | 1, _, _) => "info".to_owned(),
            (2, _, _) => "debug".to_owned(),
            _ => "trace".to_owned(),
        },
    };
    let targets = Targets::from_str(&filter).map_err(|error| {
        Usage::new(format!("TAKOPI_LOG={filter:?} is not a valid filter: {error}"))
    })?;
    let Some(path) = file else {
        init(targets, std::io::stderr);
        return Ok(true);
    };
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let file = file.map_err(|error| {
        Usage::new(format!("cannot write to TAKOPI_LOG_FILE={}: {error}", path.display()))
    })?;
    init(targets, Mutex::new(file));
    Ok(false)
}

fn init(targets: Targets, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let layer = fmt::layer().with_ansi(false).with_writer(writer).with_filter(targets);
    // Fails only if something else logs already.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}
