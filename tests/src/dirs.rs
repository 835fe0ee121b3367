//! Directories of the workspace.

use std::env;
use std::path::{Path, PathBuf};

/// The directory cargo builds into.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir),
        // Cargo takes a relative one from where it was called; tests run elsewhere, but below the same workspace.
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// The root of takopi's sources.
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}
