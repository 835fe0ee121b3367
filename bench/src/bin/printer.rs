//! A codex that prints a recording: what takopi reads when the engine itself costs nothing.
//!
//! Prints the file named by `PRINTER_FILE` and ends; answers `--version` as codex does.

use std::fs::File;
use std::io::{self, Write};

fn main() -> io::Result<()> {
    let mut stdout = io::stdout();
    if std::env::args().any(|arg| arg == "--version") {
        return stdout.write_all(b"codex-cli 0.166.0\n");
    }
    let path = std::env::var_os("PRINTER_FILE").ok_or(io::ErrorKind::NotFound)?;
    io::copy(&mut File::open(path)?, &mut stdout)?;
    Ok(())
}
