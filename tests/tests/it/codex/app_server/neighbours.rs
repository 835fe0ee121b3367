//! Runs on one shared app-server, some of which are cancelled: the others never notice.
use std::time::Duration;

use futures::future::join_all;
use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::{EngineRunner, EventStream, Host, Runner, TakopiEvent};
use takopi_tests::codex::fake::{Server, Step, turn};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::lab::{Lab, session};
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, Gate, ModelServer};
use takopi_tests::runs::{Seen, finish, is_started, request, run, until};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_hours(1);

/// Many sessions on one server.
pub(super) fn shared(lab: &Lab) -> EngineRunner<CodexAppServer> {
    shared_within(lab, PoolLimits::default().response)
}

/// Many sessions on one server, which is broken if a cancel takes it longer than this.
pub(super) fn shared_within(lab: &Lab, response: Duration) -> EngineRunner<CodexAppServer> {
    let limits = PoolLimits::new(4, 10, 1).response(response);
    EngineRunner::new(CodexAppServer::new(lab.codex()).shared(limits).keep_warm(LONG))
        .on(lab.host.clone())
}

/// A server on which turns of a "neighbour" wait for a gate.
pub(super) fn server() -> Server {
    let neighbour = [Step::gate("neighbour")].into_iter().chain(turn::answer("undisturbed"));
    Server::new().turns_when("neighbour", neighbour).turns_when("other", turn::answer("here"))
}

pub(super) struct Neighbour {
    stream: EventStream,
    seen: Vec<TakopiEvent>,
}

impl Neighbour {
    pub(super) async fn start(runner: &dyn Runner, lab: &Lab) -> Self {
        let mut stream = runner.run(lab.request("neighbour"));
        let seen = until(&mut stream, "Started", is_started).await;
        Self { stream, seen }
    }

    /// Lets the neighbour go on to its end.
    pub(super) async fn ends_undisturbed(self, lab: &Lab) -> Seen {
        lab.control.open("neighbour");
        let seen = finish(self.stream, self.seen).await;
        assert_eq!(seen.ok().answer, "undisturbed");
        seen
    }
}

/// The cancelled session goes on, on this many servers in all.
async fn goes_on(runner: &dyn Runner, lab: &Lab, cancelled: &Seen, servers: usize) {
    let request = lab.request("other prompt").resume(cancelled.session());
    assert_eq!(run(runner, request).await.ok().answer, "here");
    assert_eq!(lab.control.starts().len(), servers);
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
}

#[tokio::test]
async fn a_cancel_before_the_reply_waits_for_it_and_interrupts_that_turn() {
    let late = [Step::reached("requested"), Step::gate("reply")]
        .into_iter()
        .chain(turn::opened([Step::SleepForever]));
    let lab = Lab::new(server().when("turn/start", "victim", late).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("requested").await;
    cancel.cancel();
    // A whole run in between: the cancel has reached the victim by then.
    run(&runner, lab.request("other")).await.ok();
    assert_eq!(lab.control.calls("turn/interrupt").len(), 0, "there is no turn to interrupt yet");
    lab.control.open("reply");
    let victim = finish(victim, Vec::new()).await;
    victim.failed("interrupted");
    let interrupt = lab.control.call("turn/interrupt").await.message;
    assert_eq!(interrupt["params"]["threadId"], victim.session().value);
    neighbour.ends_undisturbed(&lab).await;
    goes_on(&runner, &lab, &victim, 1).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancel_before_a_refusal_of_the_turn_leaves_the_server_usable() {
    let refused =
        [Step::reached("requested"), Step::gate("reply"), Step::fail(-32600, "not this turn")];
    let lab = Lab::new(server().when("turn/start", "victim", refused).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("requested").await;
    cancel.cancel();
    run(&runner, lab.request("other")).await.ok();
    lab.control.open("reply");
    let victim = finish(victim, Vec::new()).await;
    victim.failed("interrupted");
    neighbour.ends_undisturbed(&lab).await;
    goes_on(&runner, &lab, &victim, 1).await;
    runner.shutdown().await;
}

#[tokio::test]
async fn a_run_cancelled_while_its_session_is_opened_ends_at_once_and_costs_no_server() {
    let late =
        [Step::reached("requested"), Step::gate("reply"), Step::Reply, Step::reached("replied")];
    let lab = Lab::new(server().once("thread/resume", late).script());
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = lab.request("victim").resume(session()).cancel(cancel.clone());
    let victim = runner.run(victim);
    lab.control.reached("requested").await;
    cancel.cancel();
    // The reply has not come yet.
    finish(victim, Vec::new()).await.failed("interrupted");
    lab.control.open("reply");
    lab.control.reached("replied").await;
    // A whole run behind the reply: by then it was read.
    run(&runner, lab.request("other")).await.ok();
    let again = lab.request("other prompt").resume(session());
    assert_eq!(run(&runner, again).await.ok().answer, "here");
    assert_eq!(lab.control.calls("thread/resume").len(), 1, "the session was loaded");
    assert_eq!(lab.control.starts().len(), 1);
    neighbour.ends_undisturbed(&lab).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// What the server does first when it is asked to interrupt a turn that is about to end.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Refusal,
    End,
}

async fn interrupt_is_refused(first: First) {
    let ending = [Step::reached("working"), Step::gate("end")];
    let refusal = [Step::gate("refuse"), Step::fail(-32600, "no active turn to interrupt")];
    let script = server()
        .turns_when("victim", ending.into_iter().chain(turn::answer("done")))
        .always("turn/interrupt", refusal)
        .script();
    let lab = Lab::new(script);
    let runner = shared(&lab);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("working").await;
    cancel.cancel();
    lab.control.call("turn/interrupt").await;
    if first == First::Refusal {
        lab.control.open("refuse");
        // The turn has not ended: it is asked again.
        lab.control.nth_call("turn/interrupt", 1).await;
        lab.control.open("end");
    } else {
        lab.control.open("end");
        lab.control.open("refuse");
    }
    let victim = finish(victim, Vec::new()).await;
    assert_eq!(victim.failed("interrupted").answer, "done");
    neighbour.ends_undisturbed(&lab).await;
    goes_on(&runner, &lab, &victim, 1).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn an_interrupt_that_is_refused_because_the_turn_ends_leaves_the_server_usable() {
    interrupt_is_refused(First::Refusal).await;
    interrupt_is_refused(First::End).await;
}

/// A server that never answers this method: it is given up when its time is over and not before, it is not used
/// again, and the runs on it go on.
async fn never_answers(method: &str) {
    let response = Duration::from_secs(7);
    let working = turn::opened([Step::reached("working"), Step::SleepForever]);
    let script = match method {
        "turn/start" => {
            let silent = [Step::reached("working"), Step::SleepForever];
            server().when("turn/start", "victim", silent)
        }
        method => {
            let silent = [Step::reached("asked")];
            server().when("turn/start", "victim", working).always(method, silent)
        }
    };
    let lab = Lab::new(script.script()).on_this_runtime();
    let runner = shared_within(&lab, response);
    let neighbour = Neighbour::start(&runner, &lab).await;
    let cancel = CancellationToken::new();
    let victim = runner.run(lab.request("victim").cancel(cancel.clone()));
    lab.control.reached("working").await;
    let cancelled = Instant::now();
    cancel.cancel();
    if method != "turn/start" {
        lab.control.reached("asked").await;
    }
    // From here on the server says nothing, and time passes only while nothing else happens.
    tokio::time::pause();
    let asked = Instant::now();
    let victim = finish(victim, Vec::new()).await;
    let (whole, silent) = (cancelled.elapsed(), asked.elapsed());
    tokio::time::resume();
    victim.failed("interrupted");
    assert!(response <= whole && silent < 2 * response, "{method}: {whole:?}, {silent:?}");
    assert_eq!(lab.control.starts().len(), 1, "{method}");
    neighbour.ends_undisturbed(&lab).await;
    goes_on(&runner, &lab, &victim, 2).await;
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_server_that_answers_no_cancel_is_replaced_when_its_neighbours_are_done() {
    for method in ["turn/start", "turn/interrupt", "thread/backgroundTerminals/clean"] {
        never_answers(method).await;
    }
}

#[tokio::test]
async fn a_turn_limit_on_a_shared_server_does_not_stop_the_server_of_others() {
    let script = server().turns_when("slow", [Step::SleepForever]).script();
    let lab = Lab::new(script);
    let engine = CodexAppServer::new(lab.codex())
        .shared(PoolLimits::new(4, 10, 1))
        .keep_warm(LONG)
        .turn_limit(Duration::from_millis(1));
    let slow = EngineRunner::new(engine).on(lab.host.clone());
    let seen = run(&slow, lab.request("slow")).await;
    seen.failed("timeout_wall");
    assert_eq!(lab.control.calls("turn/interrupt").len(), 1);
    let again = run(&slow, lab.request("slow").resume(seen.session())).await;
    again.failed("timeout_wall");
    assert_eq!(lab.control.starts().len(), 1, "it answered the interrupt");
    slow.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn eight_cancels_at_started_on_the_real_codex_leave_the_neighbour_and_the_server_alone() {
    const VICTIMS: usize = 8;
    let Some(codex) = real::codex_or_skip() else { return };
    let model = ModelServer::start();
    let (gate, never) = (Gate::new(), Gate::new());
    model.when("neighbour", Answer::new().wait_for(&gate).message("undisturbed"));
    for number in 0..VICTIMS {
        let victim = Answer::new().wait_for(&never).message("not this");
        model.when(&format!("victim {number}."), victim);
        model.when(&format!("again {number}."), format!("{number}").as_str());
    }
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    let engine = CodexAppServer::new(Codex::new().binary(&codex.path))
        .shared(PoolLimits::new(12, 60, 1))
        .keep_warm(LONG);
    let runner = EngineRunner::new(engine).on(host);
    let mut neighbour = runner.run(request(&home, "neighbour"));
    let before = until(&mut neighbour, "Started", is_started).await;
    gate.reached().await;
    let server = home.servers();

    let victims = (0..VICTIMS).map(async |number| {
        let cancel = CancellationToken::new();
        let prompt = format!("victim {number}.");
        let mut stream = runner.run(request(&home, &prompt).cancel(cancel.clone()));
        let seen = until(&mut stream, "Started", is_started).await;
        cancel.cancel();
        let seen = finish(stream, seen).await;
        seen.failed("interrupted");
        seen.session()
    });
    let sessions = join_all(victims).await;
    gate.open();
    assert_eq!(finish(neighbour, before).await.ok().answer, "undisturbed");
    let again = sessions.into_iter().enumerate().map(|(number, session)| {
        run(&runner, request(&home, &format!("again {number}.")).resume(session))
    });
    for (number, seen) in join_all(again).await.into_iter().enumerate() {
        assert_eq!(seen.ok().answer, number.to_string());
    }
    assert_eq!(home.servers(), server, "one server did it all");
    never.open();
    runner.shutdown().await;
    home.assert_no_processes().await;
}
