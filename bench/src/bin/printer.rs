//! A codex that prints a recording: what takopi reads when the engine itself costs nothing.
//!
//! Every printer is a new session, named after its process; behind that it prints the file named by
//! `PRINTER_FILE` and ends. Answers `--version` as codex does. Uses the standard library alone, so
//! that it starts as fast as a program can.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

fn main() -> io::Result<()> {
    // Not `Stdout`, which would cut what it is given into lines and small writes.
    let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    if std::env::args().any(|arg| arg == "--version") {
        return stdout.write_all(b"codex-cli 0.166.0\n");
    }
    let path = std::env::var_os("PRINTER_FILE").ok_or(io::ErrorKind::NotFound)?;
    let session = format!("01a1e21b-26e5-7eb0-9d27-{:012x}", std::process::id());
    writeln!(stdout, r#"{{"type":"thread.started","thread_id":"{session}"}}"#)?;
    io::copy(&mut File::open(path)?, &mut stdout)?;
    Ok(())
}
