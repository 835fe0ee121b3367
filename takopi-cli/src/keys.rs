//! Keys and pasted text from the terminal, for approval requests and the chat.
//!
//! They are parsed by crossterm, read from the terminal itself, whatever standard input is, and only while takopi is in
//! the foreground. Keys pressed before reading began are dropped: a request cannot be decided before it was
//! shown. Ctrl-C and Ctrl-Z stay signals.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, poll, read};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::termios::{
    FlushArg, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcflush, tcgetattr, tcsetattr,
};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::sync::mpsc;

/// How many milliseconds a key is waited for; then the reader checks whether it is still wanted.
const WAIT: u16 = 100;
/// The most keys that wait to be handled.
const WAITING: usize = 256;

/// The original settings of the terminal while they are changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keys, one by one. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct Keys {
    events: mpsc::Receiver<Event>,
    wanted: Arc<AtomicBool>,
}

impl Keys {
    /// Reads keys from now on; `None` if there is no terminal.
    pub(crate) fn listen() -> Option<Self> {
        let terminal = open()?;
        let wanted = Arc::new(AtomicBool::new(true));
        let prepared = in_foreground(&terminal) && prepare(&terminal, &wanted).is_some();
        let (sender, events) = mpsc::channel(WAITING);
        let flag = wanted.clone();
        std::thread::Builder::new()
            .name("takopi-keys".to_owned())
            .spawn(move || listen(&terminal, prepared, &sender, &flag))
            .ok()?;
        Some(Self { events, wanted })
    }

    /// The next key; `None` once the terminal is closed.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The next key, if one is available.
    pub(crate) fn ready(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Drops the keys that were pressed so far.
    pub(crate) fn discard(&mut self) {
        if let Some(terminal) = open() {
            let _ = tcflush(terminal.as_fd(), FlushArg::TCIFLUSH);
        }
        while self.ready().is_some() {}
    }

    /// Changes the settings of the terminal again after takopi was suspended.
    pub(crate) fn prepare_again(&self) {
        if let Some(terminal) = open().filter(in_foreground) {
            prepare(&terminal, &self.wanted);
        }
    }
}

/// The character of a key, if it is one without Ctrl and Alt.
pub(crate) fn character(event: &Event) -> Option<char> {
    match event {
        Event::Key(KeyEvent { code: KeyCode::Char(letter), modifiers, .. })
            if (*modifiers - crossterm::event::KeyModifiers::SHIFT).is_empty() =>
        {
            Some(*letter)
        }
        _ => None,
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

/// Hides what is typed, until [`restore`].
#[cfg(feature = "telegram")]
pub(crate) fn hide() {
    let Some(terminal) = open() else { return };
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(settings) = tcgetattr(terminal.as_fd()) else { return };
    let mut hidden = settings.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    if tcsetattr(terminal.as_fd(), SetArg::TCSANOW, &hidden).is_ok() {
        before.get_or_insert(settings);
    }
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

fn listen(terminal: &File, mut prepared: bool, keys: &mpsc::Sender<Event>, wanted: &AtomicBool) {
    while wanted.load(Ordering::Relaxed) {
        match tcgetpgrp(terminal.as_fd()) {
            Ok(group) if group == getpgrp() => {}
            // The kernel suspends a background process that reads from its terminal.
            Ok(_) | Err(Errno::EINTR) => {
                std::thread::sleep(Duration::from_millis(WAIT.into()));
                continue;
            }
            // The terminal is gone: with hangups ignored nothing else reports it.
            Err(_) => return,
        }
        if !prepared && prepare(terminal, wanted).is_none() {
            return;
        }
        prepared = true;
        if is_gone(terminal) || !forward(keys, wanted) {
            return;
        }
    }
}

/// Waits for keys; whether the terminal is gone. crossterm must not be asked then: it would read the end of
/// the input for ever.
fn is_gone(terminal: &File) -> bool {
    let mut polled = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
    match nix::poll::poll(&mut polled, WAIT) {
        Ok(_) => {
            let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
            polled[0].revents().is_some_and(|events| events.intersects(gone))
        }
        Err(error) => error != Errno::EINTR,
    }
}

/// Passes on the keys that are there; `false` if nobody wants more.
fn forward(keys: &mpsc::Sender<Event>, wanted: &AtomicBool) -> bool {
    loop {
        let event = match poll(Duration::ZERO) {
            Ok(false) => return true,
            Ok(true) => read(),
            Err(error) => Err(error),
        };
        match event {
            Ok(event) if wanted.load(Ordering::Relaxed) => {
                if keys.blocking_send(event).is_err() {
                    return false;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return false,
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
    raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::IEXTEN);
    // A paste that Ctrl-C interrupts is read to its end.
    raw.local_flags.insert(LocalFlags::NOFLSH);
    raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
    let _ = tcflush(terminal.as_fd(), FlushArg::TCIFLUSH);
    tcsetattr(terminal.as_fd(), SetArg::TCSANOW, &raw).ok()?;
    before.get_or_insert(settings);
    Some(())
}
