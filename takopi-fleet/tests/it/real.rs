//! Sessions of the real codex over two workers, each with a home of its own, as two machines have.
//!
//! `TAKOPI_TEST_CODEX_VERSIONS=0.125.0,0.144.6,0.166.0` runs them over several releases.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use takopi_claude::Claude;
use takopi_codex::Codex;
use takopi_codex::app_server::{Client, ServerLaunch, ThreadOptions, TurnOptions};
use takopi_core::{EngineRunner, Host, ResumeToken, RunRequest, Runner};
use takopi_fleet::Board;
use takopi_fleet::board::Import;
use takopi_fleet::files::{pack, version_number};
use takopi_fleet::submit::{FleetEngine, FleetOptions};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::messages::MessagesServer;
use takopi_tests::model::{Answer, Gate, ModelServer, PATIENCE, Script, within};
use takopi_tests::runs::{Seen, run};
use takopi_tests::skip::test_name;

use crate::lab::Lab;
use crate::process::{Engine, Plan, WorkerProcess};

/// A lease that no worker loses because the machine is busy.
const LEASE: Duration = Duration::from_mins(5);

/// Runs a check on every release that is asked for.
async fn each(check: impl AsyncFn(&real::Codex)) {
    for version in real::versions() {
        if let Some(codex) = real::codex_version_or_skip(version) {
            let _ = writeln!(std::io::stdout(), "{} on codex {}", test_name(), codex.version);
            check(&codex).await;
        }
    }
}

/// A database, a model, and what submits.
struct Fleet {
    lab: Lab,
    model: ModelServer,
    host: Host,
    _dir: tempfile::TempDir,
}

/// A machine of the fleet.
struct Machine {
    name: &'static str,
    home: TestHome,
    plan: Plan,
}

impl Fleet {
    async fn new() -> Option<Self> {
        let lab = Lab::pg().await?;
        let dir = tempfile::tempdir().unwrap();
        let host = Host::builder().state_directory(dir.path()).build().unwrap();
        Some(Self { lab, model: ModelServer::start(), host, _dir: dir })
    }

    fn machine(&self, name: &'static str, codex: &real::Codex) -> Machine {
        let Lab::Pg { url, .. } = &self.lab else { panic!("on PostgreSQL") };
        let home = TestHome::new(&self.model);
        let plan = Plan {
            url: url.clone(),
            machine: name.to_owned(),
            state: home.state(),
            slots: 4,
            lease: LEASE,
            engine: Engine::Codex(codex.path.clone()),
        };
        Machine { name, home, plan }
    }

    /// Waits until the board takes a worker's lease for over, as another worker would with its beats.
    async fn until_lost(&self, machine: &Machine) {
        let name = machine.name;
        let count = format!("select count(*) from takopi.worker where machine = '{name}'");
        let gone = async {
            while self.lab.sql(&count).await != "0" {
                self.board().reap().await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(PATIENCE, "the end of a lease", gone).await;
    }

    /// How often each job was tried.
    async fn attempts(&self) -> Vec<u32> {
        let jobs = self.board().jobs(9).await.unwrap();
        jobs.iter().map(|job| job.attempts).collect()
    }

    fn board(&self) -> Arc<dyn Board> {
        self.lab.board()
    }

    /// A runner whose runs happen on this machine, or on any.
    fn on(&self, machine: Option<&Machine>) -> EngineRunner<FleetEngine> {
        let mut options = FleetOptions::default();
        options.needs =
            machine.map(|machine| format!("label:{}", machine.name)).into_iter().collect();
        let codec = Codex::new().exec().resume_codec();
        let engine = FleetEngine::new(self.board(), takopi_codex::CODEX, codec);
        engine.options(options).runner().on(self.host.clone())
    }

    /// The prompts in the history of the model's last request about a word.
    fn history(&self, word: &str) -> Vec<String> {
        self.model.requests_about(word).last().unwrap().user_texts()
    }
}

impl Machine {
    fn start(&self) -> WorkerProcess {
        WorkerProcess::start(&self.plan, self.home.env())
    }
}

async fn ask(runner: &dyn Runner, word: &str, session: Option<&ResumeToken>) -> Seen {
    let request = RunRequest::new(word);
    let request = match session {
        Some(session) => request.resume(session.clone()),
        None => request,
    };
    let seen = run(runner, request).await;
    assert_eq!(seen.ok().answer, word.to_uppercase());
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_from_machine_to_machine_with_its_whole_history() {
    each(async |codex| {
        let Some(fleet) = Fleet::new().await else { return };
        let words = ["one", "two", "three", "four"];
        for word in words {
            fleet.model.when(word, Answer::text(word.to_uppercase()));
        }
        // Both serve all the time and keep the session loaded: an old copy must not be continued.
        let (a, b) = (fleet.machine("a", codex), fleet.machine("b", codex));
        let (on_a, on_b) = (fleet.on(Some(&a)), fleet.on(Some(&b)));
        let workers = [a.start(), b.start()];
        let session = ask(&on_a, "one", None).await.session();
        ask(&on_b, "two", Some(&session)).await;
        ask(&on_a, "three", Some(&session)).await;
        ask(&on_b, "four", Some(&session)).await;
        assert_eq!(fleet.history("four"), words);
        workers.into_iter().for_each(WorkerProcess::stop);
        a.home.assert_no_processes().await;
        b.home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_worker_goes_on_where_a_killed_one_was_in_a_turn() {
    each(async |codex| {
        let Some(fleet) = Fleet::new().await else { return };
        let gate = Gate::new();
        fleet.model.when("one", Answer::text("ONE"));
        let waits = Answer::new().started().wait_for(&gate).message("never");
        fleet.model.when("two", [waits, Answer::text("TWO")]);
        fleet.model.when("three", Answer::text("THREE"));
        let (a, b) = (fleet.machine("a", codex), fleet.machine("b", codex));
        let killed = a.start();
        let session = ask(&fleet.on(Some(&a)), "one", None).await.session();
        let second = fleet.on(None).run(RunRequest::new("two").resume(session.clone()));
        gate.reached().await;
        killed.kill();
        a.home.assert_no_processes().await;
        // As if the time of its lease had passed.
        fleet.lab.sql("update takopi.worker set lease_until = clock_timestamp()").await;
        fleet.until_lost(&a).await;
        let other = b.start();
        let seen = takopi_tests::runs::finish(second, Vec::new()).await;
        assert_eq!(seen.ok().answer, "TWO");
        assert_eq!(fleet.history("two"), ["one", "two"], "the lost turn is not in the history");
        // And the machine that was lost goes on from there.
        let again = a.start();
        ask(&fleet.on(Some(&a)), "three", Some(&session)).await;
        assert_eq!(fleet.history("three"), ["one", "two", "three"]);
        again.stop();
        other.stop();
        a.home.assert_no_processes().await;
        b.home.assert_no_processes().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_suspended_in_a_turn_writes_nothing_into_the_session() {
    each(async |codex| {
        // Its lease must be over before the test goes on, and on a busy machine it may lose a short one too early.
        for lease in [Duration::from_secs(6), Duration::from_mins(1)] {
            let Some(fleet) = Fleet::new().await else { return };
            if suspended_in_a_turn(&fleet, codex, lease).await == [1, 2, 1] {
                return;
            }
        }
        panic!("more attempts than one for each turn and one for the lost one");
    })
    .await;
}

/// The attempts of the three turns, or of those before the worker was suspended, if they were too many.
async fn suspended_in_a_turn(fleet: &Fleet, codex: &real::Codex, lease: Duration) -> Vec<u32> {
    let gate = Gate::new();
    fleet.model.when("one", Script::repeat(Answer::text("ONE")));
    let waits = Answer::new().started().wait_for(&gate).message("LATE");
    fleet.model.when("two", [waits, Answer::text("TWO")]);
    fleet.model.when("three", Script::repeat(Answer::text("THREE")));
    let (mut a, b) = (fleet.machine("a", codex), fleet.machine("b", codex));
    a.plan.lease = lease;
    let suspended = a.start();
    let session = ask(&fleet.on(Some(&a)), "one", None).await.session();
    let second = fleet.on(None).run(RunRequest::new("two").resume(session.clone()));
    gate.reached().await;
    suspended.pause();
    let before = fleet.attempts().await;
    if before != [1, 1] {
        return before;
    }
    fleet.until_lost(&a).await;
    let other = b.start();
    let seen = takopi_tests::runs::finish(second, Vec::new()).await;
    assert_eq!(seen.ok().answer, "TWO");
    // Its codex was not suspended, and ends its turn; the worker wakes up when that is over.
    gate.open();
    suspended.go_on();
    ask(&fleet.on(Some(&a)), "three", Some(&session)).await;
    assert_eq!(fleet.history("three"), ["one", "two", "three"]);
    let attempts = fleet.attempts().await;
    suspended.stop();
    other.stop();
    a.home.assert_no_processes().await;
    attempts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_of_four_submitters_on_one_session_are_answered_in_order() {
    each(async |codex| {
        let Some(fleet) = Fleet::new().await else { return };
        let words = ["one", "two", "three", "four"];
        for word in ["zero"].iter().chain(&words) {
            fleet.model.when(word, Answer::text(word.to_uppercase()));
        }
        let (a, b) = (fleet.machine("a", codex), fleet.machine("b", codex));
        let workers = [a.start(), b.start()];
        let session = ask(&fleet.on(None), "zero", None).await.session();
        let runners = words.map(|_| fleet.on(None));
        let runs = runners.iter().zip(words);
        let runs = runs.map(|(runner, word)| ask(runner, word, Some(&session)));
        futures::future::join_all(runs).await;
        let jobs = fleet.board().jobs(9).await.unwrap();
        assert_eq!(jobs.len(), 5);
        // Each saw those before it, and nothing else; which came first is up to the submitters.
        let mut histories: Vec<_> = words.iter().map(|word| fleet.history(word)).collect();
        histories.sort_by_key(Vec::len);
        for (n, history) in histories.iter().enumerate() {
            assert_eq!(history.len(), n + 2, "{histories:?}");
            assert!(histories[3].starts_with(history), "{histories:?}");
        }
        workers.into_iter().for_each(WorkerProcess::stop);
    })
    .await;
}

/// With older releases in `TAKOPI_TEST_CODEX_VERSIONS`: some of them destroy such a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_never_reaches_a_codex_that_is_older_than_what_wrote_it() {
    let Some(newest) = real::codex_or_skip() else { return };
    each(async |codex| {
        if codex.version >= newest.version {
            return;
        }
        let Some(fleet) = Fleet::new().await else { return };
        fleet.model.when("one", Answer::text("ONE"));
        let (new, old) = (fleet.machine("new", &newest), fleet.machine("old", codex));
        let worker = new.start();
        let session = ask(&fleet.on(None), "one", None).await.session();
        worker.stop();
        let worker = old.start();
        fleet.model.when("first", Answer::text("FIRST"));
        ask(&fleet.on(Some(&old)), "first", None).await;
        let request = RunRequest::new("two").resume(session.clone()).wait(Duration::from_secs(4));
        let seen = run(&fleet.on(None), request).await;
        seen.failed("no_worker");
        worker.stop();
        // An old session may go to a newer codex.
        let worker = new.start();
        fleet.model.when("three", Answer::text("THREE"));
        ask(&fleet.on(None), "three", Some(&session)).await;
        assert_eq!(fleet.history("three"), ["one", "three"]);
        worker.stop();
    })
    .await;
}

/// Claude Code finds its sessions by the directory, which is another one on each machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_claude_code_goes_from_machine_to_machine() {
    let Some(claude) = takopi_tests::claude::real::claude_or_skip() else { return };
    let Some(lab) = Lab::pg().await else { return };
    let Lab::Pg { url, .. } = &lab else { panic!("on PostgreSQL") };
    let model = MessagesServer::start();
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder().state_directory(dir.path()).build().unwrap();
    let homes = ["a", "b"].map(|name| (name, takopi_tests::claude::home::TestHome::new(&model)));
    let workers = homes.each_ref().map(|(name, home)| {
        let plan = Plan {
            url: url.clone(),
            machine: (*name).to_owned(),
            state: home.state(),
            slots: 4,
            lease: LEASE,
            engine: Engine::Claude(claude.path.clone()),
        };
        WorkerProcess::start(&plan, home.env())
    });
    let mut session = None;
    for (word, name) in [("one", "a"), ("two", "b"), ("three", "a")] {
        model.when(word, word.to_uppercase().as_str());
        let mut options = FleetOptions::default();
        options.needs = vec![format!("label:{name}")];
        let codec = Claude::new().runner().resume_codec();
        let engine = FleetEngine::new(lab.board(), takopi_claude::CLAUDE, codec).options(options);
        let seen = ask(&engine.runner().on(host.clone()), word, session.as_ref()).await;
        session = Some(seen.session());
    }
    let history = model.requests().last().unwrap().history();
    let whole = ["user: one", "assistant: ONE", "user: two", "assistant: TWO", "user: three"];
    assert_eq!(history, whole);
    workers.into_iter().for_each(WorkerProcess::stop);
}

/// A fork holds only what follows the point where it began, and a revert begins another file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forked_and_reverted_sessions_of_a_person_are_imported_and_go_on_elsewhere() {
    let Some(codex) = real::codex_or_skip() else { return };
    if real::older_than(&codex, real::Version::new(0, 166, 0)) {
        return;
    }
    let Some(fleet) = Fleet::new().await else { return };
    for word in ["one", "two", "three", "four", "five", "six"] {
        fleet.model.when(word, Answer::text(word.to_uppercase()));
    }
    let (a, b) = (fleet.machine("a", &codex), fleet.machine("b", &codex));
    let mut launch = ServerLaunch::default();
    launch.binary.clone_from(&codex.path);
    launch.env =
        a.home.env().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let client = Client::start(&fleet.host, &launch).await.unwrap();
    let (thread, turn) = (ThreadOptions::default(), TurnOptions::default());
    let first = client.start_thread(&thread).await.unwrap();
    first.run("one", &turn).await.unwrap();
    first.run("two", &turn).await.unwrap();
    let fork = client.fork_thread(first.id(), &thread).await.unwrap();
    fork.run("three", &turn).await.unwrap();
    let read = client.read_thread(first.id(), true).await.unwrap();
    let second = &read["thread"]["turns"][1]["id"];
    let revert = json!({ "threadId": first.id(), "beforeTurnId": second });
    client.call("thread/revert", revert).await.unwrap();
    first.run("four", &turn).await.unwrap();
    client.close().await;

    let sessions = Codex::new().home(a.home.codex_home()).portable_sessions().unwrap();
    let import = async |id: &str| {
        let files = sessions.files(id, Path::new("/")).unwrap();
        let import = Import {
            sid: uuid::Uuid::new_v4(),
            engine: "codex".to_owned(),
            value: id.to_owned(),
            place: None,
            machine: "a".to_owned(),
            version: version_number(&codex.version.to_string()),
            stays: None,
            files: pack(&files).unwrap(),
        };
        assert!(fleet.board().import(import).await.unwrap());
        (files.len(), ResumeToken::new("codex", id))
    };
    let ((of_first, first), (of_fork, fork)) = (import(first.id()).await, import(fork.id()).await);
    assert_eq!((of_first, of_fork), (2, 3));
    let worker = b.start();
    let runner = fleet.on(None);
    ask(&runner, "five", Some(&fork)).await;
    assert_eq!(fleet.history("five"), ["one", "two", "three", "five"]);
    ask(&runner, "six", Some(&first)).await;
    assert_eq!(fleet.history("six"), ["one", "four", "six"]);
    worker.stop();
}
