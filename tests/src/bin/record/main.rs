//! Records the fixtures again, from the real codex with a scripted model, over both transports:
//!
//! ```text
//! cargo build -p takopi-tests && cargo run -p takopi-tests --bin record -- --version 0.166.0 [--out DIR]
//! ```
//!
//! Writes `DIR/codex-VERSION/exec/*.jsonl`, what `codex exec --json` printed, and
//! `DIR/codex-VERSION/app-server/*.txt`, what was sent (`>`) and received (`<`). Paths and ports are
//! made the same everywhere; ids and times stay as they came.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a tool for developers: an error is a panic"
)]

mod app_server;
mod scenes;

use std::fs;
use std::path::{Path, PathBuf};

use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real::raw::RawCodex;
use takopi_tests::codex::real::{self, Codex, Version};
use takopi_tests::dirs;
use takopi_tests::model::ModelServer;

use crate::scenes::{Place, Scene};

#[tokio::main]
async fn main() {
    let (version, out) = arguments();
    let codex = real::codex_version(version).expect("the codex to record");
    assert_eq!(codex.version, version, "TAKOPI_TEST_CODEX is another release");
    let out = out.join(format!("codex-{version}"));
    for (transport, extension) in [(Place::Exec, "jsonl"), (Place::AppServer, "txt")] {
        let directory = out.join(transport.directory());
        fs::create_dir_all(&directory).expect("the directory of the recordings");
        for scene in scenes::all(version) {
            if !scene.places.contains(&transport) {
                continue;
            }
            let lines = match transport {
                Place::Exec => exec(&codex, &scene).await,
                Place::AppServer => app_server::record(&codex, &scene).await,
            };
            let file = directory.join(format!("{}.{extension}", scene.name));
            fs::write(&file, lines.join("\n") + "\n").expect("write a recording");
            println!("{} ({} lines)", file.display(), lines.len());
        }
    }
}

fn arguments() -> (Version, PathBuf) {
    let (mut version, mut out) = (real::PINNED, dirs::workspace().join("fixtures"));
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--version" => version = value.parse().expect("a version"),
            "--out" => out = PathBuf::from(value),
            _ => panic!("{arg} is not known: --version VERSION, --out DIR"),
        }
    }
    (version, out)
}

async fn exec(codex: &Codex, scene: &Scene) -> Vec<String> {
    let model = ModelServer::start();
    model.otherwise(scene.script.clone());
    let home = (scene.settings)(TestHome::builder(&model)).build();
    let ended = RawCodex::exec(codex, &home, "hi").await.end().await;
    ended.lines.iter().map(|line| neutral(line, &home, &model)).collect()
}

/// The line as it would be anywhere else.
fn neutral(line: &str, home: &TestHome, model: &ModelServer) -> String {
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    line.replace(&text(&home.workspace()), "/workspace")
        .replace(&text(&home.codex_home()), "/codex-home")
        .replace(&text(home.root()), "/home")
        .replace(&model.address().to_string(), "127.0.0.1:PORT")
}
