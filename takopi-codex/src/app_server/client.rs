//! The client: one app-server process and the conversation with it.
//!
//! One reader and one writer, both with the process's owner on takopi's supervisor; the handle can
//! be cloned and used from anywhere. Promises:
//! - answers are matched to requests; one that comes too late is dropped;
//! - the end of the process fails everything pending at once, with the end of its stderr;
//! - dropping the last handle ends the process and what it started; [`Client::close`] lets it end
//!   by itself, so that what the agent detached on purpose stays;
//! - an overloaded server (-32001) is asked again, with a backoff; a turn of which it sent anything is not.
//!
//! The client takes no session lock: that is the runner's business.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use takopi_core::Host;
use takopi_core::jsonl::parse_repaired;
use takopi_core::peer::Peer;
use takopi_core::process::{EnvPolicy, Launch, StartCutoff, StdinPlan, StopSequence};
use takopi_core::rpc::{CallError, Caller, Dialect, ResponseError};
use takopi_core::version::Version;
use tokio::sync::watch;
use uuid::Uuid;

use super::error::ClientError;
use super::reader::read;
use super::routes::Routes;
use crate::MINIMUM_VERSION;

/// The error code of an overloaded server.
const OVERLOADED: i64 = -32001;
/// How often an overloaded server is asked.
const OVERLOAD_TRIES: u32 = 6;

/// How to start an app-server.
///
/// Two equal launches may share a process; that is what equality is for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLaunch {
    /// The codex binary, by name or path.
    pub binary: PathBuf,
    /// Arguments ahead of `app-server`, e.g. `-c key=value`.
    pub args: Vec<String>,
    /// Variables on top of what is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Which variables are inherited.
    pub env_policy: EnvPolicy,
    /// `CODEX_HOME`, if it is not the user's own.
    pub codex_home: Option<PathBuf>,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// Whether the process is not read while a turn's consumer is behind. Right for a process that
    /// serves one session; on a shared one a turn that is left behind is ended instead.
    pub patient: bool,
}

impl Default for ServerLaunch {
    fn default() -> Self {
        Self {
            binary: PathBuf::from("codex"),
            args: Vec::new(),
            env: Vec::new(),
            env_policy: EnvPolicy::default(),
            codex_home: None,
            request_timeout: Duration::from_mins(1),
            patient: true,
        }
    }
}

impl ServerLaunch {
    fn launch(&self) -> Launch {
        let mut launch = Launch::new(&self.binary)
            .args(self.args.iter().cloned())
            .args(["app-server"])
            .env_policy(self.env_policy.clone())
            .stdin(StdinPlan::Open)
            .stop_sequence(StopSequence::end_of_input_first())
            // It ends with its input; SIGINT would orphan its commands.
            .interrupt_on_death(false)
            .linger(Duration::from_secs(5));
        for (name, value) in &self.env {
            launch = launch.env(name, value);
        }
        if let Some(home) = &self.codex_home {
            launch = launch.env("CODEX_HOME", home);
        }
        launch
    }
}

/// The server's response to `initialize`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Its version, if its user agent includes one.
    pub version: Option<Version>,
    /// The whole response.
    pub raw: Value,
}

/// A running app-server.
///
/// ```no_run
/// use takopi_codex::app_server::{Client, ServerLaunch, ThreadOptions, TurnOptions};
/// use takopi_core::Host;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::start(&Host::global()?, &ServerLaunch::default()).await?;
/// let thread = client.start_thread(&ThreadOptions::default()).await?;
/// let turn = thread.run("list the files", &TurnOptions::default()).await?;
/// println!("{}", turn.answer.unwrap_or_default());
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    peer: Peer,
    caller: Caller,
    routes: Arc<Routes>,
    ended: watch::Receiver<bool>,
    timeout: Duration,
    info: OnceLock<ServerInfo>,
}

impl Client {
    /// Starts a server and initializes it.
    pub async fn start(host: &Host, launch: &ServerLaunch) -> Result<Self, ClientError> {
        let client = Self::spawn(host, launch).await?;
        match client.initialize().await {
            Ok(()) => Ok(client),
            Err(error) => {
                client.kill().await;
                Err(error)
            }
        }
    }

    /// Starts a server that must still be initialized.
    pub(super) async fn spawn(host: &Host, launch: &ServerLaunch) -> Result<Self, ClientError> {
        let (peer, output) = Peer::start(host, launch.launch()).await?;
        let wire = peer.wire();
        let routes = Arc::new(Routes::default());
        let (end, ended) = watch::channel(false);
        let reader = read(output, routes.clone(), wire.clone(), launch.patient);
        host.track(async move {
            reader.await;
            let _ = end.send(true);
        });
        let inner = Inner {
            peer,
            caller: Caller::new(wire, Dialect::Bare),
            routes,
            ended,
            timeout: launch.request_timeout,
            info: OnceLock::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sends `initialize`.
    pub(super) async fn initialize(&self) -> Result<(), ClientError> {
        let info = self.inner.initialize().await?;
        let _ = self.inner.info.set(info);
        Ok(())
    }

    /// The server's response to `initialize`.
    pub fn info(&self) -> &ServerInfo {
        static NOTHING: ServerInfo = ServerInfo { version: None, raw: Value::Null };
        self.inner.info.get().unwrap_or(&NOTHING)
    }

    /// Calls a method by name: raw access to everything.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        self.request(method, &params).await
    }

    /// Whether the server is gone.
    pub fn is_closed(&self) -> bool {
        *self.inner.ended.borrow()
    }

    /// Waits until the server is gone.
    pub async fn closed(&self) {
        let _ = self.inner.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Closes the server's input and waits until it is gone. What is pending fails.
    pub async fn close(&self) {
        self.inner.routes.close();
        self.inner.peer.close().await;
    }

    /// Ends the server and everything that came of it, and waits until nothing is left.
    pub async fn kill(&self) {
        self.kill_sparing(StartCutoff::default()).await;
    }

    /// Like [`Self::kill`], but leaves alone what of it was started before.
    pub(super) async fn kill_sparing(&self, spared: StartCutoff) {
        self.inner.routes.close();
        self.inner.peer.kill_sparing(spared).await;
    }

    pub(super) async fn request<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<R, ClientError> {
        self.inner.request(method, params, self.inner.timeout, None).await
    }

    /// Sends a request that starts a turn on this thread, and whose response names the turn.
    pub(super) async fn request_turn<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        thread: &str,
    ) -> Result<R, ClientError> {
        self.inner.request(method, params, self.inner.timeout, Some(thread)).await
    }

    pub(super) async fn request_within<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        limit: Duration,
    ) -> Result<R, ClientError> {
        self.inner.request(method, params, limit, None).await
    }

    /// The error of whatever was pending when the server went away.
    pub(super) async fn gone(&self, method: &str) -> ClientError {
        self.inner.gone(method).await
    }

    pub(super) fn routes(&self) -> &Arc<Routes> {
        &self.inner.routes
    }
}

impl Inner {
    async fn initialize(&self) -> Result<ServerInfo, ClientError> {
        let params = json!({
            "clientInfo": { "name": "takopi", "title": "takopi", "version": env!("CARGO_PKG_VERSION") },
            // Always: some versions refuse `excludeTurns` without it.
            "capabilities": { "experimentalApi": true },
        });
        let raw: Value = self.request("initialize", &params, self.timeout, None).await?;
        let version = raw.get("userAgent").and_then(Value::as_str).and_then(Version::find);
        if let Some(found) = version.filter(|version| *version < MINIMUM_VERSION) {
            return Err(ClientError::TooOld {
                found: found.to_string(),
                minimum: MINIMUM_VERSION.to_string(),
            });
        }
        self.caller.notify("initialized", None::<&Value>).await;
        Ok(ServerInfo { version, raw })
    }

    /// Calls a method; a server that is overloaded is asked again, unless it may have begun the turn all the same.
    async fn request<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        limit: Duration,
        starts_turn_on: Option<&str>,
    ) -> Result<R, ClientError> {
        let mut tries = 1;
        let result = loop {
            match self.send(method, params, limit, starts_turn_on).await {
                Err(error @ ClientError::Refused { code: Some(OVERLOADED), .. })
                    if tries < OVERLOAD_TRIES =>
                {
                    tokio::time::sleep(backoff(tries)).await;
                    if starts_turn_on.is_some_and(|thread| self.routes.may_have_begun(thread)) {
                        return Err(error);
                    }
                    tries += 1;
                }
                other => break other?,
            }
        };
        parse_repaired(result.get())
            .map_err(|error| ClientError::answer(method, &error.to_string()))
    }

    async fn send(
        &self,
        method: &str,
        params: &impl Serialize,
        limit: Duration,
        starts_turn_on: Option<&str>,
    ) -> Result<Box<RawValue>, ClientError> {
        let id = self.caller.next_id();
        let Some(response) = self.routes.register(id, starts_turn_on) else {
            return Err(self.gone(method).await);
        };
        let _forget = Forget { routes: &self.routes, id };
        Err(match self.caller.call(id, method, params, response, limit).await {
            Ok(result) => return Ok(result),
            Err(CallError::Timeout(limit)) => {
                ClientError::Timeout { method: method.to_owned(), limit }
            }
            Err(CallError::Response(ResponseError::Refused(body))) => {
                ClientError::refused(method, body)
            }
            Err(CallError::Response(_)) => ClientError::answer(method, "it is too long"),
            Err(_) => self.gone(method).await,
        })
    }

    async fn gone(&self, method: &str) -> ClientError {
        let stderr_tail = self.peer.stderr_tail().await;
        ClientError::Closed { method: method.to_owned(), stderr_tail }
    }
}

/// Forgets a request however its caller goes away.
struct Forget<'a> {
    routes: &'a Routes,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.routes.forget(self.id);
    }
}

/// 100 ms, 200 ms, … up to 3.2 s, each with up to half of it on top, so that many do not come at once.
fn backoff(tries: u32) -> Duration {
    let base = 100 * u64::from(2_u32.saturating_pow(tries - 1));
    let (random, _) = Uuid::new_v4().as_u64_pair();
    Duration::from_millis(base + random % (base / 2 + 1))
}
