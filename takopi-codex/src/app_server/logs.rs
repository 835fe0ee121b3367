//! What is logged, for tests.

use std::sync::Mutex;

use tracing::Dispatch;

/// The lines that this logs.
pub(super) fn logged(work: impl FnOnce()) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let writer = Mutex::new(file.reopen().unwrap());
    let logs = tracing_subscriber::fmt().with_ansi(false).with_writer(writer);
    // While there is only one subscriber, a thread that has none and meets a log line first turns that line off for all.
    let _second = Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    tracing::subscriber::with_default(logs.finish(), work);
    std::fs::read_to_string(file.path()).unwrap()
}
