//! Recordings, as the driver would feed them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::*;

pub(super) const VERSIONS: [&str; 3] = ["2.0.45", "2.1.210", "2.1.325"];
pub(super) const SESSION: &str = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";
pub(super) const MESSAGE: &str = "00000000-0000-4000-8000-0000000000aa";

/// A recording: in duplex, lines begin with `> ` or `< `.
pub(super) struct Recording {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// All recordings of a version, by name.
pub(super) fn recordings(version: &str) -> Vec<Recording> {
    let mut all = Vec::new();
    for kind in ["print", "duplex"] {
        let directory = fixtures().join(format!("claude-{version}/{kind}"));
        for file in std::fs::read_dir(directory).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            all.push(Recording::named(&format!("{version}/{kind}/{name}")));
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() > 70, "only {} recordings", all.len());
    all
}

impl Recording {
    pub(super) fn named(name: &str) -> Self {
        let extension = if name.contains("/duplex/") { "txt" } else { "jsonl" };
        let path = fixtures().join(format!("claude-{name}.{extension}"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{}", path.display()));
        // Not `str::lines`, which is what a framer does: a raw U+2028 is no end of a line.
        let lines = text.split('\n').map(str::to_owned).filter(|line| !line.is_empty());
        Self { name: name.to_owned(), lines: lines.collect() }
    }

    /// The events of each run in it.
    pub(super) fn replayed(&self) -> Vec<Vec<TakopiEvent>> {
        self.replayed_with(false)
    }

    pub(super) fn replayed_with(&self, deltas: bool) -> Vec<Vec<TakopiEvent>> {
        let session = self.session().unwrap_or_else(|| SESSION.to_owned());
        let mut runs: Vec<Vec<TakopiEvent>> = Vec::new();
        let mut current: Option<Translator> = None;
        if !self.name.contains("/duplex/") {
            current = Some(begun(&session, MESSAGE, true, deltas));
            runs.push(Vec::new());
        }
        for line in &self.lines {
            if let Some(sent) = line.strip_prefix("> ") {
                let Some(id) = user_message(sent) else { continue };
                if let Some(translator) = &mut current {
                    translator.steered(id);
                } else {
                    current = Some(begun(&session, &id, runs.is_empty(), deltas));
                    runs.push(Vec::new());
                }
                continue;
            }
            let Some(translator) = &mut current else { continue };
            let line = line.strip_prefix("< ").unwrap_or(line);
            let events = runs.last_mut().unwrap();
            translator.message(&Message::parse(line).unwrap(), events);
            if translator.is_over() {
                let completed = translator.finish(died(), events);
                events.push(completed.into());
                current = None;
            }
        }
        if let Some(mut translator) = current {
            let events = runs.last_mut().unwrap();
            let completed = translator.finish(died(), events);
            events.push(completed.into());
        }
        runs
    }

    /// The session of the first init.
    fn session(&self) -> Option<String> {
        let printed = self.lines.iter().filter(|line| !line.starts_with("> "));
        printed.map(|line| line.strip_prefix("< ").unwrap_or(line)).find_map(|line| {
            match Message::parse(line).ok()? {
                Message::Init(init) => init.session,
                _ => None,
            }
        })
    }
}

/// The id of a message that was sent.
fn user_message(line: &str) -> Option<String> {
    let sent: Value = serde_json::from_str(line).ok()?;
    (sent["type"] == "user").then(|| sent["uuid"].as_str().unwrap_or(MESSAGE).to_owned())
}

pub(super) fn translator(session: &str, message: &str) -> Translator {
    begun(session, message, true, false)
}

fn begun(session: &str, message: &str, fresh: bool, deltas: bool) -> Translator {
    Translator::new(TurnSetup {
        title: "Claude Code".to_owned(),
        session: session.to_owned(),
        directory: "/home/ada/project".into(),
        message_id: message.to_owned(),
        fresh,
        deltas,
    })
}

pub(super) fn died() -> Completed {
    Completed::failure(CLAUDE, Reason::ProcessDied, "the process exited")
}

/// The runs of a recording.
pub(super) fn runs(name: &str) -> Vec<Vec<TakopiEvent>> {
    Recording::named(name).replayed()
}

/// The only run of a recording.
pub(super) fn run(name: &str) -> Vec<TakopiEvent> {
    let mut runs = runs(name);
    assert_eq!(runs.len(), 1, "{name}");
    runs.remove(0)
}

/// The events of lines, and whether the run was over by itself.
pub(super) fn translated(lines: &[&str]) -> (Vec<TakopiEvent>, bool) {
    let mut translator = translator(SESSION, MESSAGE);
    let mut events = Vec::new();
    for line in lines {
        translator.message(&Message::parse(line).unwrap(), &mut events);
    }
    let is_over = translator.is_over();
    let completed = translator.finish(died(), &mut events);
    events.push(completed.into());
    (events, is_over)
}

pub(super) fn end(events: &[TakopiEvent]) -> &Completed {
    match events.last() {
        Some(TakopiEvent::Completed(completed)) => completed,
        other => panic!("no end: {other:?}"),
    }
}

/// The events about actions of a kind.
pub(super) fn actions<'a>(events: &'a [TakopiEvent], kind: &str) -> Vec<&'a ActionEvent> {
    let of_kind = |event: &'a TakopiEvent| match event {
        TakopiEvent::Action(event) if event.action.kind.as_str() == kind => Some(event),
        _ => None,
    };
    events.iter().filter_map(of_kind).collect()
}

/// One start, one end, and every call closed once and never touched again.
pub(super) fn check(name: &str, events: &[TakopiEvent]) {
    let starts = events.iter().filter(|event| matches!(event, TakopiEvent::Started(_))).count();
    let ends = events.iter().filter(|event| matches!(event, TakopiEvent::Completed(_))).count();
    assert!(starts <= 1 && ends == 1, "{name}: {starts} starts, {ends} ends");
    assert!(matches!(events.last(), Some(TakopiEvent::Completed(_))), "{name}");
    assert!(starts == 1 || !end(events).ok, "{name}: ok without a start");
    let mut phases: HashMap<&str, Phase> = HashMap::new();
    for event in events {
        let TakopiEvent::Action(event) = event else { continue };
        assert!(!event.action.id.trim().is_empty(), "{name}: no id");
        if matches!(event.action.kind.as_str(), "turn" | "telemetry") {
            continue;
        }
        let before = phases.insert(&event.action.id, event.phase);
        let again = event.action.id == "claude.retry" && event.phase == Phase::Started;
        let fine = match before {
            None => event.phase != Phase::Updated,
            Some(Phase::Completed) => again,
            Some(_) => event.phase != Phase::Started || again,
        };
        assert!(fine, "{name}: {before:?} then {event:?}");
    }
    for (id, phase) in phases {
        assert_eq!(phase, Phase::Completed, "{name}: {id} is open");
    }
}
