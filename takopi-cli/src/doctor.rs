//! `takopi doctor`: what could keep takopi from working, and what to do about it.

mod checks;

use std::path::Path;

use serde::Serialize;
use takopi_bridge::present::{Line, Style};

use crate::args::DoctorArgs;
use crate::exit;
use crate::run::runtime;
use crate::terminal::{self, Terminal};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Something must be done.
    Problem,
}

/// What a check found.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, state: State::Ok, what: what.into(), hint: None }
    }

    fn note(check: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, state: State::Note, what: what.into(), hint: Some(hint.into()) }
    }

    fn problem(check: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, state: State::Problem, what: what.into(), hint: Some(hint.into()) }
    }
}

/// All findings, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Findings {
    ok: bool,
    findings: Vec<Finding>,
}

pub(crate) fn main(
    args: &DoctorArgs,
    config: Option<&Path>,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    let findings = runtime()?.block_on(checks::all(args, config));
    let ok = findings.iter().all(|finding| finding.state != State::Problem);
    if args.json {
        let mut text = serde_json::to_vec_pretty(&Findings { ok, findings })?;
        text.push(b'\n');
        terminal::print(&text)?;
    } else {
        terminal.print_lines(&findings.iter().flat_map(lines).collect::<Vec<_>>())?;
    }
    Ok(if ok { exit::OK } else { exit::FAILED })
}

fn lines(finding: &Finding) -> Vec<Line> {
    let (mark, style) = match finding.state {
        State::Ok => ("✓", Style::Good),
        State::Note => ("!", Style::Warn),
        State::Problem => ("✗", Style::Bad),
    };
    let head = Line::new()
        .with(style, mark)
        .with(Style::Strong, format!(" {:<8} ", finding.check))
        .with(Style::Plain, &finding.what);
    let hint = finding.hint.as_ref().map(|hint| {
        Line::new().with(Style::Plain, " ".repeat(11)).with(Style::Dim, format!("→ {hint}"))
    });
    std::iter::once(head).chain(hint).collect()
}
