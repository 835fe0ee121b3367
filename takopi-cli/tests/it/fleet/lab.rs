//! A database with a queue for each test, workers on it, and the binary run with its address.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use takopi_tests::postgres;

use crate::cli::lab::{Lab, Ran, Running, ran};

/// The directories of a test, and the address of its database.
pub(super) struct FleetLab {
    pub(super) lab: Lab,
    pub(super) url: String,
}

impl FleetLab {
    /// With a queue in its database.
    pub(super) fn new() -> Option<Self> {
        let lab = Self::empty()?;
        let ran = lab.run(&["fleet", "init"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        Some(lab)
    }

    /// With an empty database.
    #[track_caller]
    pub(super) fn empty() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = postgres::shared_or_skip()?;
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&server.url("takopi", "postgres"), tokio_postgres::NoTls)
                    .await
                    .unwrap();
            let driver = tokio::spawn(connection);
            client.batch_execute(&format!("create database {name}")).await.unwrap();
            drop(client);
            driver.await.unwrap().unwrap();
        });
        Some(Self { lab: Lab::new(), url: server.url("takopi", &name) })
    }

    pub(super) fn takopi(&self, args: &[&str]) -> Command {
        let mut command = self.lab.takopi(args);
        command.env("TAKOPI_FLEET", &self.url);
        command
    }

    pub(super) fn run(&self, args: &[&str]) -> Ran {
        ran(&mut self.takopi(args))
    }

    /// A worker with the demo engine, which serves. It ends with what is returned.
    pub(super) fn worker(&self, name: &str, args: &[&str]) -> Running {
        let args = [&["--engine", "demo", "--name", name], args].concat();
        let mut worker = Running::start(self.worker_command(&args));
        worker.wait_for("engines  demo");
        // What it offers is printed before the fleet knows it.
        while !self.has_worker(name) {}
        worker
    }

    fn has_worker(&self, name: &str) -> bool {
        let ran = self.run(&["fleet", "status", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
        shown["status"]["workers"].as_array().unwrap().iter().any(|it| it["machine"] == name)
    }

    /// The command of a worker that ends when its input is dropped.
    pub(super) fn worker_command(&self, args: &[&str]) -> Command {
        let mut command = self.takopi(&["worker", "--tied"]);
        command.args(args).stdin(Stdio::piped());
        command
    }

    /// The caller's jobs, the newest first.
    pub(super) fn jobs(&self) -> Vec<Value> {
        let ran = self.run(&["fleet", "jobs", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until a job is in one of these states; its id.
    pub(super) fn wait_for_job(&self, states: &[&str]) -> String {
        let fits = |job: &Value| states.iter().any(|state| job["state"] == *state);
        loop {
            if let Some(job) = self.jobs().into_iter().find(fits) {
                return job["id"].as_str().unwrap().to_owned();
            }
        }
    }
}

/// What a server answers to a request: the head and the body.
pub(super) fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The address behind `http://` in what was printed.
pub(super) fn address(printed: &str) -> String {
    let behind = printed.split("http://").nth(1).unwrap();
    behind.split(['/', '\n']).next().unwrap().to_owned()
}
