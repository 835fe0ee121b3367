//! A lock service in place of lock files: hosts on several machines share sessions over a socket.
//!
//! The service is written here, against the public API alone: one connection a lock, one line a
//! message. `lock KEY HOLDER` or `try KEY HOLDER` asks; `granted`, `busy`, `wanted` and `lost CAUSE`
//! answer; closing the connection releases the lock or leaves the line.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use takopi_core::locks::{
    HeldLock, Holder, LocalLocks, LockBackend, LockError, LostLock, SessionKey, SharedLocks,
};
use takopi_core::model::Reason;
use takopi_core::{Host, RunRequest, Runner};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::common::engines::{lab_with_files, started, success};
use crate::common::{actions, all, end_of, in_real_time, token, until_started};

/// The service: the holder of each key, and its waiters.
#[derive(Clone, Default)]
struct Service {
    keys: Arc<Mutex<HashMap<String, Line>>>,
}

#[derive(Default)]
struct Line {
    holder: Option<(u64, String, mpsc::Sender<String>)>,
    waiters: VecDeque<(u64, String, mpsc::Sender<String>)>,
}

impl Service {
    async fn start(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = self.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(service.clone().serve(number, stream));
            }
        });
        port
    }

    async fn serve(self, number: u64, stream: TcpStream) {
        let (input, mut output) = stream.into_split();
        let mut lines = BufReader::new(input).lines();
        let (sender, mut messages) = mpsc::channel::<String>(8);
        let writer = tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                if output.write_all(format!("{message}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        while let Ok(Some(line)) = lines.next_line().await {
            let mut words = line.splitn(3, ' ');
            let (what, key) = (words.next().unwrap(), words.next().unwrap().to_owned());
            let holder = words.next().unwrap_or_default().to_owned();
            self.ask(what, number, &key, holder, &sender);
        }
        self.leave(number);
        drop(sender);
        let _ = writer.await;
    }

    fn ask(&self, what: &str, number: u64, key: &str, text: String, to: &mpsc::Sender<String>) {
        let mut keys = self.keys.lock().unwrap();
        let line = keys.entry(key.to_owned()).or_default();
        match (&line.holder, what) {
            (Some((_, holder, _)), "who") => to.try_send(format!("holder {holder}")).unwrap(),
            (None, "who") => to.try_send("nobody".to_owned()).unwrap(),
            (None, _) => {
                line.holder = Some((number, text, to.clone()));
                to.try_send("granted".to_owned()).unwrap();
            }
            (Some(_), "try") => to.try_send("busy".to_owned()).unwrap(),
            (Some((_, _, holder)), _) => {
                let _ = holder.try_send("wanted".to_owned());
                line.waiters.push_back((number, text, to.clone()));
            }
        }
    }

    fn leave(&self, number: u64) {
        for line in self.keys.lock().unwrap().values_mut() {
            line.waiters.retain(|(waiter, ..)| *waiter != number);
            if line.holder.as_ref().is_some_and(|(holder, ..)| *holder == number) {
                line.holder = line.waiters.pop_front();
                if let Some((_, _, next)) = &line.holder {
                    next.try_send("granted".to_owned()).unwrap();
                }
            }
        }
    }

    /// Notifies the holder that its lease ran out. The key goes to the next when the holder is gone.
    fn revoke(&self, key: &str) {
        let keys = self.keys.lock().unwrap();
        let (_, _, holder) = keys[key].holder.as_ref().unwrap();
        holder.try_send("lost the lease ran out".to_owned()).unwrap();
    }

    fn is_waited_for(&self, key: &str) -> bool {
        self.keys.lock().unwrap().get(key).is_some_and(|line| !line.waiters.is_empty())
    }
}

/// The client: what takopi is given.
struct Remote {
    port: u16,
    /// What this machine calls itself.
    machine: &'static str,
}

/// What the service sent to the holder of a lock.
#[derive(Clone, Default)]
struct Told {
    wanted: bool,
    lost: Option<String>,
}

struct RemoteLock {
    told: watch::Receiver<Told>,
    /// The lock is released when the connection closes.
    _connection: OwnedWriteHalf,
}

type Connection = (Lines<BufReader<OwnedReadHalf>>, OwnedWriteHalf);

impl Remote {
    async fn ask(
        &self,
        what: &str,
        key: &SessionKey,
        holder: &Holder,
    ) -> std::io::Result<Connection> {
        let (input, mut output) = TcpStream::connect(("127.0.0.1", self.port)).await?.into_split();
        let mut holder = holder.clone();
        holder.machine = self.machine.to_owned().into();
        let holder = serde_json::to_string(&holder).unwrap();
        output.write_all(format!("{what} {key} {holder}\n").as_bytes()).await?;
        Ok((BufReader::new(input).lines(), output))
    }

    async fn take(
        &self,
        what: &str,
        key: &SessionKey,
        holder: &Holder,
    ) -> Result<Option<Box<dyn HeldLock>>, LockError> {
        let failed = |error: std::io::Error| LockError::service(error.to_string());
        let (mut lines, connection) = self.ask(what, key, holder).await.map_err(failed)?;
        let Some(answer) = lines.next_line().await.map_err(failed)? else {
            return Err(LockError::service("the lock service is gone"));
        };
        if answer != "granted" {
            return Ok(None);
        }
        let (tell, told) = watch::channel(Told::default());
        tokio::spawn(async move {
            loop {
                match lines.next_line().await {
                    Ok(Some(line)) if line == "wanted" => {
                        tell.send_modify(|told| told.wanted = true);
                    }
                    Ok(Some(line)) => {
                        let cause = line.strip_prefix("lost ").unwrap().to_owned();
                        tell.send_modify(|told| told.lost = Some(cause));
                    }
                    Ok(None) | Err(_) => {
                        let cause = "the lock service is gone".to_owned();
                        return tell.send_modify(|told| {
                            told.lost.get_or_insert(cause);
                        });
                    }
                }
            }
        });
        Ok(Some(Box::new(RemoteLock { told, _connection: connection })))
    }
}

impl LockBackend for Remote {
    fn try_lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldLock>>, LockError>> {
        self.take("try", key, holder).boxed()
    }

    fn lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn HeldLock>, LockError>> {
        async move { Ok(self.take("lock", key, holder).await?.unwrap()) }.boxed()
    }

    fn holder<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Option<Holder>> {
        async move {
            let nobody = Holder::here(crate::common::LAB);
            let (mut lines, _connection) = self.ask("who", key, &nobody).await.ok()?;
            let answer = lines.next_line().await.ok()??;
            serde_json::from_str(answer.strip_prefix("holder ")?).ok()
        }
        .boxed()
    }
}

impl HeldLock for RemoteLock {
    fn wanted(&self) -> BoxFuture<'_, ()> {
        let mut told = self.told.clone();
        async move {
            let _ = told.wait_for(|told| told.wanted).await;
        }
        .boxed()
    }

    fn lost(&self) -> Option<BoxFuture<'static, LostLock>> {
        let mut told = self.told.clone();
        let lost = async move {
            let told = told.wait_for(|told| told.lost.is_some()).await;
            let cause = told.ok().and_then(|told| told.lost.clone());
            LostLock::new(cause.unwrap_or_default())
        };
        Some(lost.boxed())
    }
}

/// A machine: a host of its own whose session locks are the service's.
struct Machine {
    host: Host,
    _state: TempDir,
}

fn machine(name: &'static str, port: u16) -> Machine {
    let state = TempDir::new().unwrap();
    let locks = SharedLocks::over(LocalLocks::new(), Remote { port, machine: name });
    let host = Host::builder()
        .runtime(tokio::runtime::Handle::current())
        .state_directory(state.path())
        .session_locks(locks)
        .build()
        .unwrap();
    Machine { host, _state: state }
}

fn on_session() -> RunRequest {
    RunRequest::new("go").resume(token("a"))
}

/// A runner whose turns wait for `go`, and log when they begin and when nothing of them is left.
fn turns(
    machine: &Machine,
    name: &'static str,
    log: &Arc<Mutex<Vec<String>>>,
    go: watch::Receiver<bool>,
) -> impl Runner + use<> {
    let log = log.clone();
    lab_with_files(&machine.host, move |run| {
        let (log, mut go) = (log.clone(), go.clone());
        async move {
            log.lock().unwrap().push(format!("{name} begins"));
            run.emit(started("a")).await.unwrap();
            let told = async { drop(go.wait_for(|go| *go).await) };
            tokio::select! {
                () = told => {}
                () = run.stop().cancelled() => {
                    // An engine that takes a while to end.
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                }
            }
            log.lock().unwrap().push(format!("{name} ends"));
            let _ = run.emit(success(name)).await;
        }
    })
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn runs_on_two_machines_take_turns_and_the_holder_is_named_with_its_machine() {
    in_real_time();
    let service = Service::default();
    let port = service.start().await;
    let (one, two) = (machine("one", port), machine("two", port));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (go, wait) = watch::channel(false);
    let first = turns(&one, "one", &log, wait.clone());
    let second = turns(&two, "two", &log, wait);
    let mut running = first.run(on_session());
    until_started(&mut running).await;
    let mut waiting = second.run(on_session());
    let note = waiting.next().await.unwrap();
    let titles: Vec<_> = actions(&[note]).iter().map(|event| event.action.title.clone()).collect();
    assert!(titles[0].contains("on one"), "{titles:?}");
    assert!(service.is_waited_for("lab:a"));
    go.send_replace(true);
    assert!(end_of(&all(running).await).ok);
    assert!(end_of(&all(waiting).await).ok);
    assert_eq!(*log.lock().unwrap(), ["one begins", "one ends", "two begins", "two ends"]);
}

#[tokio::test]
async fn a_lock_that_is_lost_stops_its_run_before_another_can_begin() {
    in_real_time();
    let service = Service::default();
    let port = service.start().await;
    let (one, two) = (machine("one", port), machine("two", port));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (go, wait) = watch::channel(false);
    let first = turns(&one, "one", &log, wait.clone());
    let second = turns(&two, "two", &log, wait);
    let mut running = first.run(on_session());
    until_started(&mut running).await;
    let waiting = second.run(on_session());
    until(|| service.is_waited_for("lab:a")).await;
    service.revoke("lab:a");
    let end = running.completed().await;
    assert_eq!(end.reason, Some(Reason::LockLost));
    assert!(end.error.unwrap().contains("the lease ran out"));
    go.send_replace(true);
    assert!(waiting.completed().await.ok);
    assert_eq!(*log.lock().unwrap(), ["one begins", "one ends", "two begins", "two ends"]);
}

#[tokio::test]
async fn a_lock_is_lost_for_a_new_session_too_when_the_service_is_gone() {
    in_real_time();
    let service = Service::default();
    let port = service.start().await;
    let one = machine("one", port);
    let (_go, wait) = watch::channel(false);
    let runner = turns(&one, "one", &Arc::default(), wait);
    let mut running = runner.run(RunRequest::new("go"));
    until_started(&mut running).await;
    let holder = service.keys.lock().unwrap().get_mut("lab:a").unwrap().holder.take();
    let (_, _, connection) = holder.unwrap();
    connection.try_send("lost the lock service is gone".to_owned()).unwrap();
    let end = running.completed().await;
    assert_eq!(end.reason, Some(Reason::LockLost));
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_ends_the_run_with_its_error() {
    in_real_time();
    // Nobody listens there.
    let one = machine("one", 1);
    let (_go, wait) = watch::channel(true);
    let end = turns(&one, "one", &Arc::default(), wait).ask(on_session()).await;
    assert!(!end.ok);
    assert!(end.error.unwrap().contains("cannot lock the session"));
}

#[tokio::test]
async fn a_lease_resolves_when_another_machine_wants_the_session_and_when_it_is_lost() {
    in_real_time();
    let service = Service::default();
    let port = service.start().await;
    let (one, two) = (machine("one", port), machine("two", port));
    for lost in [false, true] {
        let leases = Arc::new(Mutex::new(None));
        let keeper = leases.clone();
        let warm = lab_with_files(&one.host, move |run| {
            let keeper = keeper.clone();
            async move {
                run.emit(started("a")).await.unwrap();
                *keeper.lock().unwrap() = run.keep_lease();
                run.emit(success("")).await.unwrap();
            }
        });
        assert!(warm.ask(on_session()).await.ok);
        let lease = leases.lock().unwrap().take().unwrap();
        assert!(!lease.is_wanted());
        if lost {
            service.revoke("lab:a");
            lease.wanted().await;
        } else {
            let (_go, wait) = watch::channel(true);
            let next = turns(&two, "two", &Arc::default(), wait).run(on_session());
            lease.wanted().await;
            assert!(lease.is_wanted());
            drop(lease);
            assert!(next.completed().await.ok);
        }
    }
}

/// A service that takes its time, and grants every lock.
struct Slow(Duration);

struct Granted;

impl HeldLock for Granted {
    fn wanted(&self) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }
}

impl LockBackend for Slow {
    fn try_lock<'a>(
        &'a self,
        _: &'a SessionKey,
        _: &'a Holder,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldLock>>, LockError>> {
        async move {
            tokio::time::sleep(self.0).await;
            Ok(Some(Box::new(Granted) as Box<dyn HeldLock>))
        }
        .boxed()
    }

    fn lock<'a>(
        &'a self,
        _: &'a SessionKey,
        _: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn HeldLock>, LockError>> {
        std::future::pending().boxed()
    }

    fn holder<'a>(&'a self, _: &'a SessionKey) -> BoxFuture<'a, Option<Holder>> {
        std::future::ready(None).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_a_run_do_not_count_a_service_that_takes_its_time() {
    let state = TempDir::new().unwrap();
    let second = Duration::from_secs(1);
    let host = Host::builder()
        .runtime(tokio::runtime::Handle::current())
        .state_directory(state.path())
        .session_locks(SharedLocks::over(LocalLocks::new(), Slow(10 * second)))
        .build()
        .unwrap();
    let runner = lab_with_files(&host, move |run| async move {
        run.emit(started("a")).await.unwrap();
        tokio::time::sleep(2 * second).await;
        run.emit(success("")).await.unwrap();
    });
    let end = runner.ask(on_session().idle_timeout(5 * second).wall_timeout(5 * second)).await;
    assert!(end.ok, "{end:?}");
}
