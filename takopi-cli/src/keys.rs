//! Single keys from the terminal, for questions.
//!
//! Keys are read from the terminal itself, whatever standard input is, and only while takopi is in
//! the foreground. What was typed before the question is thrown away: nobody can answer what they
//! have not seen. Ctrl-C stays a signal.

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

/// The settings of the terminal before they were changed, if they are.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keys, one by one. Dropping it gives the terminal back.
#[derive(Debug)]
pub(crate) struct Keys {
    keys: mpsc::Receiver<char>,
    wanted: Arc<AtomicBool>,
}

impl Keys {
    /// Listens to the terminal from now on; `None` if there is none.
    pub(crate) fn listen() -> Option<Self> {
        let terminal = open()?;
        let wanted = Arc::new(AtomicBool::new(true));
        let prepared = in_foreground(&terminal) && prepare(&terminal, &wanted).is_some();
        let (sender, keys) = mpsc::channel(8);
        let flag = wanted.clone();
        std::thread::Builder::new()
            .name("takopi-keys".to_owned())
            .spawn(move || listen(terminal, prepared, &sender, &flag))
            .ok()?;
        Some(Self { keys, wanted })
    }

    /// The next key; `None` once the terminal is gone.
    pub(crate) async fn next(&mut self) -> Option<char> {
        self.keys.recv().await
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

fn listen(mut terminal: File, mut prepared: bool, keys: &mpsc::Sender<char>, wanted: &AtomicBool) {
    let mut byte = [0];
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
        match terminal.read(&mut byte) {
            Ok(0) => {}
            Ok(_) => {
                if keys.blocking_send(char::from(byte[0])).is_err() {
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
