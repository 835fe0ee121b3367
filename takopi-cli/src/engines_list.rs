//! `takopi engines`: which engines there are, whether they are installed, and what they support.

use futures::future::join_all;
use serde::Serialize;
use takopi_bridge::present::{Line, Style};
use takopi_core::catalog::{EngineEntry, EngineSetup, Feature, Finding, Status};

use crate::args::EnginesArgs;
use crate::config::Config;
use crate::run::runtime;
use crate::terminal::{self, Terminal};
use crate::{engines, exit};

/// An engine, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed {
    engine: String,
    title: String,
    installed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// What is known of its login: `ok`, or what was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<String>,
    transports: Vec<Transport>,
}

#[derive(Debug, Serialize)]
struct Transport {
    name: &'static str,
    supports: Vec<&'static str>,
}

pub(crate) fn main(args: &EnginesArgs, config: &Config, terminal: Terminal) -> anyhow::Result<u8> {
    let listed = runtime()?.block_on(join_all(engines::all().map(|entry| look(entry, config))));
    if args.json {
        let mut text = serde_json::to_vec_pretty(&listed)?;
        text.push(b'\n');
        terminal::print(&text)?;
    } else {
        terminal.print_lines(&listed.iter().flat_map(lines).collect::<Vec<_>>())?;
    }
    Ok(exit::OK)
}

async fn look(entry: &'static dyn EngineEntry, config: &Config) -> Listed {
    let program = entry.program().and_then(|program| config.programs.get(program.flag)).cloned();
    let installed = program.is_some() || entry.is_installed();
    let mut findings = Vec::new();
    if installed {
        findings = entry.doctor(&EngineSetup::new().program(program)).await;
    }
    let found = |check: &str| findings.iter().find(|finding| finding.check == check);
    let login = |finding: &Finding| match finding.status {
        Status::Ok => "ok".to_owned(),
        _ => finding.text.clone(),
    };
    let transports = entry.transports().iter().map(|transport| Transport {
        name: transport.name,
        supports: Feature::ALL
            .into_iter()
            .filter(|feature| transport.supports(*feature))
            .map(Feature::as_str)
            .collect(),
    });
    Listed {
        engine: entry.id().to_string(),
        title: entry.title().to_owned(),
        installed,
        version: found("version")
            // A note says that there is none.
            .filter(|finding| finding.status != Status::Note)
            .map(|finding| finding.text.clone()),
        login: found("login").map(login),
        transports: transports.collect(),
    }
}

fn lines(listed: &Listed) -> Vec<Line> {
    let Listed { engine, title, installed, version, login, transports } = listed;
    let (mark, style) = if *installed { ("✓", Style::Good) } else { ("–", Style::Dim) };
    let state = match (installed, version) {
        (false, _) => "not installed".to_owned(),
        (true, None) => String::new(),
        (true, Some(version)) => version.clone(),
    };
    let head = Line::new()
        .with(style, mark)
        .with(Style::Strong, format!(" {engine:<12} "))
        .with(Style::Plain, format!("{title:<20} {state}"));
    let indent = " ".repeat(15);
    let login = login.iter().filter(|_| *installed).map(|login| {
        Line::new().with(Style::Plain, &indent).with(Style::Dim, format!("login: {login}"))
    });
    let transports = transports.iter().map(|Transport { name, supports }| {
        let text = format!("{name}: {}", supports.join(", ").replace('_', " "));
        Line::new().with(Style::Plain, &indent).with(Style::Dim, text)
    });
    std::iter::once(head).chain(login).chain(transports).collect()
}
