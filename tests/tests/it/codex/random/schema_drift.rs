//! Drift of the schema: every recorded line, mutated by a seed, through both transports.
//!
//! For each mutation: the run ends with exactly one `Completed`, within its limits; where the line that
//! ends the turn is left as it was, or was changed as a tolerant reader must not notice, by that line;
//! where those of the answer are too, with that answer; lines of another thread or turn never change a
//! run; and the runs beside a mutated one, on the same server, end as they do alone.
//!
//! - `TAKOPI_DRIFT_MUTATIONS`: how many (100,000);
//! - `TAKOPI_DRIFT_SEED`: the first seed. A failure prints the seed that shows it again.
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt, stream};
use serde_json::Value;
use takopi_codex::app_server::{PoolLimits, translate_lines};
use takopi_codex::exec::ExecTranslator;
use takopi_core::jsonl::{Ending, Translator};
use takopi_core::process::Exit;
use takopi_core::{Completed, ResumeToken, Runner, TakopiEvent};
use takopi_tests::codex::fake::{Script, Step};
use takopi_tests::codex::lab::Lab;
use takopi_tests::codex::recorded::{self, Exec, Turn};
use takopi_tests::codex::relay::{Lane, Plan};
use takopi_tests::dice::Dice;
use takopi_tests::model::PATIENCE;
use takopi_tests::mutate;
use takopi_tests::runs::{request, run};

/// Prints past the capture of the test harness.
macro_rules! report {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// Of a hundred mutations, so many go through the whole engine on a server with neighbours.
const THROUGH_THE_ENGINE: u64 = 10;
/// Mutated runs beside one neighbour.
const BESIDE: u64 = 8;
/// Servers at once, each with a runner of its own. Most of a round is waiting for a limit.
const LANES: u64 = 18;
/// After so many faults the rest is left out.
const MOST_FAULTS: usize = 20;
/// The session of runs over exec that resume one.
const ASKED: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn first_seed() -> u64 {
    setting("TAKOPI_DRIFT_SEED", 1)
}

fn mutations() -> u64 {
    setting("TAKOPI_DRIFT_MUTATIONS", 100_000)
}

/// How to reproduce a failure.
fn replay(test: &str, seed: u64) -> String {
    format!(
        "replay: TAKOPI_DRIFT_SEED={seed} TAKOPI_DRIFT_MUTATIONS=1 cargo test -p takopi-tests --test it schema_drift::{test}"
    )
}

fn text(lines: &[Vec<u8>]) -> String {
    let cut = |line: &Vec<u8>| String::from_utf8_lossy(&line[..line.len().min(2000)]).into_owned();
    lines.iter().map(cut).collect::<Vec<_>>().join("\n")
}

/// What holds for the events of any translator.
fn check(events: &[TakopiEvent]) -> Result<(), String> {
    let count =
        |found: fn(&TakopiEvent) -> bool| events.iter().filter(|event| found(event)).count();
    let ends = count(|event| matches!(event, TakopiEvent::Completed(_)));
    if ends > 1 || (ends == 1 && !matches!(events.last(), Some(TakopiEvent::Completed(_)))) {
        return Err(format!("{ends} ends, or something behind the end"));
    }
    match count(|event| matches!(event, TakopiEvent::Started(_))) {
        0 | 1 => Ok(()),
        starts => Err(format!("{starts} starts")),
    }
}

fn ended(events: &[TakopiEvent]) -> bool {
    matches!(events.last(), Some(TakopiEvent::Completed(_)))
}

/// What a run comes to, as far as a mutation elsewhere must not change it.
fn result(events: &[TakopiEvent]) -> Option<(bool, &str)> {
    match events.last() {
        Some(TakopiEvent::Completed(end)) => Some((end.ok, &end.answer)),
        _ => None,
    }
}

/// Whether a line of exec can change how the run ends, or its answer.
fn decides_exec(line: &str) -> bool {
    ["thread.started", "turn.", "agent_message", "\"error\""].iter().any(|it| line.contains(it))
}

/// Whether a line ends its turn.
fn ends_turn(line: &str) -> bool {
    line.contains("\"method\":\"turn/completed\"")
}

/// Whether a line is a response.
fn is_response(line: &str) -> bool {
    line.contains("\"$REQUEST\"")
}

/// Whether a line tells which turn it is that runs: another one's end is not its end.
fn names_turn(line: &str) -> bool {
    line.contains("\"method\":\"turn/started\"") || is_response(line)
}

/// Whether a line can change how the turn ends, or its answer.
fn decides_turn(line: &str) -> bool {
    let text = line.contains("agentMessage") || line.contains("\"method\":\"error\"");
    text || ends_turn(line) || names_turn(line)
}

/// The events of a run over exec whose process exits with 0.
fn translate_exec(lines: &[Vec<u8>]) -> Vec<TakopiEvent> {
    let mut translator = ExecTranslator::new(recorded::WORKSPACE, None);
    let mut events = Vec::new();
    for line in lines {
        let _ = translator.line(line, &mut events);
        if ended(&events) {
            return events;
        }
    }
    assert_eq!(translator.end(&Exit::with_code(0, ""), &mut events), Ending::Over);
    events
}

#[test]
fn a_mutated_line_of_exec_never_keeps_a_run_from_its_one_end() {
    let recorded = recorded::exec();
    let alone: Vec<_> = recorded.iter().map(|it| translate_exec(&raw(&it.lines))).collect();
    let count = (mutations() * (100 - THROUGH_THE_ENGINE) / 100).div_ceil(2);
    for seed in first_seed()..first_seed() + count {
        let mut dice = Dice::new(seed);
        let at = dice.index(recorded.len());
        let Exec { name, lines } = &recorded[at];
        let drift = mutate::lines(&mut dice, lines);
        let events = translate_exec(&drift.lines);
        let fault = check(&events).err();
        let fault =
            fault.or_else(|| (!ended(&events)).then(|| "no end".to_owned())).or_else(|| {
                let changed =
                    drift.keeps(lines, decides_exec) && result(&events) != result(&alone[at]);
                changed.then(|| format!("it ends otherwise than {:?}", result(&alone[at])))
            });
        if let Some(fault) = fault {
            let how = replay("a_mutated_line_of_exec_never_keeps_a_run_from_its_one_end", seed);
            panic!("{fault} ({name})\n{how}\n{}\n{events:#?}", text(&drift.lines));
        }
    }
    report!("drift: {count} mutations over exec");
}

#[test]
fn a_mutated_line_of_a_turn_never_gives_a_second_end_or_start_or_loses_the_end() {
    let recorded = recorded::turns();
    let translate =
        |lines: &[Vec<u8>], deltas| translate_lines(lines.iter().map(Vec::as_slice), deltas);
    let alone: Vec<_> = recorded.iter().map(|it| translate(&raw(&it.turn), false)).collect();
    assert!(alone.iter().all(|events| ended(events)), "every recording has its end");
    let count = mutations() * (100 - THROUGH_THE_ENGINE) / 200;
    for seed in first_seed()..first_seed() + count {
        let mut dice = Dice::new(seed);
        let at = dice.index(recorded.len());
        let Turn { name, turn, .. } = &recorded[at];
        let drift = mutate::lines(&mut dice, turn);
        let events = translate(&drift.lines, seed % 2 == 0);
        let fault = check(&events).err().or_else(|| {
            if drift.has(turn, ends_turn) && !ended(&events) {
                return Some("its end was there, and did not end it".to_owned());
            }
            let changed = drift.keeps(turn, decides_turn) && result(&events) != result(&alone[at]);
            changed.then(|| format!("it ends otherwise than {:?}", result(&alone[at])))
        });
        if let Some(fault) = fault {
            let test =
                "a_mutated_line_of_a_turn_never_gives_a_second_end_or_start_or_loses_the_end";
            let how = replay(test, seed);
            panic!("{fault} ({name})\n{how}\n{}\n{events:#?}", text(&drift.lines));
        }
    }
    report!("drift: {count} mutations over the translator of app-server");
}

/// Over real processes: what only the whole runner promises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutated_line_of_exec_never_opens_another_session_than_was_asked_for() {
    let recorded = recorded::exec();
    let lab = Lab::new(Script::default());
    let runner = lab.exec();
    let count = (mutations() / 500).clamp(1, 300);
    let cases = (first_seed()..first_seed() + count).map(|seed| {
        let mut dice = Dice::new(seed);
        let Exec { name, lines } = &recorded[dice.index(recorded.len())];
        let id = lines[0].split('"').find(|word| word.len() == ASKED.len()).unwrap_or(ASKED);
        // Mostly the line that names the session.
        let lines: Vec<String> = lines.iter().map(|line| line.replace(id, "$THREAD")).collect();
        let lines = if dice.chance(60) {
            let first = mutate::json(&mut dice, &lines[0]);
            [vec![first], lines[1..].iter().map(|line| line.clone().into_bytes()).collect()]
                .concat()
        } else {
            mutate::lines(&mut dice, &lines).lines
        };
        (seed, name, lines)
    });
    let runner = &runner;
    let lab = &lab;
    let runs = cases.map(|(seed, name, lines)| async move {
        let session = ResumeToken::new("codex", uuid::Uuid::new_v4().to_string());
        let print = lines.iter().map(|line| Step::raw([line.as_slice(), b"\n"].concat()));
        let script = Script::exec([Step::ReadStdin].into_iter().chain(print));
        let request = request(&lab.home, "hi").resume(session.clone());
        let env = lab.control.env(&script);
        let request = env.iter().fold(request, |request, (name, value)| request.env(name, value));
        let request = request.wall_timeout(PATIENCE);
        let seen = run(runner, request).await;
        let started = seen.events.iter().find_map(|event| match event {
            TakopiEvent::Started(started) => Some(&started.resume),
            _ => None,
        });
        let how =
            replay("a_mutated_line_of_exec_never_opens_another_session_than_was_asked_for", seed);
        let what = || format!("{name}\n{how}\n{}\n{:#?}", text(&lines), seen.events);
        assert!(started.is_none_or(|started| *started == session), "{}", what());
        assert_eq!(seen.completed().resume, Some(session), "{}", what());
    });
    stream::iter(runs).for_each_concurrent(8, |run| run).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    report!("drift: {count} mutations over exec processes");
}

/// What a run comes to: everything that a fault elsewhere must not change.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    ok: bool,
    answer: String,
    reason: Option<String>,
    error: Option<String>,
    /// Commands, tools and patches, as they ended.
    work: Vec<String>,
}

impl Outcome {
    fn of(events: &[TakopiEvent], end: &Completed) -> Self {
        let work = events.iter().filter_map(|event| match event {
            TakopiEvent::Action(event) if event.action.kind.is_tool() => {
                Some(format!("{:?} {} {:?}", event.phase, event.action.title, event.ok))
            }
            _ => None,
        });
        Self {
            ok: end.ok,
            answer: end.answer.clone(),
            reason: end.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            error: end.error.clone(),
            work: work.filter(|work| !work.starts_with("Updated")).collect(),
        }
    }
}

/// Runs what was planned for `model`; without limits it must end by itself.
async fn outcome(
    lane: &Lane,
    model: &str,
    limits: Option<(Duration, Duration)>,
) -> Result<Outcome, String> {
    let events = lane.run(model, limits).await?;
    check(&events).map_err(|fault| format!("{fault}: {events:#?}"))?;
    match events.last() {
        Some(TakopiEvent::Completed(end)) => Ok(Outcome::of(&events, end)),
        _ => Err(format!("no end: {events:#?}")),
    }
}

fn raw(lines: &[String]) -> Vec<Vec<u8>> {
    lines.iter().map(|line| line.clone().into_bytes()).collect()
}

/// How every recording ends by itself.
async fn baselines(lane: &Lane, recorded: &[Turn]) -> Vec<Outcome> {
    let mut baselines = Vec::new();
    for turn in recorded {
        lane.relay.plan("alone", Plan::new(raw(&turn.opening), raw(&turn.turn)));
        let ended = outcome(lane, "alone", None).await.unwrap_or_else(|fault| panic!("{fault}"));
        baselines.push(ended);
    }
    assert!(baselines.iter().filter(|outcome| outcome.ok).count() > 20, "{baselines:#?}");
    baselines
}

/// A recorded line, mutated, of another thread or of an earlier turn of this one.
fn foreign(dice: &mut Dice, lines: &[String]) -> Vec<u8> {
    let candidates: Vec<&String> = lines.iter().filter(|line| line.contains("$THREAD")).collect();
    let line = dice.pick(&candidates).replace("\"$REQUEST\"", "\"nobody\"");
    let message: Value = serde_json::from_str(&line).unwrap();
    let foreign = message.to_string().replace("\"text\":\"", "\"text\":\"FOREIGN ");
    let foreign = foreign.replace("\"delta\":\"", "\"delta\":\"FOREIGN ");
    if dice.chance(50) {
        let other = foreign.replace("$THREAD", "01a1e21b-0000-7eb0-9d27-459e98f10b74");
        return mutate::json(dice, &other.replace("$TURN", "01a1e21b-1111-7eb0-9d27-459e98f10b74"));
    }
    // Of this thread: its address stays readable, or it would be the thread's own.
    if !foreign.contains("$TURN") {
        return b"{}".to_vec();
    }
    let mut message: Value =
        serde_json::from_str(&foreign.replace("$TURN", "01a1e21b-2222-7eb0-9d27-459e98f10b74"))
            .unwrap();
    if let Some(item) = message["params"].get_mut("item").filter(|item| item.is_object()) {
        let mutated = String::from_utf8(mutate::json(dice, &item.to_string())).unwrap_or_default();
        *item = serde_json::from_str(&mutated).unwrap_or(Value::Null);
    }
    message.to_string().into_bytes()
}

/// What became of the runs of all rounds.
#[derive(Default)]
struct Tally {
    /// How runs with a mutation of their own ended, and how many had a foreign line.
    ends: BTreeMap<String, u64>,
    faults: Vec<String>,
}

/// A run with one mutation.
struct Mutated {
    model: String,
    /// Which recording it is.
    recorded: usize,
    /// Whether its own lines are mutated; else it is healthy and has a foreign line among its own.
    own: bool,
    /// Whether its end reaches it: then it must end by that, without limits.
    ends: bool,
    /// Whether its answer does too: then it must end as it does alone.
    same: bool,
    lines: Vec<Vec<u8>>,
}

impl Mutated {
    fn new(
        dice: &mut Dice,
        lane: &Lane,
        recorded: &[Turn],
        healthy: &[usize],
        model: String,
    ) -> Self {
        let own = dice.chance(50);
        let at = if own { dice.index(recorded.len()) } else { dice.pick(healthy) };
        let Turn { opening, turn, .. } = &recorded[at];
        let (mut first, mut lines) = (raw(opening), raw(turn));
        let (mut ends, mut same) = (!own, !own);
        if own && dice.chance(15) {
            let drift = mutate::lines(dice, opening);
            ends = drift.keeps(opening, |_| true);
            same = ends;
            first = drift.lines;
        } else if own {
            let drift = mutate::lines(dice, turn);
            ends = drift.has(turn, ends_turn) && drift.keeps(turn, names_turn);
            same = drift.keeps(turn, decides_turn);
            lines = drift.lines;
        } else {
            let of = dice.index(recorded.len());
            let line = foreign(dice, &recorded[of].turn);
            // Behind the first line that names the turn, often the response: before that, a line of
            // an unknown turn may be its own.
            let names =
                |line: &String| line.contains("turn/started") || line.contains("\"$REQUEST\"");
            let named = 1 + turn.iter().position(names).unwrap();
            lines.insert(named + dice.index(lines.len() - named), line);
        }
        let mut changed = first.iter().zip(raw(opening)).chain(lines.iter().zip(raw(turn)));
        let changed = changed.find(|(new, old)| *new != old).map(|(new, _)| new.clone());
        lane.relay.plan(&model, Plan::new(first, lines));
        Self { model, recorded: at, own, ends, same, lines: changed.into_iter().collect() }
    }
}

/// One neighbour, and beside it runs that each have one mutation.
async fn round(lane: &Lane, recorded: &[Turn], alone: &[Outcome], seed: u64, tally: &Mutex<Tally>) {
    let mut dice = Dice::new(seed);
    let healthy: Vec<usize> = (0..recorded.len()).filter(|n| alone[*n].ok).collect();
    let at = dice.pick(&healthy);
    let plan = Plan::new(raw(&recorded[at].opening), raw(&recorded[at].turn));
    let plan = plan.gate(1 + dice.index(recorded[at].turn.len() - 1));
    let name = format!("neighbour-{seed}");
    let plan = lane.relay.plan(&name, plan);
    let models = (0..BESIDE).map(|n| format!("mutated-{seed}-{n}"));
    let runs: Vec<Mutated> =
        models.map(|model| Mutated::new(&mut dice, lane, recorded, &healthy, model)).collect();
    let beside = async {
        plan.begun().await;
        let limits = (Duration::from_millis(60), Duration::from_millis(250));
        let ended =
            join_all(runs.iter().map(|it| outcome(lane, &it.model, (!it.ends).then_some(limits))))
                .await;
        plan.release();
        ended
    };
    let (neighbour, ended) = futures::future::join(outcome(lane, &name, None), beside).await;
    let how = replay("a_mutated_line_never_changes_a_neighbour", seed);
    let mut tally = tally.lock().unwrap();
    let fault = |what: &str, fault: String, by: &[&Mutated]| {
        let by = by.iter().map(|it| format!("{}: {}", it.model, text(&it.lines)));
        format!("{what}: {fault}\n{how}\n{}", by.collect::<Vec<_>>().join("\n"))
    };
    for (it, ended) in runs.iter().zip(ended) {
        match ended {
            Err(why) => tally.faults.push(fault(&it.model, why, &[it])),
            Ok(outcome) if it.own => {
                let (alone, known) = (&alone[it.recorded], (outcome.ok, &outcome.answer));
                if it.same && known != (alone.ok, &alone.answer) {
                    let why = format!("{outcome:?} instead of {alone:?}");
                    tally.faults.push(fault("a line beside the answer changed it", why, &[it]));
                }
                let end =
                    if outcome.ok { "ok".to_owned() } else { outcome.reason.unwrap_or_default() };
                *tally.ends.entry(end).or_default() += 1;
            }
            Ok(outcome) => {
                *tally.ends.entry("a foreign line".to_owned()).or_default() += 1;
                if outcome != alone[it.recorded] {
                    let why = format!("{outcome:?} instead of {:?}", alone[it.recorded]);
                    tally.faults.push(fault("a foreign line changed a run", why, &[it]));
                }
            }
        }
    }
    let all: Vec<&Mutated> = runs.iter().collect();
    match neighbour {
        Err(why) => tally.faults.push(fault("the neighbour", why, &all)),
        Ok(outcome) if outcome != alone[at] => {
            let why = format!("{outcome:?} instead of {:?}", alone[at]);
            tally.faults.push(fault("the neighbour ended otherwise", why, &all));
        }
        Ok(_) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutated_line_never_changes_a_neighbour() {
    let recorded = recorded::turns();
    let rounds = (mutations() * THROUGH_THE_ENGINE / 100).div_ceil(BESIDE);
    let begun = Instant::now();
    let lanes: Vec<Lane> = (0..LANES.min(rounds))
        .map(|_| Lane::new(PoolLimits::new(2 + usize::try_from(BESIDE).unwrap(), 100, 3)))
        .collect();
    let alone = baselines(&lanes[0], &recorded).await;
    let next = AtomicU64::new(first_seed());
    let tally = Mutex::new(Tally::default());
    let runs = lanes.iter().map(|lane| async {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first_seed() + rounds || tally.lock().unwrap().faults.len() >= MOST_FAULTS {
                break;
            }
            round(lane, &recorded, &alone, seed, &tally).await;
        }
        lane.runner.shutdown().await;
        lane.home.assert_no_processes().await;
    });
    join_all(runs).await;
    let servers: u64 = lanes.iter().map(|lane| lane.relay.connections()).sum();
    let Tally { ends, faults } = tally.into_inner().unwrap();
    let (count, took) = (rounds * BESIDE, begun.elapsed());
    report!("drift: {count} mutations over app-server in {took:?}, {servers} servers: {ends:?}");
    assert!(faults.is_empty(), "{} faults\n\n{}", faults.len(), faults.join("\n\n"));
}
