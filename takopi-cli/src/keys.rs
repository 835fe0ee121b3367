//! Single keys from the terminal, for approval requests and the chat.
//!
//! Keys are read from the terminal itself, whatever standard input is, and only while takopi is in
//! the foreground. Keys pressed before reading began are dropped: a request cannot be decided before it was
//! shown. Ctrl-C stays a signal.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::termios::{
    FlushArg, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcflush, tcgetattr, tcsetattr,
};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::sync::mpsc;

/// The timeout of a read, in tenths of a second; after it, the reader checks whether it is still wanted.
const READ_TIMEOUT: u8 = 1;
/// The most that is read at once.
const AT_ONCE: usize = 1024;

/// The original settings of the terminal while they are changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keys, one by one. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct Keys {
    chunks: mpsc::Receiver<Vec<u8>>,
    /// Read, and not yet returned.
    ready: VecDeque<u8>,
    wanted: Arc<AtomicBool>,
}

impl Keys {
    /// Reads keys from now on; `None` if there is no terminal.
    pub(crate) fn listen() -> Option<Self> {
        let terminal = open()?;
        let wanted = Arc::new(AtomicBool::new(true));
        let prepared = in_foreground(&terminal) && prepare(&terminal, &wanted).is_some();
        let (sender, chunks) = mpsc::channel(8);
        let flag = wanted.clone();
        std::thread::Builder::new()
            .name("takopi-keys".to_owned())
            .spawn(move || listen(terminal, prepared, &sender, &flag))
            .ok()?;
        Some(Self { chunks, ready: VecDeque::new(), wanted })
    }

    /// The next key; `None` once the terminal is closed.
    pub(crate) async fn next(&mut self) -> Option<char> {
        if self.ready.is_empty() {
            self.ready.extend(self.chunks.recv().await?);
        }
        self.ready.pop_front().map(char::from)
    }

    /// The next key, if one is available.
    pub(crate) fn ready(&mut self) -> Option<char> {
        if self.ready.is_empty() {
            self.ready.extend(self.chunks.try_recv().ok()?);
        }
        self.ready.pop_front().map(char::from)
    }

    /// Changes the settings of the terminal again after takopi was suspended.
    pub(crate) fn prepare_again(&self) {
        if let Some(terminal) = open().filter(in_foreground) {
            prepare(&terminal, &self.wanted);
        }
    }

    /// Keys of a test.
    #[cfg(test)]
    pub(crate) fn pressed(chunks: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { chunks, ready: VecDeque::new(), wanted: Arc::default() }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
        restore();
    }
}

/// Whether there is a terminal.
pub(crate) fn has_terminal() -> bool {
    open().is_some()
}

/// Restores the settings of the terminal.
pub(crate) fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Some(before), Some(terminal)) = (before, open()) {
        let _ = tcsetattr(terminal.as_fd(), SetArg::TCSANOW, &before);
    }
}

fn open() -> Option<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty").ok()
}

fn listen(
    mut terminal: File,
    mut prepared: bool,
    keys: &mpsc::Sender<Vec<u8>>,
    wanted: &AtomicBool,
) {
    let mut bytes = [0; AT_ONCE];
    while wanted.load(Ordering::Relaxed) {
        // The kernel suspends a background process that reads from its terminal.
        if !in_foreground(&terminal) {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        if !prepared && prepare(&terminal, wanted).is_none() {
            return;
        }
        prepared = true;
        match terminal.read(&mut bytes) {
            Ok(0) => {}
            Ok(count) => {
                if keys.blocking_send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn in_foreground(terminal: &File) -> bool {
    tcgetpgrp(terminal.as_fd()).is_ok_and(|group| group == getpgrp())
}

/// Makes the terminal deliver single keys without echo.
fn prepare(terminal: &File, wanted: &AtomicBool) -> Option<()> {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if !wanted.load(Ordering::Relaxed) {
        return None;
    }
    let settings = tcgetattr(terminal.as_fd()).ok()?;
    let mut raw = settings.clone();
    raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
    raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
    raw.control_chars[SpecialCharacterIndices::VTIME as usize] = READ_TIMEOUT;
    let _ = tcflush(terminal.as_fd(), FlushArg::TCIFLUSH);
    tcsetattr(terminal.as_fd(), SetArg::TCSANOW, &raw).ok()?;
    before.get_or_insert(settings);
    Some(())
}
