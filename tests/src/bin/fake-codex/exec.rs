//! `codex exec`: the steps of the script, with a prompt read from stdin.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use takopi_tests::codex::fake::Step;
use takopi_tests::codex::fake::report::{Report, stdin_file};
use takopi_tests::fake::play::{Fake, Link, Player};

/// Plays all steps.
pub(crate) fn run(fake: &Arc<Fake>, link: Option<Link>, steps: &[Step]) {
    let mut player = Player::new(Arc::clone(fake), link);
    let cwd = std::env::current_dir().unwrap_or_default();
    let session = session(&fake.args);
    player.vars.set("THREAD", &session);
    player.report(&Report::Holds(session));
    player.vars.set("CWD", &cwd.to_string_lossy());
    player.vars.set("PROMPT", "");
    let mut prompt = Vec::new();
    for step in steps {
        let limit = match step {
            Step::ReadStdin => u64::MAX,
            Step::ReadStdinBytes(limit) => *limit as u64,
            other => {
                player.play(other);
                continue;
            }
        };
        std::io::stdin().lock().take(limit).read_to_end(&mut prompt).expect("stdin can be read");
        player.vars.set("PROMPT", &String::from_utf8_lossy(&prompt));
        if let Some(control) = &fake.control {
            let file = File::create(control.join(stdin_file(fake.start)));
            file.and_then(|mut file| file.write_all(&prompt)).expect("a record of stdin");
        }
    }
}

/// The session that the arguments ask for, as codex spells it, or a new one.
fn session(args: &[String]) -> String {
    let resume = args.iter().position(|arg| arg == "resume");
    let id = resume.and_then(|at| args.get(at + 1));
    id.map_or_else(|| uuid::Uuid::new_v4().to_string(), |id| id.to_lowercase())
}
