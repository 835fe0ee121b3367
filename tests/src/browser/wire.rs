//! The DevTools protocol over a pipe: JSON messages, each ended by a NUL.
//!
//! One reader routes answers to their callers and keeps what pages complained about. When the browser is gone, everything
//! pending fails at once.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

/// The browser takes commands on descriptor 3 and answers on 4. Letting a shell arrange that spares unsafe code here.
const ON_3_AND_4: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

/// A browser that runs.
#[derive(Debug)]
pub(super) struct Wire {
    child: Child,
    input: ChildStdin,
    shared: Arc<Shared>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    /// `None` once the browser is gone.
    pending: Mutex<Option<HashMap<u64, oneshot::Sender<Value>>>>,
    complaints: Mutex<Vec<String>>,
}

impl Wire {
    /// Starts a browser that keeps its files in `directory`.
    pub(super) fn start(browser: &Path, directory: &Path) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", ON_3_AND_4, "sh"])
            .arg(browser)
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            // Tests run in containers too, where its sandbox cannot be set up; only takopi's own pages are opened.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--force-color-profile=srgb", "--font-render-hinting=none"])
            .arg(format!("--user-data-dir={}", directory.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("start the browser");
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let shared =
            Arc::new(Shared { pending: Mutex::new(Some(HashMap::new())), ..Shared::default() });
        tokio::spawn(read(output, shared.clone()));
        Self { child, input, shared, next: AtomicU64::new(1) }
    }

    /// Calls a method of the browser or, with a session, of a page, and returns its result.
    pub(super) async fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        match &mut *self.shared.pending.lock().unwrap() {
            Some(pending) => pending.insert(id, answer),
            None => return Err(format!("{method}: the browser is gone")),
        };
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).await.map_err(|error| format!("{method}: {error}"))?;
        let mut answer = answered.await.map_err(|_| format!("{method}: the browser is gone"))?;
        match answer.get("error") {
            Some(error) => Err(format!("{method}: {error}")),
            None => Ok(answer["result"].take()),
        }
    }

    /// What pages complained about so far: uncaught errors, errors on the console, what their policy refused.
    pub(super) fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().unwrap().clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(pid) = self.child.id().and_then(|pid| pid.try_into().ok()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // A browser that is not gone yet could still write into its directory, which is removed next.
        while matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

async fn read(output: ChildStdout, shared: Arc<Shared>) {
    let mut output = BufReader::new(output);
    let mut bytes = Vec::new();
    while let Ok(1..) = output.read_until(0, &mut bytes).await {
        let message = serde_json::from_slice::<Value>(bytes.strip_suffix(&[0]).unwrap_or(&bytes));
        bytes.clear();
        let Ok(message) = message else { continue };
        if let Some(id) = message["id"].as_u64() {
            let caller = shared.pending.lock().unwrap().as_mut().and_then(|it| it.remove(&id));
            caller.map(|caller| caller.send(message));
        } else {
            let complaint = complaint(&message["method"], &message["params"]);
            shared.complaints.lock().unwrap().extend(complaint);
        }
    }
    shared.pending.lock().unwrap().take();
}

fn complaint(method: &Value, params: &Value) -> Option<String> {
    match method.as_str()? {
        "Runtime.exceptionThrown" => {
            let details = &params["exceptionDetails"];
            Some(format!("{} {}", details["text"], details["exception"]["description"]))
        }
        "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
        // What a server that is down does to a page is the page's to show.
        "Log.entryAdded"
            if params["entry"]["level"] == "error" && params["entry"]["source"] != "network" =>
        {
            Some(params["entry"]["text"].to_string())
        }
        _ => None,
    }
}
