//! Streaming on a terminal: how soon the model's first token is on the screen, and how many bytes are drawn.
//!
//! `takopi run` on a pseudo-terminal, the real codex, a scripted model on loopback. The time runs from the moment
//! the model sends its first token to the moment it can be read from the terminal, so it has codex's part in it.

use std::io::Read as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pty_process::blocking::{Command, open};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};

use crate::contest::Rounds;
use crate::measure::{median, quantile};
use crate::table::{Table, millis};

/// A text that is on the screen only because the model wrote it.
const TOKEN: &str = "octopus";
const BLOCK: &str = "## A heading\n\nSome prose with **bold** words and `code`, long enough to take a few lines of \
    the screen, and so on until the end of the paragraph.\n\n- an item with some text\n- another item\n\n\
    ```rust\nfn main() {\n    println!(\"hello, world\");\n}\n```\n\n";

/// The tables.
pub(crate) fn bench(rounds: Rounds) -> anyhow::Result<String> {
    let lab = Lab::new()?;
    let mut times = Vec::new();
    for round in 0..rounds.turns {
        times.push(lab.first_token(round)?);
    }
    let mut table = Table::new("first token to screen", &["median", "90 %", "rounds"]);
    let shown = [median(times.iter().copied()), quantile(times.iter().copied(), 90)];
    table.row(shown.map(millis).into_iter().chain([times.len().to_string()]));
    let mut drawn = Table::new("bytes drawn", &["bytes of the answer", "bytes drawn", "ratio"]);
    for blocks in [4, 40, 400, 800] {
        let answer = BLOCK.repeat(blocks);
        let bytes = lab.drawn(&answer)?;
        let hundredths = bytes * 100 / answer.len();
        let ratio = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        drawn.row([answer.len().to_string(), bytes.to_string(), ratio]);
    }
    Ok(format!("{table}\n{drawn}"))
}

struct Lab {
    model: ModelServer,
    home: TestHome,
    codex: real::Codex,
    program: std::path::PathBuf,
}

impl Lab {
    fn new() -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("takopi");
        let hint =
            "there is no takopi beside this program; build it: cargo build --release -p takopi-cli";
        program.metadata().context(hint)?;
        let model = ModelServer::start();
        let home = TestHome::new(&model);
        Ok(Self { model, home, codex: real::codex()?, program })
    }

    fn first_token(&self, round: usize) -> anyhow::Result<Duration> {
        let (gate, prompt) = (Gate::new(), format!("round {round}."));
        self.model.when(&prompt, Answer::new().wait_for(&gate).deltas([TOKEN, " and more"]));
        let opener = std::thread::spawn({
            let gate = gate.clone();
            move || {
                tokio::runtime::Builder::new_current_thread().build()?.block_on(gate.reached());
                let begun = Instant::now();
                gate.open();
                anyhow::Ok(begun)
            }
        });
        let mut shown = None;
        self.run(&prompt, |raw| {
            if shown.is_none() && contains(raw, TOKEN.as_bytes()) {
                shown = Some(Instant::now());
            }
        })?;
        let begun = opener.join().map_err(|_| anyhow::anyhow!("the gate was never reached"))??;
        Ok(shown.context("the token was never shown")?.duration_since(begun))
    }

    fn drawn(&self, answer: &str) -> anyhow::Result<usize> {
        let prompt = format!("{} bytes.", answer.len());
        let letters: Vec<char> = answer.chars().collect();
        let pieces = letters.chunks(4).map(|piece| piece.iter().collect::<String>());
        self.model.when(&prompt, Answer::new().deltas(pieces));
        let mut bytes = 0;
        self.run(&prompt, |raw| bytes = raw.len())?;
        Ok(bytes)
    }

    /// Runs a prompt on a terminal; `seen` gets everything that was written to it so far.
    fn run(&self, prompt: &str, mut seen: impl FnMut(&[u8])) -> anyhow::Result<()> {
        let (mut terminal, other) = open()?;
        terminal.resize(pty_process::Size::new(40, 100))?;
        let command = Command::new(&self.program)
            .args(["run", prompt])
            .current_dir(self.home.workspace())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(self.home.env())
            .env("TERM", "xterm-256color")
            .env("TAKOPI_CODEX_BIN", &self.codex.path);
        let mut child = command.spawn(other)?;
        let (mut raw, mut bytes) = (Vec::new(), [0; 4096]);
        // A terminal whose other end is closed gives an error, which is its end.
        while let Ok(count @ 1..) = terminal.read(&mut bytes) {
            raw.extend(&bytes[..count]);
            seen(&raw);
        }
        anyhow::ensure!(child.wait()?.success(), "{}", String::from_utf8_lossy(&raw));
        Ok(())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    let from = text.len().saturating_sub(8192);
    text[from..].windows(part.len()).any(|window| window == part)
}
