//! The real codex: takopi beside codex itself, a bare client and OpenAI's SDKs.

mod bare;
mod sdk;
mod side;

use std::time::Duration;

use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, ModelServer, Script};

pub(crate) use self::side::serve as side;
use crate::contest::{Added, Contest, Crowd, Entrant, Place, Report, Rounds};
use crate::measure::{median, quantile};
use crate::table::{goal, millis};

/// The tables.
pub(crate) fn bench(rounds: Rounds) -> anyhow::Result<String> {
    let codex = real::codex()?;
    let contest = Contest { place, rounds };
    let own = |name: &str, side: &[&str]| Entrant::own(name, "codex", side, &codex.path);
    let mut entrants = vec![
        own("codex exec", &["codex-exec"])?,
        own("takopi exec", &["takopi-exec"])?,
        own("bare JSON-RPC", &["bare"])?,
        own("takopi app-server", &["takopi-server"])?,
    ];
    let mut report = Report::default();
    report.add(&format!("codex {} with a scripted model.\n", codex.version));
    for (sdk, entrant) in [("TypeScript", sdk::typescript(&codex)), ("Python", sdk::python(&codex))]
    {
        match entrant {
            Ok(entrant) => entrants.push(entrant),
            Err(error) => report.add(&format!("The {sdk} SDK is missing: {error:#}.\n")),
        }
    }
    let cold = contest.turns(&entrants, "new", rounds.turns)?;
    let heading = "one turn of a new session";
    report.add(&contest.turn_table(heading, &cold, &entrants)?);
    let warm = contest.turns(&entrants, "again", rounds.turns)?;
    report.add(&contest.turn_table("one more turn of a session", &warm, &[])?);
    let added = contest.latency_table([&entrants[2], &entrants[3]])?;
    report.add(&added.table);
    report.add(&verdicts(&added));
    report.add(&handover(&own("handover", &["handover"])?, rounds.start)?);
    entrants.retain(|entrant| {
        !entrant.name.ends_with("JSON-RPC") && !entrant.name.ends_with("app-server")
    });
    for (processes, busy) in [("1", "50"), ("2", "25"), ("4", "12")] {
        let name = format!("bare JSON-RPC on {processes}");
        entrants.push(own(&name, &["bare-shared", processes])?);
        let name = format!("takopi app-server, shared {processes} × {busy}");
        entrants.push(own(&name, &["takopi-shared", processes, busy])?);
    }
    let crowd = Crowd { heading: "50 new sessions at once", command: "many 50", prepared: false };
    report.add(&contest.at_once(&entrants, &crowd)?);
    Ok(report.finish())
}

/// Whether takopi adds as little as it should.
fn verdicts(added: &Added) -> String {
    let ([new, _], [warm, warm_p90]) = (added.new, added.warm);
    let new_goal = goal(
        "at most 1.5 ms added to a new session, at the median",
        &format!("{new} µs"),
        new <= 1_500,
    );
    let measured = format!("{warm} µs and {warm_p90} µs");
    let warm_goal = goal(
        "at most 0.7 ms added to a warm turn at the median, 3 ms at p90",
        &measured,
        warm <= 700 && warm_p90 <= 3_000,
    );
    format!("{new_goal}\n{warm_goal}")
}

/// A model that always answers the same, and a home whose codex asks it.
fn place() -> Place {
    let model = ModelServer::start();
    model.otherwise(Script::repeat(Answer::text("fine")));
    let home = TestHome::new(&model);
    Place::new(move |program| home.command(program).into_std(), model)
}

/// How soon a session that is warm in one takopi is started in another.
fn handover(entrant: &Entrant, rounds: usize) -> anyhow::Result<String> {
    let place = place();
    let mut contestant = entrant.start(&place)?;
    let times: Vec<Duration> =
        (0..rounds).map(|_| contestant.ask("again")).collect::<Result<_, _>>()?;
    Ok(format!(
        "A session that is warm in one takopi is started in another after {}, at the longest after {}.\n",
        millis(median(times.iter().copied())),
        millis(quantile(times.iter().copied(), 100)),
    ))
}
