//! `takopi serve`, running, and a browser on its page.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use takopi_tests::browser::{Page, page_or_skip};

use crate::real::lab::{Lab, Ran, Running};

/// A server that runs.
pub(crate) struct Server {
    running: Running,
    /// Where it is: `http://127.0.0.1:PORT/`.
    pub(crate) address: String,
}

impl Server {
    /// Starts one on a free port.
    pub(crate) async fn start(lab: &Lab, args: &[&str]) -> Self {
        Self::start_at(lab, "127.0.0.1:0", args).await
    }

    /// Starts one on a port that no other program is given by chance: it can be started there again.
    pub(crate) async fn start_to_return(lab: &Lab) -> Self {
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        // Nor by a test like this one that runs at the same time.
        let first = u16::try_from(std::process::id() * 16 % 10_000).unwrap();
        let port = (20_000 + first..30_000).chain(20_000..20_000 + first).find(is_free).unwrap();
        Self::start_at(lab, &format!("127.0.0.1:{port}"), &[]).await
    }

    pub(crate) async fn start_at(lab: &Lab, listen: &str, args: &[&str]) -> Self {
        let all: Vec<&str> = ["serve", "--listen", listen].iter().chain(args).copied().collect();
        Self::of(lab.start(&all)).await
    }

    /// One that was started just now.
    pub(crate) async fn of(mut running: Running) -> Self {
        let said = running.wait_for("listening on ").await.split("listening on ").nth(1).unwrap();
        let address = said.split_whitespace().next().unwrap().to_owned();
        Self { running, address }
    }

    /// The address without `http://` and what is behind it.
    pub(crate) fn host(&self) -> &str {
        self.address.trim_start_matches("http://").split('/').next().unwrap()
    }

    /// Interrupts it, and waits for its end.
    pub(crate) async fn stop(self) -> Ran {
        self.running.signal(Signal::SIGINT);
        self.running.end().await
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(self) {
        self.running.signal(Signal::SIGKILL);
        self.running.end().await;
    }
}

/// Types a message and sends it.
pub(crate) async fn say(page: &mut Page, text: &str) {
    page.click("textarea").await;
    page.type_text(text).await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('textarea').value === ''").await;
}

/// Waits until this many answers are there.
pub(crate) async fn answers(page: &mut Page, count: usize) {
    page.wait_for(&format!("document.querySelectorAll('.final').length === {count}")).await;
}

/// The text of the first element that a selector finds.
pub(crate) async fn text_of(page: &mut Page, selector: &str) -> String {
    let found = page.eval(&format!("document.querySelector({}).innerText", json!(selector))).await;
    found.as_str().unwrap().to_owned()
}

/// The line that resumes the conversation's session. It is known behind the message that has it.
pub(crate) async fn resume_line(page: &mut Page) -> String {
    page.wait_for("document.querySelector('#resume code').innerText !== ''").await;
    text_of(page, "#resume code").await
}

/// A page of this server.
pub(crate) async fn visit(server: &Server) -> Option<Page> {
    let mut page = page_or_skip().await?;
    page.look((1100, 720), "light").await;
    page.open(&server.address).await;
    Some(page)
}

/// Sends a request as the page does; status and body of the response.
pub(crate) fn post(server: &Server, path: &str, body: &Value) -> (u16, String) {
    let (host, body) = (server.host(), body.to_string());
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    // A body that is too long is not read: the connection may be reset after the answer.
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.split(' ').nth(1).unwrap_or("0").parse().unwrap(), body.to_owned())
}
