//! `takopi batch --dry-run`: what would run.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::json;
use takopi_batch::{Batch, Journal};
use takopi_bridge::present::one_line;

use super::args::BatchArgs;
use crate::exit::{self, Usage};
use crate::terminal::{self, Terminal};

/// The width of a prompt.
const PROMPT: usize = 100;

/// Prints every prompt that would run, and how many of all that are. Nothing is run or written.
pub(super) fn main(args: &BatchArgs, batch: &Batch, terminal: Terminal) -> anyhow::Result<u8> {
    let journal = match args.out.as_deref().filter(|out| out.exists()) {
        Some(out) => match Journal::open(out) {
            Ok(journal) => journal,
            Err(error) => return Ok(super::refused(&error, terminal)),
        },
        None => Journal::none(),
    };
    let named = args.input.as_deref().filter(|path| *path != Path::new("-"));
    let (name, input): (String, Box<dyn Read>) = match named {
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path);
            let file = file.map_err(|error| Usage::new(format!("cannot read {name}: {error}")))?;
            (name, Box::new(file))
        }
        None => ("standard input".to_owned(), Box::new(std::io::stdin())),
    };
    let (mut printed, mut count) = (String::new(), 0_u64);
    let total = batch.plan(input, args.format(), &journal, |job, runs| {
        count += u64::from(runs);
        if args.options.json {
            let line = json!({
                "type": "job_planned", "job": job.id, "prompt": job.prompt, "runs": runs,
            });
            let _ = writeln!(printed, "{line}");
        } else if runs {
            let (id, prompt) = (one_line(&job.id, PROMPT), one_line(&job.prompt, PROMPT));
            let _ = writeln!(printed, "{id}\t{prompt}");
        }
    });
    let total = total.map_err(|bad| {
        let lines = bad.to_string().replace("\nline ", &format!("\n{name}: line "));
        Usage::new(format!("{name}: {lines}"))
    })?;
    terminal::print(printed.as_bytes())?;
    if !args.options.quiet && !args.options.json {
        terminal.note(&format!("{count} of {total} prompts would run; nothing was run"));
    }
    Ok(exit::OK)
}
