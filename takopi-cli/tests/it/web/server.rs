//! `takopi serve`, running, and a browser on its page.

use nix::sys::signal::Signal;
use takopi_tests::browser::Page;

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
