//! Signal dispositions of the commands that tests start.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigHandler, Signal, signal};

/// Starts the command with default dispositions for the signals that end programs.
///
/// The parent of the tests may ignore some of them (`nohup` ignores SIGHUP, a shell SIGINT in its
/// background), and a child would inherit that.
pub fn reset(command: &mut Command) {
    // SAFETY: the closure makes system calls only.
    unsafe {
        command.pre_exec(|| {
            for ends in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
                signal(ends, SigHandler::SigDfl)?;
            }
            Ok(())
        });
    }
}
