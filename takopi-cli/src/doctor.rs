//! `takopi doctor`: checks the installation, with a hint for every problem.

mod checks;

use std::path::Path;

use serde::Serialize;
use takopi_bridge::present::{Line, Style};
use takopi_core::catalog::{Finding, Status};

use crate::args::DoctorArgs;
use crate::exit;
use crate::run::runtime;
use crate::terminal::{self, Terminal};

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
    let ok = findings.iter().all(|finding| finding.status != Status::Problem);
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
    let (mark, style) = match finding.status {
        Status::Ok => ("✓", Style::Good),
        Status::Problem => ("✗", Style::Bad),
        _ => ("!", Style::Warn),
    };
    let head = Line::new()
        .with(style, mark)
        .with(Style::Strong, format!(" {:<8} ", finding.check))
        .with(Style::Plain, &finding.text);
    let hint = finding.hint.as_ref().map(|hint| {
        Line::new().with(Style::Plain, " ".repeat(11)).with(Style::Dim, format!("→ {hint}"))
    });
    std::iter::once(head).chain(hint).collect()
}
