//! The connection to the test's control.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::fake::report::{Report, SOCKET};
use crate::fake::{FOREVER, OVERSLEPT};

use super::complain;

/// One connection. The process ends when the test is gone, or does not answer for ever.
#[derive(Debug)]
pub struct Link(BufReader<UnixStream>);

impl Link {
    /// Connects to the control in this directory.
    pub(crate) fn connect(control: &Path) -> Self {
        let stream = UnixStream::connect(control.join(SOCKET));
        let stream = stream.unwrap_or_else(|error| complain(&format!("no control: {error}")));
        stream.set_read_timeout(Some(FOREVER)).expect("a time limit above zero");
        Self(BufReader::new(stream))
    }

    /// Reports something and returns the answer, which for a gate comes when it opens.
    pub(crate) fn send(&mut self, report: &Report) -> String {
        let mut line = serde_json::to_string(report).expect("a report is plain data");
        line.push('\n');
        if self.0.get_mut().write_all(line.as_bytes()).is_err() {
            std::process::exit(OVERSLEPT);
        }
        self.read_reply()
    }

    /// Waits for a line that never comes.
    pub(crate) fn sleep(&mut self) -> ! {
        loop {
            self.read_reply();
        }
    }

    fn read_reply(&mut self) -> String {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(length) if length > 0 => line.trim_end().to_owned(),
            _ => std::process::exit(OVERSLEPT),
        }
    }
}
