//! Single keys from the terminal, for questions.
//!
//! Keys are read from the terminal itself, whatever standard input is, and only while takopi is in
//! the foreground. What was typed before the question is thrown away: nobody can answer what they
//! have not seen. Ctrl-C stays a signal.

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

/// How long a read waits for a key, in tenths of a second, before it looks whether it is still
/// wanted.
const PATIENCE: u8 = 1;
/// The most that is read at once: of a pasted text there is much.
const AT_ONCE: usize = 1024;

/// The settings of the terminal before they were changed, if they are.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keys, one by one. Dropping it gives the terminal back.
#[derive(Debug)]
pub(crate) struct Keys {
    chunks: mpsc::Receiver<Vec<u8>>,
    /// Those that were read and not yet taken.
    ready: VecDeque<u8>,
    wanted: Arc<AtomicBool>,
}

impl Keys {
    /// Listens to the terminal from now on; `None` if there is none.
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

    /// The next key; `None` once the terminal is gone.
    pub(crate) async fn next(&mut self) -> Option<char> {
        if self.ready.is_empty() {
            self.ready.extend(self.chunks.recv().await?);
        }
        self.ready.pop_front().map(char::from)
    }

    /// The next key, if it was pressed already.
    pub(crate) fn ready(&mut self) -> Option<char> {
        if self.ready.is_empty() {
            self.ready.extend(self.chunks.try_recv().ok()?);
        }
        self.ready.pop_front().map(char::from)
    }

    /// Takes the terminal again after takopi was stopped: who had it meanwhile changed its settings.
    pub(crate) fn prepare_again(&self) {
        if let Some(terminal) = open().filter(in_foreground) {
            prepare(&terminal, &self.wanted);
        }
    }

    /// The keys that a test presses.
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

/// Whether there is a terminal to ask on.
pub(crate) fn has_terminal() -> bool {
    open().is_some()
}

/// Gives the terminal its settings back.
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
        // A background process that reads from its terminal is stopped by the kernel.
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

/// Makes the terminal hand over keys as they are pressed, and not show them.
fn prepare(terminal: &File, wanted: &AtomicBool) -> Option<()> {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if !wanted.load(Ordering::Relaxed) {
        return None;
    }
    let settings = tcgetattr(terminal.as_fd()).ok()?;
    let mut raw = settings.clone();
    raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
    raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
    raw.control_chars[SpecialCharacterIndices::VTIME as usize] = PATIENCE;
    let _ = tcflush(terminal.as_fd(), FlushArg::TCIFLUSH);
    tcsetattr(terminal.as_fd(), SetArg::TCSANOW, &raw).ok()?;
    before.get_or_insert(settings);
    Some(())
}
