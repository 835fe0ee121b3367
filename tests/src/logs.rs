//! What takopi logs while a test runs.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Collects every line of the calling thread at every level, until it is dropped: in a test whose runtime has one
/// thread, all that takopi logs there (see [`Lab::on_this_runtime`](crate::lab::Lab::on_this_runtime)).
pub struct Logs {
    lines: Lines,
    _collects: DefaultGuard,
}

impl Logs {
    /// Begins to collect.
    pub fn collect() -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let all = tracing_subscriber::registry().with(LevelFilter::TRACE).with(layer);
        Self { lines, _collects: all.set_default() }
    }

    /// What was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lines.0.lock().unwrap()).into_owned()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
