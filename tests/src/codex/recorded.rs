//! The lines that were recorded of the real codex, in `fixtures/`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::dirs;

/// A recording of `codex exec --json`.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Its release and name.
    pub name: String,
    /// Its lines.
    pub lines: Vec<String>,
}

/// The first turn of a recording of `codex app-server`.
///
/// Placeholders: `$THREAD` and `$TURN` for the ids; `"$REQUEST"`, with its quotes, for the id of the
/// request that is answered; `"$ASK"` for the id of a request of the server.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Its release and name.
    pub name: String,
    /// What came in response to `thread/start`, the response included.
    pub opening: Vec<String>,
    /// What came in response to `turn/start`, the response included.
    pub turn: Vec<String>,
}

/// The directory the recordings were made in.
pub const WORKSPACE: &str = "/workspace";

fn files(kind: &str) -> Vec<(String, PathBuf)> {
    let text = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::new();
    let fixtures = dirs::workspace().join("fixtures");
    for release in std::fs::read_dir(fixtures).expect("the recordings").flatten() {
        let release = release.path();
        let version = release.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for file in std::fs::read_dir(release.join(kind)).into_iter().flatten().flatten() {
            files.push((format!("{version}/{}", text(&file.path())), file.path()));
        }
    }
    files.sort();
    assert!(files.len() >= 40, "only {} recordings", files.len());
    files
}

/// All recordings of exec.
pub fn exec() -> Vec<Exec> {
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("a recording");
    let lines = |text: String| text.lines().map(str::to_owned).collect();
    files("exec").into_iter().map(|(name, path)| Exec { name, lines: lines(read(path)) }).collect()
}

/// The first turns of all recordings of app-server.
pub fn turns() -> Vec<Turn> {
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("a recording");
    files("app-server").into_iter().map(|(name, path)| first_turn(name, &read(path))).collect()
}

fn first_turn(name: String, text: &str) -> Turn {
    let mut found = Turn { name, opening: Vec::new(), turn: Vec::new() };
    let (mut thread, mut turn) = (None, None);
    let mut requested = "";
    for line in text.lines() {
        if let Some(sent) = line.strip_prefix("> ") {
            let opens =
                ["thread/start", "turn/start"].into_iter().find(|method| sent.contains(method));
            requested = opens.unwrap_or(requested);
            continue;
        }
        let Some(Ok(mut message)) = line.strip_prefix("< ").map(serde_json::from_str::<Value>)
        else {
            continue;
        };
        let id = |of: &Value| of["id"].as_str().map(str::to_owned);
        thread = thread.or_else(|| id(&message["result"]["thread"]));
        let named = id(&message["result"]["turn"]).or_else(|| id(&message["params"]["turn"]));
        turn = turn.or(named);
        let asks = message.get("id").is_some() && message.get("method").is_some();
        if asks {
            message["id"] = json!("$ASK");
        } else if message.get("id").is_some() {
            let what = if requested == "turn/start" { "turn" } else { "thread" };
            let already = &if what == "turn" { &found.turn } else { &found.opening };
            let answered = already.iter().any(|line| line.contains("\"$REQUEST\""));
            if message["result"][what].is_null() || answered {
                continue;
            }
            message["id"] = json!("$REQUEST");
        }
        let over = message["method"] == "turn/completed";
        let mut line = message.to_string();
        for (id, placeholder) in [(&thread, "$THREAD"), (&turn, "$TURN")] {
            if let Some(id) = id {
                line = line.replace(id.as_str(), placeholder);
            }
        }
        match requested {
            "turn/start" => found.turn.push(line),
            "thread/start" => found.opening.push(line),
            _ => {}
        }
        if over {
            break;
        }
    }
    // Some notices came before their ids were known from a response.
    for line in found.opening.iter_mut().chain(&mut found.turn) {
        if let Some(thread) = &thread {
            *line = line.replace(thread.as_str(), "$THREAD");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_opens_and_ends() {
        for recorded in turns() {
            let responses = |lines: &[String]| {
                lines.iter().filter(|line| line.contains("\"$REQUEST\"")).count()
            };
            assert_eq!(responses(&recorded.opening), 1, "{recorded:#?}");
            assert_eq!(responses(&recorded.turn), 1, "{recorded:#?}");
            let last = recorded.turn.last().expect("lines");
            assert!(last.contains("turn/completed") && last.contains("$TURN"), "{recorded:#?}");
        }
        assert!(exec().iter().all(|recorded| recorded.lines.len() > 2));
    }
}
