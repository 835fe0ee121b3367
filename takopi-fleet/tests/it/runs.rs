//! Runs over a fleet: takeover, drain, keys, steering, and what a waiting run reports.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use takopi_core::demo::{DEMO, Demo, Step};
use takopi_core::model::{EngineId, ResumeToken, Started};
use takopi_core::process::{Launch, StopSequence, StopStep};
use takopi_core::runner::{
    Engine, EngineRun, ResumeCodec, SessionScope, WAIT_ACTION, steer_channel,
};
use takopi_core::{EngineRunner, EventStream, Host, RunRequest, Runner, TakopiEvent};
use takopi_fleet::Board;
use takopi_fleet::board::OnLoss;
use takopi_fleet::submit::{FleetEngine, FleetOptions};
use takopi_fleet::work::{Allowed, Served, Travels, Worker, WorkerOptions};
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{finish, is_started, until};
use tokio_util::sync::CancellationToken;

use crate::contract::{Approval, demo_worker, fleet_runner};
use crate::lab::Lab;
use crate::ledger::{Ledger, turns};

/// A fleet with nothing in it.
pub(crate) struct Fleet {
    pub(crate) board: Arc<dyn Board>,
    pub(crate) host: Host,
    dir: tempfile::TempDir,
    stop: CancellationToken,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let board = Lab::memory().board();
        let dir = tempfile::tempdir().unwrap();
        let host = Host::builder().state_directory(dir.path().join("submitter")).build().unwrap();
        Self { board, host, dir, stop: CancellationToken::new() }
    }

    pub(crate) fn options(&self, machine: &str) -> WorkerOptions {
        let mut options = WorkerOptions::new(machine, self.dir.path().join(machine));
        options.grace = Duration::from_millis(10);
        options
    }

    /// A worker whose turns take until it is stopped, or say the prompt.
    pub(crate) fn worker(
        &self,
        options: WorkerOptions,
        demo: Demo,
    ) -> (CancellationToken, std::thread::JoinHandle<()>) {
        let stop = self.stop.child_token();
        let thread = demo_worker(self.board.clone(), options, demo, stop.clone());
        (stop, thread)
    }

    /// Takes the place of a machine's worker, as its restart would.
    pub(crate) async fn usurp(&self, machine: &str) {
        let mut usurper = crate::lab::worker(&format!("{machine}/usurper"));
        let instance = std::fs::read_to_string(self.dir.path().join(machine).join("instance"));
        usurper.instance = instance.unwrap().parse().unwrap();
        self.board.register(usurper, Duration::from_millis(1)).await.unwrap();
    }

    fn runner_with(&self, options: FleetOptions) -> impl Runner {
        let codec = Demo::new().runner().resume_codec();
        FleetEngine::new(self.board.clone(), DEMO, codec)
            .options(options)
            .runner()
            .on(self.host.clone())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn hanging() -> Demo {
    Demo::scripted([Step::Pause(Duration::from_hours(1))])
}

fn saying(text: &str) -> Demo {
    Demo::scripted([Step::Say(text.to_owned())])
}

fn titles(events: &[TakopiEvent]) -> Vec<&str> {
    let actions = events.iter().filter_map(|event| match event {
        TakopiEvent::Action(action) => Some(action),
        _ => None,
    });
    actions.map(|action| action.action.title.as_str()).collect()
}

pub(crate) async fn until_note(stream: &mut EventStream, text: &str) -> Vec<TakopiEvent> {
    until(stream, text, |event| {
        matches!(event, TakopiEvent::Action(action) if action.action.id == WAIT_ACTION && action.action.title.contains(text))
    })
    .await
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_hands_its_turn_to_another() {
    let fleet = Fleet::new();
    let (stop, first) = fleet.worker(fleet.options("m1"), hanging());
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let mut stream = runner.run(RunRequest::new("hello"));
    let seen = until(&mut stream, "Started", is_started).await;
    stop.cancel();
    first.join().unwrap();
    let (_, _second) = fleet.worker(fleet.options("m2"), saying("done"));
    let seen = finish(stream, seen).await;
    assert_eq!(seen.ok().answer, "done");
    assert_eq!(seen.ok().resume, Some(seen.session()), "under the id it was first reported with");
    let events = titles(&seen.events);
    assert!(
        events.iter().any(|title| title.contains("m1/") && title.contains("was lost")),
        "{events:?}"
    );
    // The session is found by that id.
    let again = runner.run(RunRequest::new("again").resume(seen.session()));
    assert_eq!(finish(again, Vec::new()).await.ok().answer, "done");
}

#[tokio::test]
async fn a_turn_that_may_run_once_is_not_handed_to_another() {
    let fleet = Fleet::new();
    let (stop, first) = fleet.worker(fleet.options("m1"), hanging());
    let mut once = FleetOptions::default();
    once.on_loss = OnLoss::Fail;
    let mut stream = fleet.runner_with(once).run(RunRequest::new("hello"));
    let seen = until(&mut stream, "Started", is_started).await;
    stop.cancel();
    first.join().unwrap();
    let (_, _second) = fleet.worker(fleet.options("m2"), saying("done"));
    finish(stream, seen).await.failed("worker_lost");
}

#[tokio::test]
async fn a_worker_whose_lease_was_lost_stops_its_runs_and_serves_again() {
    let fleet = Fleet::new();
    let mut options = fleet.options("m1");
    options.lease = Duration::from_secs(6);
    let _worker = fleet.worker(options, hanging());
    let mut request = FleetOptions::default();
    request.on_loss = OnLoss::Fail;
    let runner = fleet.runner_with(request);
    let mut stream = runner.run(RunRequest::new("hello"));
    let seen = until(&mut stream, "Started", is_started).await;
    let holder = fleet.board.status().await.unwrap().workers[0].id.clone();
    fleet.usurp("m1").await;
    fleet.board.reap().await.unwrap();
    let end = finish(stream, seen).await;
    assert!(end.failed("worker_lost").error.as_ref().unwrap().contains(&holder));
    // It comes back under a new name.
    loop {
        let workers = fleet.board.status().await.unwrap().workers;
        if workers
            .iter()
            .any(|worker| worker.id != holder && worker.id != "m1/usurper" && worker.held == 0)
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_worker_on_another_machine_does_not_take_the_name_of_one_that_serves() {
    let fleet = Fleet::new();
    let _worker = fleet.worker(fleet.options("m1"), hanging());
    let mut stream = fleet_runner(&fleet.board, &fleet.host).run(RunRequest::new("hello"));
    until(&mut stream, "Started", is_started).await;
    let elsewhere = WorkerOptions::new("m1", fleet.dir.path().join("elsewhere"));
    let refused = Worker::new(fleet.board.clone(), elsewhere).serve(fleet.stop.clone()).await;
    assert!(refused.unwrap_err().to_string().contains("another worker named m1"));
    assert_eq!(fleet.board.status().await.unwrap().running, 1, "the turn goes on");
}

/// Panics when it is first asked to run.
struct Panics {
    runner: EngineRunner<Demo>,
    panicked: AtomicBool,
}

impl Runner for Panics {
    fn engine(&self) -> EngineId {
        self.runner.engine()
    }

    fn run(&self, request: RunRequest) -> EventStream {
        assert!(self.panicked.swap(true, Ordering::Relaxed), "as the test wants it");
        self.runner.run(request)
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.runner.resume_codec()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.runner.shutdown()
    }
}

#[tokio::test]
async fn a_turn_that_panics_gives_its_job_and_its_slot_back() {
    let fleet = Fleet::new();
    let mut options = fleet.options("m1");
    (options.slots, options.lease) = (1, Duration::from_secs(6));
    let runner = saying("done").runner().on(fleet.host.clone());
    let runner = Arc::new(Panics { runner, panicked: AtomicBool::new(false) });
    let served = Served { runner, version: 0, travels: Travels::Freely };
    let worker = Worker::new(fleet.board.clone(), options).engine(served);
    tokio::spawn(worker.serve(fleet.stop.clone()));
    let stream = fleet_runner(&fleet.board, &fleet.host).run(RunRequest::new("hello"));
    assert_eq!(finish(stream, Vec::new()).await.ok().answer, "done");
    assert_eq!(fleet.board.jobs(9).await.unwrap()[0].attempts, 2);
}

/// Its process takes an hour to stop by itself.
struct Stubborn(Arc<Mutex<Option<u32>>>);

impl Engine for Stubborn {
    fn id(&self) -> EngineId {
        DEMO
    }

    fn resume_codec(&self) -> ResumeCodec {
        Demo::new().runner().resume_codec()
    }

    fn session_scope(&self) -> SessionScope {
        SessionScope::Process
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let hour = Duration::from_hours(1);
            let launch = Launch::new("sleep").args(["3600"]);
            let launch = launch.stop_sequence(StopSequence::new([(StopStep::CloseStdin, hour)]));
            let (mut process, _output) = run.start(launch).unwrap();
            *self.0.lock().unwrap() = Some(process.pid());
            let _ = run.emit(Started::new(ResumeToken::new(DEMO, "demo-1"))).await;
            process.exited().await;
        })
    }
}

#[tokio::test]
async fn a_worker_does_not_serve_again_before_the_runs_of_its_lost_lease_are_dead() {
    let fleet = Fleet::new();
    let mut options = fleet.options("m1");
    options.lease = Duration::from_secs(6);
    let host = Host::builder().state_directory(fleet.dir.path().join("host")).build().unwrap();
    options.host = Some(host.clone());
    let pid = Arc::<Mutex<Option<u32>>>::default();
    let runner = Arc::new(EngineRunner::new(Stubborn(pid.clone())).on(host));
    let served = Served { runner, version: 0, travels: Travels::Freely };
    let worker = Worker::new(fleet.board.clone(), options).engine(served);
    tokio::spawn(worker.serve(fleet.stop.clone()));
    let mut stream = fleet_runner(&fleet.board, &fleet.host).run(RunRequest::new("hello"));
    until(&mut stream, "Started", is_started).await;
    let pid = i32::try_from(pid.lock().unwrap().unwrap()).unwrap();
    fleet.usurp("m1").await;
    let again = async {
        while fleet.board.status().await.unwrap().workers.iter().all(|it| it.id == "m1/usurper") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(PATIENCE, "the worker's return", again).await;
    let signal = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None);
    assert!(signal.is_err(), "its process is gone");
}

#[tokio::test]
async fn the_same_key_attaches_to_the_running_and_to_the_finished_job() {
    let fleet = Fleet::new();
    let request = || RunRequest::new("hello").key("order-66".to_owned());
    let first = fleet.runner_with(FleetOptions::default());
    let second = fleet.runner_with(FleetOptions::default());
    let (one, two) = (first.run(request()), second.run(request()));
    let (_, _worker) = fleet.worker(fleet.options("m1"), saying("once"));
    let (one, two) = futures::future::join(finish(one, Vec::new()), finish(two, Vec::new())).await;
    assert_eq!((one.ok().answer.as_str(), one.session()), ("once", two.session()));
    let third = finish(first.run(request()), Vec::new()).await;
    assert_eq!(third.session(), one.session(), "one run, three who saw it");
    assert_eq!(fleet.board.jobs(9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_run_reports_what_it_waits_for() {
    let fleet = Fleet::new();
    let mut options = FleetOptions::default();
    options.needs = vec!["label:gpu".to_owned()];
    let mut stream = fleet.runner_with(options).run(RunRequest::new("hello"));
    let seen = until_note(&mut stream, "no worker offers engine:demo, label:gpu").await;
    let (_, _plain) = fleet.worker(fleet.options("m1"), saying("no"));
    let more = until_note(&mut stream, "no worker offers label:gpu").await;
    let mut able = fleet.options("m2");
    able.offers = vec!["label:gpu".to_owned()];
    let (_, _able) = fleet.worker(able, saying("yes"));
    let seen = finish(stream, [seen, more].concat()).await;
    assert_eq!(seen.ok().answer, "yes");
}

#[tokio::test]
async fn a_run_that_nobody_can_take_ends_when_its_wait_is_over() {
    let fleet = Fleet::new();
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let seen = finish(runner.run(RunRequest::new("hello").wait(Duration::ZERO)), Vec::new()).await;
    assert!(
        seen.failed("no_worker").error.as_ref().unwrap().contains("no worker offers engine:demo")
    );
    assert_eq!(fleet.board.status().await.unwrap().queued, 0, "it does not wait any more");
}

#[tokio::test]
async fn a_session_that_the_fleet_does_not_know_is_not_begun_anew() {
    let fleet = Fleet::new();
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let token = runner.token("demo-abc").unwrap();
    let seen = finish(runner.run(RunRequest::new("hello").resume(token.clone())), Vec::new()).await;
    assert_eq!(seen.failed("session_not_found").resume, Some(token));
}

#[tokio::test]
async fn a_message_into_the_turn_is_taken_or_handed_back() {
    let fleet = Fleet::new();
    let (_, _worker) = fleet.worker(fleet.options("m1"), hanging());
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let (steer, steering) = steer_channel();
    let cancel = CancellationToken::new();
    let mut stream = runner.run(RunRequest::new("hello").steering(steering).cancel(cancel.clone()));
    let mut seen = until(&mut stream, "Started", is_started).await;
    let sent = steer.send("and be quick");
    tokio::pin!(sent);
    loop {
        tokio::select! {
            taken = &mut sent => break taken.unwrap(),
            Some(event) = stream.next() => seen.push(event),
        }
    }
    cancel.cancel();
    let seen = finish(stream, seen).await;
    assert!(seen.failed("interrupted").answer.contains("You also said: and be quick"));
    assert!(steer.send("too late").await.is_err());
}

#[tokio::test]
async fn limits_count_on_the_worker_and_not_while_waiting() {
    let fleet = Fleet::new();
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let mut stream = runner.run(RunRequest::new("hello").wall_timeout(Duration::from_secs(5)));
    // Longer than its limit: nobody runs it.
    let seen = until_note(&mut stream, "no worker").await;
    tokio::time::sleep(Duration::from_millis(5500)).await;
    let (_, _worker) = fleet.worker(fleet.options("m1"), saying("in time"));
    assert_eq!(finish(stream, seen).await.ok().answer, "in time");
}

#[tokio::test]
async fn a_job_that_asks_for_more_than_the_worker_allows_is_refused() {
    let fleet = Fleet::new();
    let mut able = fleet.options("m1");
    able.ceiling.approvals = false;
    able.ceiling.env = Allowed::only(["LANG"]);
    able.ceiling.options = Allowed::only(["model_verbosity"]);
    let (_, _worker) = fleet.worker(able, saying("done"));
    let mut options = FleetOptions::default();
    options.env = vec!["LANG".to_owned(), "LD_PRELOAD".to_owned()];
    let runner = fleet.runner_with(options);
    let request = || RunRequest::new("hello");
    let refused = [
        (request().sandbox("danger-full-access"), "the sandbox \"danger-full-access\""),
        (request().permission_mode("bypassPermissions"), "the permission mode"),
        (request().option("sandbox_mode", "danger-full-access"), "the option \"sandbox_mode\""),
        (request().env("LD_PRELOAD", "/tmp/x"), "the variable \"LD_PRELOAD\""),
        (request().approvals(Arc::new(Approval::default())), "approvals by the submitter"),
    ];
    for (request, what) in refused {
        let seen = finish(runner.run(request), Vec::new()).await;
        let error = seen.failed("invalid_request").error.clone().unwrap();
        assert!(error.contains(&format!("the worker does not allow {what}")), "{error}");
    }
    let allowed = request().sandbox("read-only").option("model_verbosity", "low").env("LANG", "C");
    finish(runner.run(allowed), Vec::new()).await.ok();
}

#[tokio::test]
async fn a_variable_leaves_the_submitter_only_if_it_is_named() {
    let fleet = Fleet::new();
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let seen =
        finish(runner.run(RunRequest::new("hello").env("TOKEN", "secret")), Vec::new()).await;
    let error = seen.failed("invalid_request").error.clone().unwrap();
    assert!(error.contains("the variable TOKEN does not travel") && !error.contains("secret"));
    assert_eq!(fleet.board.jobs(9).await.unwrap(), []);
}

#[tokio::test]
async fn a_job_cannot_name_a_place_or_an_engine_that_the_worker_does_not_serve() {
    let fleet = Fleet::new();
    let mut without = fleet.options("m1");
    without.ceiling.scratch = false;
    let (_, _worker) = fleet.worker(without, saying("done"));
    // As a submitter with a takopi of its own could: it names less than it needs.
    let job = |id: &str, engine: &str, place: Option<&str>| {
        let mut job = crate::lab::job(id, crate::lab::session(id.len() as u64));
        (job.engine, job.place) = (engine.to_owned(), place.map(str::to_owned));
        job
    };
    let jobs =
        [job("1", "demo", Some("elsewhere")), job("22", "other", None), job("333", "demo", None)];
    fleet.board.enqueue(jobs.to_vec()).await.unwrap();
    fleet.board.ring(takopi_fleet::board::Bell::Work);
    let done = async {
        loop {
            let jobs = fleet.board.jobs(9).await.unwrap();
            if jobs.iter().all(|job| job.state == "done") {
                return jobs;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let jobs = within(PATIENCE, "the results", done).await;
    assert!(jobs.iter().all(|job| job.reason.as_deref() == Some("invalid_request")), "{jobs:?}");
}

#[tokio::test]
async fn a_machine_that_cannot_run_jobs_does_not_take_them_all() {
    let fleet = Fleet::new();
    let mut options = fleet.options("broken");
    options.slots = 1;
    // As on a disk that is full: no directory can be made for a session.
    std::fs::create_dir_all(&options.state).unwrap();
    std::fs::write(options.state.join("scratch"), "").unwrap();
    let (_, _broken) = fleet.worker(options, saying("done"));
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let first = finish(runner.run(RunRequest::new("hello")), Vec::new()).await;
    let error = first.failed("spawn_failed").error.clone().unwrap();
    assert!(error.contains("cannot create"), "{error}");

    // Each run takes far longer than an error.
    let pause = Step::Pause(Duration::from_millis(100));
    let slow = Demo::scripted([pause, Step::Say("done".to_owned())]);
    let mut options = fleet.options("works");
    options.slots = 1;
    let (_, _works) = fleet.worker(options, slow);
    let runs = (0..20).map(|_| finish(runner.run(RunRequest::new("hello")), Vec::new()));
    let seen = futures::future::join_all(runs).await;
    let ran = seen.iter().filter(|seen| seen.completed().ok).count();
    assert!(ran >= 10, "only {ran} of 20 were run");
}

#[tokio::test]
async fn a_session_is_not_opened_by_an_engine_that_was_replaced_by_an_older_one() {
    let fleet = Fleet::new();
    let home = fleet.dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let set = |version: &str| std::fs::write(home.join("version"), version).unwrap();
    let ledger = Ledger { home: home.clone(), shared: home.clone(), work: Duration::ZERO };
    let mut options = fleet.options("m1");
    options.lease = Duration::from_secs(2);
    let served = Served {
        runner: Arc::new(EngineRunner::new(ledger.clone()).on(fleet.host.clone())),
        version: 0,
        travels: Travels::Files(Arc::new(ledger.clone())),
    };
    set("0.166.0");
    let worker = Worker::new(fleet.board.clone(), options).engine(served);
    tokio::spawn(worker.serve(fleet.stop.clone()));
    let codec = ledger.resume_codec();
    let runner = FleetEngine::new(fleet.board.clone(), ledger.id(), codec);
    let runner = runner.runner().on(fleet.host.clone());
    let first = finish(runner.run(RunRequest::new("s1:0")), Vec::new()).await;
    first.ok();
    set("0.125.0");
    let mut stream = runner.run(RunRequest::new("s1:1").resume(first.session()));
    let seen = until_note(&mut stream, "with an engine that is new enough").await;
    assert_eq!(turns(&Ledger::file(&home, "s1")), [0], "the older one did not touch it");
    set("0.170.0");
    finish(stream, seen).await.ok();
    assert_eq!(turns(&Ledger::file(&home, "s1")), [0, 1]);
}
