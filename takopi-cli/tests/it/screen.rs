//! A terminal, seen through an emulator.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, Pty, open};

/// How long a text is waited for on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

pub(crate) struct Screen {
    pty: Arc<Pty>,
    child: std::process::Child,
    emulator: Arc<Mutex<vt100::Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
    reader: std::thread::JoinHandle<()>,
}

impl Screen {
    /// Starts a command on a terminal of so many lines and columns.
    pub(crate) fn start(command: Command, (lines, columns): (u16, u16)) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(pty_process::Size::new(lines, columns)).unwrap();
        let child = command.spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let emulator =
            vt100::Parser::new(lines.try_into().unwrap(), columns.try_into().unwrap(), 0);
        let emulator = Arc::new(Mutex::new(emulator));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let reader = std::thread::spawn({
            let (pty, emulator, raw) = (pty.clone(), emulator.clone(), raw.clone());
            move || {
                let mut bytes = [0; 4096];
                // A terminal whose other end is closed gives an error, which is its end.
                while let Ok(count @ 1..) = (&*pty).read(&mut bytes) {
                    emulator.lock().unwrap().process(&bytes[..count]);
                    raw.lock().unwrap().extend(&bytes[..count]);
                }
            }
        });
        Self { pty, child, emulator, raw, reader }
    }

    pub(crate) fn contents(&self) -> String {
        let contents = self.emulator.lock().unwrap().screen().contents();
        let lines: Vec<&str> = contents.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |contents| contents.contains(text))
    }

    /// Waits until this is on the screen, and the screen ends with that.
    #[allow(dead_code, reason = "not every suite looks at the last line")]
    pub(crate) fn wait_for_ending(&self, text: &str, end: &str) -> String {
        self.wait_until(text, |contents| contents.contains(text) && contents.ends_with(end))
    }

    /// Waits until this is no longer on the screen.
    pub(crate) fn wait_without(&self, text: &str) -> String {
        self.wait_until(text, |contents| !contents.contains(text))
    }

    #[allow(dead_code, reason = "not every suite counts")]
    pub(crate) fn wait_for_times(&self, text: &str, times: usize) -> String {
        self.wait_until(text, |contents| contents.matches(text).count() == times)
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let contents = self.contents();
            if holds(&contents) {
                return self.settled(contents, holds);
            }
            assert!(Instant::now() < deadline, "waited for {what:?}; the screen:\n{contents}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The screen when the frame that begins with this is drawn: the terminal passes it on line by line.
    fn settled(&self, mut contents: String, holds: impl Fn(&str) -> bool) -> String {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            let next = self.contents();
            if next == contents || !holds(&next) {
                break;
            }
            contents = next;
        }
        contents
    }

    /// Changes the size of the terminal, as a person who drags its window.
    pub(crate) fn resize(&self, (lines, columns): (u16, u16)) {
        let mut emulator = self.emulator.lock().unwrap();
        emulator.screen_mut().set_size(lines.try_into().unwrap(), columns.try_into().unwrap());
        self.pty.resize(pty_process::Size::new(lines, columns)).unwrap();
    }

    pub(crate) fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// The process on the terminal.
    #[allow(dead_code, reason = "not every suite stops what runs")]
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// The terminal itself.
    #[allow(dead_code, reason = "not every suite changes its settings")]
    pub(crate) fn terminal(&self) -> &Pty {
        &self.pty
    }

    /// Waits for the end; returns the exit code, the screen, and all that was written.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let code = self.child.wait().unwrap().code();
        self.reader.join().unwrap();
        let contents = {
            let emulator = self.emulator.lock().unwrap();
            let lines: Vec<String> = emulator.screen().contents().lines().map(Into::into).collect();
            lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
        };
        let raw = String::from_utf8(self.raw.lock().unwrap().clone()).unwrap();
        (code, contents, raw)
    }
}
