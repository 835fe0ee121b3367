//! Programs that a test writes and executes at once.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes a script, with its directory, so that it can be executed at once.
///
/// A process of its own writes it: this one may fork for another test while the file is open, the child holds a copy of the
/// descriptor until it executes, and a file that is open for writing cannot be executed ("Text file busy").
pub fn write_executable(path: &Path, script: &str) {
    let directory = path.parent().expect("a program is in a directory");
    fs::create_dir_all(directory).expect("the directory of a program can be created");
    let write = r#"printf %s "$1" >"$0" && chmod 755 "$0""#;
    let written = Command::new("sh").args(["-c", write]).arg(path).arg(script).status();
    assert!(written.is_ok_and(|status| status.success()), "cannot write {}", path.display());
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_written_can_be_executed_while_others_fork() {
        let directory = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = directory.path().join(format!("bin/{writer}"));
                scope.spawn(move || {
                    for round in 0..100 {
                        write_executable(&path, &format!("#!/bin/sh\necho \"$1 '%s' {round}\"\n"));
                        let output = Command::new(&path).arg("one").output().unwrap();
                        assert_eq!(output.stdout, format!("one '%s' {round}\n").as_bytes());
                    }
                });
            }
        });
    }
}
