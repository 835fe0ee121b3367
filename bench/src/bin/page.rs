//! The time from the model's first token to the page of `takopi serve`: the real codex, a scripted model on
//! loopback, and a real browser.
//!
//! ```sh
//! cargo build --release -p takopi-cli && cargo run --release -p takopi-bench --bin page
//! ```
//!
//! The clock starts when the model server may send the first piece, and stops when the piece is in the document. The
//! way through the agent is part of it.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use takopi_tests::browser::page_or_skip;
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::dirs;
use takopi_tests::model::{Answer, Gate, ModelServer};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const ROUNDS: usize = 30;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let codex = real::codex()?;
    let model = ModelServer::start();
    let home = TestHome::new(&model);
    let mut command = home.command(takopi()?);
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("TAKOPI_CODEX_BIN", &codex.path);
    let mut server =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(server.stderr.take().context("it is piped")?).lines();
    let line = lines.next_line().await?.context("the server prints its address")?;
    let address = line.split("listening on ").nth(1).context("an address")?.to_owned();
    let mut page = page_or_skip().await.context("no browser")?;
    page.open(&address).await;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let gate = Gate::new();
        let prompt = format!("prompt {round} of the benchmark");
        let answer = Answer::new()
            .started()
            .wait_for(&gate)
            .deltas([format!("first{round} "), "second".to_owned()]);
        model.when(&prompt, answer);
        page.click("textarea").await;
        page.type_text(&prompt).await;
        page.press_enter(false).await;
        gate.reached().await;
        // Polled in the page, so that the way back to this program does not count.
        page.eval(&format!(
            "window.seen = new Promise(done => {{
                const look = () => document.querySelector('#log').textContent.includes('first{round} ')
                    && done(performance.timeOrigin + performance.now());
                new MutationObserver(look).observe(document.querySelector('#log'), {{ subtree: true, childList: true, characterData: true }});
            }}); 0"
        ))
        .await;
        let begun = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1e3;
        gate.open();
        let seen = page.eval("window.seen").await.as_f64().context("a time")?;
        times.push(seen - begun);
        page.wait_for(&format!("document.querySelectorAll('.final').length === {}", round + 1))
            .await;
    }
    times.sort_by(f64::total_cmp);
    let at = |tenths: usize| times[(ROUNDS - 1) * tenths / 10];
    println!("from the model's first token to the page, {ROUNDS} rounds, codex {}:", codex.version);
    println!("median {:.1} ms, fastest {:.1} ms, 90 % within {:.1} ms", at(5), at(0), at(9));
    server.start_kill()?;
    server.wait().await?;
    ensure!(at(5) < 50.0, "the median is not below 50 ms");
    Ok(())
}

/// The command as it is shipped.
fn takopi() -> anyhow::Result<PathBuf> {
    let path = dirs::target_dir().join("release/takopi");
    ensure!(path.is_file(), "cargo build --release -p takopi-cli comes first");
    Ok(path)
}
