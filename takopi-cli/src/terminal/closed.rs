//! Whether takopi was started with its standard output closed (`>&-`).
//!
//! Before `main`, Rust opens `/dev/null` in place of a standard stream that is closed, and an answer would vanish
//! without an error. In `main` that cannot be told from a standard output that was meant to be `/dev/null`: Python
//! and Node open it for reading and writing too, just as Rust does. So this looks earlier, when the program is loaded.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the loader, before the runtime of Rust exists.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the call reads a flag of a descriptor, whether that is open or not.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed when takopi was started.
pub(super) fn output_was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
