//! The real Claude Code: takopi beside `claude -p`, a bare client and Anthropic's Agent SDK for Python.

mod bare;
mod side;

use anyhow::Context as _;
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real;
use takopi_tests::model::messages::{Answer, MessagesServer, Script};

pub(crate) use self::side::serve as side;
use crate::contest::sdk::{python, script};
use crate::contest::{Contest, Crowd, Entrant, Place, Report, Rounds, Turns};

/// How many times as fast a warm turn must be as a cold one of claude itself.
const GOAL: f64 = 8.0;
const SDK_VERSION: &str = "0.2.182";

/// The tables.
pub(crate) fn bench(rounds: Rounds) -> anyhow::Result<String> {
    let claude = real::claude()?;
    let contest = Contest { place, rounds };
    let own = |name: &str, side: &str| Entrant::own(name, "claude", &[side], &claude.path);
    let mut report = Report::default();
    report.add(&format!("Claude Code {} with a scripted model.\n", claude.version));
    let sdk = match python(&format!("claude-python-{SDK_VERSION}"), "claude/requirements.txt") {
        Ok(python) => Some(python),
        Err(error) => {
            report.add(&format!("The Agent SDK for Python is missing: {error:#}.\n"));
            None
        }
    };
    let with_sdk = |own: Vec<Entrant>, sdks: &[(&str, &str)]| -> Vec<Entrant> {
        let sdks = sdk.iter().flat_map(|python| sdks.iter().map(move |sdk| (python, sdk)));
        let sdks = sdks.map(|(python, (what, way))| {
            let name = format!("Agent SDK {SDK_VERSION}{what}");
            let args = vec![script("claude/turns.py").into(), way.into()];
            Entrant::foreign(name, python, args, &claude.path)
        });
        own.into_iter().chain(sdks).collect()
    };

    let entrants = with_sdk(
        vec![
            own("claude -p", "print")?,
            own("claude -p, to its exit", "print-to-exit")?,
            own("bare stream", "bare")?,
            own("takopi", "takopi-cold")?,
        ],
        &[(", query", "cold"), (", client", "warm")],
    );
    let cold = contest.turns(&entrants, "new", rounds.turns)?;
    let heading = "one turn of a new session";
    report.add(&contest.turn_table(heading, &cold, &entrants)?);

    let (bare, warm_takopi) =
        (own("bare stream, warm", "bare")?, own("takopi, warm", "takopi-warm")?);
    let entrants = with_sdk(
        vec![
            own(RESUME, "print")?,
            own("claude -p --resume, to its exit", "print-to-exit")?,
            own("takopi, cold", "takopi-cold")?,
            bare.clone(),
            warm_takopi.clone(),
        ],
        &[(", query", "cold"), (", client, warm", "warm")],
    );
    let turns = contest.turns(&entrants, "again", rounds.turns)?;
    report.add(&contest.turn_table("one more turn of a session", &turns, &[])?);
    report.add(&verdict(&turns, &warm_takopi.name)?);
    report.add(&contest.latency_table([&bare, &warm_takopi])?.table);

    let entrants = with_sdk(
        vec![own("claude -p", "print")?, own("takopi", "takopi-cold")?],
        &[(", query", "cold")],
    );
    let crowd = Crowd { heading: "20 new sessions at once", command: "many 20", prepared: false };
    report.add(&contest.at_once(&entrants, &crowd)?);
    let entrants =
        with_sdk(vec![own(RESUME, "print")?, warm_takopi], &[(", client, warm", "warm")]);
    let crowd = Crowd {
        heading: "one more turn of 20 sessions at once",
        command: "crowd 20",
        prepared: true,
    };
    report.add(&contest.at_once(&entrants, &crowd)?);
    Ok(report.finish())
}

const RESUME: &str = "claude -p --resume";

/// A model that always answers the same, and a home whose claude asks it.
fn place() -> Place {
    let model = MessagesServer::start();
    model.otherwise(Script::repeat(Answer::text("fine")));
    let home = TestHome::new(&model);
    Place::new(move |program| home.command(program).into_std(), model)
}

/// Whether a warm turn is as fast as it must be.
fn verdict(turns: &[Turns], warm: &str) -> anyhow::Result<String> {
    let median = |name: &str| {
        let turns = turns.iter().find(|turns| turns.name == name).context("no such row")?;
        anyhow::Ok(turns.median().as_secs_f64())
    };
    let times = median(RESUME)? / median(warm)?;
    let met = if times >= GOAL { "met" } else { "missed" };
    Ok(format!(
        "A warm turn of takopi is {times:.1} times as fast as a cold `{RESUME}` to its result; the goal of \
         {GOAL} is {met}.\n"
    ))
}
