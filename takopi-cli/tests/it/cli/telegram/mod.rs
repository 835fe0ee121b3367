//! `takopi telegram` against a fake Bot API: the binary is run as people run it.

mod bot;
mod check;
mod secrecy;
mod setup;

use takopi_tests::telegram::{FakeTelegram, Room, TOKEN};

use super::lab::{Lab, Running};

/// A person who is allowed, and one who is not.
const ALICE: i64 = 11;
const MALLORY: i64 = 66;
const CHAT: Room = Room { chat: ALICE, topic: None };
/// What the command prints once it polls.
const RUNS: &str = "the bot is running";

/// A directory with a configuration for the fake; `more` are further lines of the table.
fn lab(fake: &FakeTelegram, more: &str) -> Lab {
    let lab = Lab::new();
    configure(&lab, fake, &format!("token = {TOKEN:?}\n{more}"));
    lab
}

/// Writes a configuration without a token.
fn configure(lab: &Lab, fake: &FakeTelegram, more: &str) {
    let service = fake.url();
    let table = format!(
        "[telegram]\nservice = {service:?}\nallowed_users = [{ALICE}]\nforward_window = '0s'\n{more}"
    );
    lab.write("home/.config/takopi/config.toml", &table);
}

/// Starts the bot with the demo engine, and waits until it runs.
fn start(lab: &Lab) -> Running {
    let mut running = Running::start(lab.takopi(&["telegram", "--engine", "demo"]));
    running.wait_for(RUNS);
    running
}

/// A message of the demo engine's run waits for an approval: it is given.
async fn accept(fake: &FakeTelegram) {
    let question = fake.offers(CHAT, "Accept").await;
    fake.press(ALICE, question.id, "Accept", ALICE);
}
