//! Counts that depend on the code and not on the machine, compared with those stored in `bench/counts.toml`.
//!
//! They do depend on the compiler and on the C library: with others they are shown and not compared.
#![allow(clippy::print_stdout, reason = "for programs that print a table")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

/// How many lines are translated for a count.
pub const LINES: usize = 10_000;

/// One kind of counts, a table of the file.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// The name of the table, and of the program that counts.
    pub table: &'static str,
    /// What is counted, for people.
    pub what: &'static str,
    /// What a count may differ by.
    pub margin_percent: f64,
}

/// The counts that a program made, by name.
type Counted = [(&'static str, u64)];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stored {
    rustc: String,
    libc: String,
    instructions: BTreeMap<String, u64>,
    allocations: BTreeMap<String, u64>,
}

impl Counts {
    /// Compares what was counted with what is stored; with `--accept` as the only argument, stores it.
    pub fn check_or_accept(&self, args: &[String], counted: &Counted) -> anyhow::Result<()> {
        match args {
            [] => self.check(counted),
            [accept] if accept == "--accept" => self.accept(counted),
            _ => bail!("usage: {} [--accept]", self.table),
        }
    }

    fn check(&self, counted: &Counted) -> anyhow::Result<()> {
        let mut stored = Stored::read()?;
        let (rustc, libc) = (rustc()?, libc()?);
        println!("{}", self.what);
        let mut away = Vec::new();
        for (kind, count) in counted {
            let known = stored.table(self.table)?.get(*kind).copied().unwrap_or(0);
            #[expect(clippy::cast_precision_loss, reason = "percents for people")]
            let change = (*count as f64 / known.max(1) as f64 - 1.0) * 100.0;
            println!("{kind:<12} {count:>14}   stored {known:>14}   {change:>+7.2} %");
            if change.abs() > self.margin_percent {
                away.push(format!("{kind} ({change:+.2} %)"));
            }
        }
        if stored.rustc != rustc || stored.libc != libc {
            println!(
                "SKIPPED the comparison: the figures were stored with {} and {}, these were counted with \
                 {rustc} and {libc}. To compare again: `{}` on the commit before the change, then this on \
                 the change.",
                stored.rustc,
                stored.libc,
                self.accept_command()
            );
            return Ok(());
        }
        if !away.is_empty() {
            bail!(
                "more than {} % away from {}: {}. If that is meant, store the new figures with `{}` and give \
                 the reason in the commit; a gain is stored too, so that it cannot be lost unseen.",
                self.margin_percent,
                path().display(),
                away.join(", "),
                self.accept_command()
            );
        }
        Ok(())
    }

    fn accept(&self, counted: &Counted) -> anyhow::Result<()> {
        let mut stored = Stored::read().unwrap_or_default();
        let (rustc, libc) = (rustc()?, libc()?);
        if stored.rustc != rustc || stored.libc != libc {
            // What the other program counted with another compiler cannot be compared.
            stored = Stored { rustc, libc, ..Stored::default() };
        }
        let owned = |(kind, count): &(&str, u64)| ((*kind).to_owned(), *count);
        *stored.table(self.table)? = counted.iter().map(owned).collect();
        for (kind, count) in counted {
            println!("{kind:<12} {count:>14}");
        }
        std::fs::write(path(), stored.text()?).context("cannot store the figures")
    }

    fn accept_command(&self) -> String {
        format!(
            "cargo run --profile counted -p takopi-bench --no-default-features --bin {} -- --accept",
            self.table
        )
    }
}

impl Stored {
    fn read() -> anyhow::Result<Self> {
        let path = path();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}; `--accept` writes it", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    fn table(&mut self, name: &str) -> anyhow::Result<&mut BTreeMap<String, u64>> {
        match name {
            "instructions" => Ok(&mut self.instructions),
            "allocations" => Ok(&mut self.allocations),
            other => bail!("no counts of {other}"),
        }
    }

    fn text(&self) -> anyhow::Result<String> {
        let mut text = String::from(
            "# Written by the programs `instructions` and `allocations` with `--accept`; see docs/performance.md.\n",
        );
        writeln!(text, "rustc = \"{}\"\nlibc = \"{}\"", self.rustc, self.libc)?;
        for (name, table) in
            [("instructions", &self.instructions), ("allocations", &self.allocations)]
        {
            writeln!(text, "\n[{name}]")?;
            for (kind, count) in table {
                writeln!(text, "{kind} = {count}")?;
            }
        }
        Ok(text)
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.toml")
}

fn rustc() -> anyhow::Result<String> {
    first_line(Command::new("rustc").arg("--version"))
}

fn libc() -> anyhow::Result<String> {
    first_line(Command::new("getconf").arg("GNU_LIBC_VERSION"))
}

fn first_line(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let mut stored =
            Stored { rustc: "rustc 1".into(), libc: "glibc 2".into(), ..Stored::default() };
        stored.table("allocations").unwrap().insert("app-server".into(), 7);
        let read: Stored = toml::from_str(&stored.text().unwrap()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{stored:?}"));
        assert!(stored.table("other").is_err());
    }
}
