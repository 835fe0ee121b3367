//! Random faults of the fake codex: see [`chaos`](crate::chaos). Codex has two transports, and servers that many sessions
//! share, so its rounds are its own.

use std::time::Duration;

use crate::chaos::{ANSWER, Wish, grandchild};
use crate::codex::fake::{Script, Server, Signal, Step, app_server, exec, turn};
use crate::dice::Dice;

/// One run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Which of the round's sessions it goes on with; none begins a new one.
    pub session: Option<usize>,
    /// What codex does.
    pub script: Script,
    /// The prompt, by which an app-server chooses what its turn does.
    pub prompt: String,
    /// What the host does.
    pub wish: Wish,
    /// How long it waits for the session.
    pub wait: Option<Duration>,
    /// How long codex may be silent.
    pub idle: Option<Duration>,
    /// How long the run may take.
    pub wall: Option<Duration>,
    /// The answer, if nothing stands in its way.
    pub answer: Option<&'static str>,
    /// Whether it must get its answer, because nothing stands in its way.
    pub innocent: bool,
}

/// How a script ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Healthy,
    Failed,
    Exit,
    Dies,
    Hangs,
    Busy,
}

/// A run over exec.
pub fn exec_case(dice: &mut Dice, sessions: usize) -> Case {
    let ends =
        [End::Healthy, End::Healthy, End::Healthy, End::Failed, End::Exit, End::Dies, End::Hangs];
    let session = session(dice, sessions);
    let end = if session.is_some() && dice.chance(5) { End::Busy } else { dice.pick(&ends) };
    let stubborn = end == End::Hangs && dice.chance(1);
    let mut steps = Vec::new();
    if stubborn {
        steps.push(Step::ignore([Signal::Int]));
    }
    steps.push(dice.pick(&[
        Step::ReadStdin,
        Step::ReadStdin,
        Step::ReadStdinBytes(3),
        Step::CloseStdin,
    ]));
    if end == End::Busy {
        steps.push(Step::stderr("thread $THREAD already has an active writer (code -32600)"));
        steps.push(Step::Exit(1));
    } else {
        exec_turn(dice, end, &mut steps);
    }
    let case = Case {
        session,
        script: Script::exec(steps),
        prompt: "p".repeat(usize::try_from(dice.below(200_000)).unwrap_or_default()),
        wish: Wish::Read,
        wait: (end == End::Busy).then(|| dice.millis(100)),
        idle: None,
        wall: None,
        answer: (end == End::Healthy).then_some(ANSWER),
        innocent: false,
    };
    finish(dice, case, end)
}

fn exec_turn(dice: &mut Dice, end: End, steps: &mut Vec<Step>) {
    if end == End::Healthy || dice.chance(80) {
        steps.push(exec::thread_started());
    }
    if dice.chance(90) {
        steps.push(exec::turn_started());
    }
    for n in 0..dice.below(6) {
        exec_happening(dice, n, steps);
    }
    let killed = matches!(end, End::Hangs | End::Dies);
    if killed && dice.chance(30) {
        steps.push(grandchild(dice));
    }
    match end {
        End::Healthy => {
            steps.extend([exec::message(ANSWER), exec::turn_completed()]);
            steps.push(Step::Pause { millis: dice.below(10) });
        }
        End::Failed => steps.push(exec::turn_failed("boom")),
        End::Exit | End::Busy => {
            let code = dice.pick(&[0, 1, 2, 101]);
            steps.push(Step::Exit(code));
        }
        End::Dies => {
            let signal = dice.pick(&[Signal::Kill, Signal::Segv, Signal::Term]);
            steps.push(Step::Die(signal));
        }
        End::Hangs => steps.push(Step::SleepForever),
    }
}

fn exec_happening(dice: &mut Dice, n: u64, steps: &mut Vec<Step>) {
    let id = format!("cmd_{n}");
    let size = usize::try_from(dice.below(200_000)).unwrap_or_default();
    match dice.below(14) {
        0 => steps.push(exec::message("not the last")),
        1 => steps.push(exec::message_in_phase("thinking", "commentary")),
        2 => steps.push(exec::command_started(&id, "ls")),
        3 => steps.extend([
            exec::command_started(&id, "ls"),
            exec::command_completed(&id, "ls", "out", 0),
        ]),
        4 => steps.push(exec::reconnecting(1, 5, None)),
        5 => steps.push(exec::error("a stream error")),
        6 => steps.push(Step::line("not JSON")),
        7 => steps.push(Step::raw(*b"\xff\xfe{\n\n")),
        8 => steps.push(Step::huge_junk(size)),
        9 => steps.push(exec::flood(size / 1000)),
        10 => steps.push(Step::FloodStderr(size)),
        11 => steps.push(Step::stderr("a warning")),
        12 => steps.push(Step::line(r#"{"type":"from.the.future"}"#)),
        _ => steps.push(Step::Pause { millis: dice.below(5) }),
    }
}

/// The prompts of the servers and what their turns come to.
const TURNS: [(&str, End); 14] = [
    ("plain", End::Healthy),
    ("worked", End::Healthy),
    ("early", End::Healthy),
    ("twice", End::Healthy),
    ("asked", End::Healthy),
    ("nested", End::Healthy),
    ("noisy", End::Healthy),
    ("failed", End::Failed),
    ("refused", End::Failed),
    ("aborted", End::Failed),
    ("dies", End::Dies),
    ("exits", End::Exit),
    ("silent", End::Hangs),
    ("mute", End::Hangs),
];

/// An app-server with faults of its own, whose turns go by their prompts.
pub fn server(dice: &mut Dice) -> Script {
    let mut server = turns(vec![grandchild(dice), Step::SleepForever])
        .turns_when("dies", [grandchild(dice), Step::Die(Signal::Kill)])
        .turns_when("exits", [Step::Exit(1)]);
    if dice.chance(30) {
        let fault = dice.pick(&[
            vec![Step::Exit(1)],
            vec![Step::Reply, Step::Die(Signal::Kill)],
            vec![Step::SleepForever],
        ]);
        let at = dice.pick(&["initialize", "thread/start", "thread/resume"]);
        server = server.once(at, fault);
    }
    if dice.chance(30) {
        let fault = dice.pick(&[app_server::busy(), app_server::overloaded()]);
        server = server.once("thread/resume", fault);
    }
    if dice.chance(3) {
        server = server.at_eof([Step::SleepForever]);
    }
    server.script()
}

/// An app-server for many sessions: it has faults, but each concerns one session only (and no process
/// of its own, since the fake does not mark them as its thread asks). Turns whose
/// prompt is [`held`] wait for the gate of that name and then answer.
pub fn shared_server(dice: &mut Dice, batches: usize) -> Script {
    let mut server = turns(vec![Step::SleepForever]);
    for batch in 0..batches {
        let gate = held(batch);
        let steps = [Step::gate(&gate)].into_iter().chain(turn::answer(ANSWER));
        server = server.turns_when(&gate, steps);
    }
    if dice.chance(50) {
        server =
            server.always("turn/interrupt", [Step::fail(-32600, "no active turn to interrupt")]);
    }
    if dice.chance(50) {
        server = server.once("thread/start", app_server::overloaded());
    }
    server.script()
}

/// The prompt and the gate of the neighbours of a batch.
pub fn held(batch: usize) -> String {
    format!("held {batch}.")
}

/// A healthy run beside others on a shared server: whatever becomes of them, it gets its answer.
pub fn innocent_case(dice: &mut Dice, server: &Script) -> Case {
    let prompts: Vec<&str> =
        TURNS.iter().filter(|(_, end)| *end == End::Healthy).map(|(prompt, _)| *prompt).collect();
    Case {
        session: None,
        script: server.clone(),
        prompt: dice.pick(&prompts).to_owned(),
        wish: Wish::Read,
        wait: None,
        idle: None,
        wall: None,
        answer: Some(ANSWER),
        innocent: true,
    }
}

/// A run with a fault of its own on a shared server: it is cancelled, dropped, stalls, fails, or
/// finds its session busy. Nothing in it ends the server.
pub fn guilty_case(dice: &mut Dice, sessions: usize, server: &Script) -> Case {
    loop {
        let case = app_server_case(dice, sessions, std::slice::from_ref(server));
        if !["dies", "exits"].contains(&case.prompt.as_str()) {
            return case;
        }
    }
}

/// The turns that concern their session only.
fn turns(silence: Vec<Step>) -> Server {
    let early = [turn::started()].into_iter().chain(turn::answer(ANSWER)).chain([Step::Reply]);
    let noise = [Step::line("not JSON"), Step::raw(*b"\xff\n\n"), app_server::flood(50)];
    let work = (0..20).flat_map(|n| {
        let id = format!("c{n}");
        [
            turn::command_started(&id, "ls"),
            turn::output_delta(&id, "out"),
            turn::command_completed(&id, "ls", "out", 0),
        ]
    });
    let child =
        turn::elsewhere("01a1e21b-0000-7eb0-9d27-459e98f10b74", "child", turn::answer("no"));
    let answer = || turn::answer(ANSWER);
    Server::new()
        .turns_when("plain", answer())
        .turns_when("worked", work.chain(answer()))
        .when("turn/start", "early", early)
        .when("turn/start", "twice", turn::opened([Step::Reply]).into_iter().chain(answer()))
        .turns_when("asked", [turn::ask_command("q", "c", "ls")].into_iter().chain(answer()))
        .turns_when("nested", child.into_iter().chain(answer()))
        .turns_when("noisy", noise.into_iter().chain(answer()))
        .turns_when("failed", turn::failed("boom"))
        .when("turn/start", "refused", [Step::fail(-32600, "no")])
        .turns_when("aborted", turn::aborted_message("m").into_iter().chain([Step::SleepForever]))
        .turns_when("silent", silence)
        .when("turn/start", "mute", [Step::SleepForever])
}

/// A run over app-server, on one of these servers.
pub fn app_server_case(dice: &mut Dice, sessions: usize, servers: &[Script]) -> Case {
    let (prompt, end) = dice.pick(&TURNS);
    let case = Case {
        session: session(dice, sessions),
        script: dice.pick(servers),
        prompt: prompt.to_owned(),
        wish: Wish::Read,
        wait: None,
        idle: None,
        wall: None,
        // A server may have other faults too: if it answers, the answer is right.
        answer: (end == End::Healthy).then_some(ANSWER),
        innocent: false,
    };
    // Any server may hang at its start.
    let mut case = finish(dice, case, end);
    case.wall.get_or_insert(Duration::from_secs(2));
    case
}

/// The host's wishes. A run that would never end has a limit.
fn finish(dice: &mut Dice, mut case: Case, end: End) -> Case {
    case.wish = match dice.below(10) {
        0..=5 => Wish::Read,
        6..=7 => Wish::Drop(dice.below(5)),
        _ => Wish::Cancel(dice.below(5)),
    };
    if end == End::Hangs || dice.chance(5) {
        let limit = Duration::from_millis(20) + dice.millis(150);
        if dice.chance(50) {
            case.wall = Some(limit);
        } else {
            case.idle = Some(limit);
        }
        // A command that is open is not idle.
        case.wall.get_or_insert(Duration::from_millis(400));
    }
    if case.wait.is_none() && dice.chance(10) {
        case.wait = Some(dice.millis(50));
    }
    case
}

fn session(dice: &mut Dice, sessions: usize) -> Option<usize> {
    let session = usize::try_from(dice.below(sessions as u64)).unwrap_or_default();
    dice.chance(75).then_some(session)
}
