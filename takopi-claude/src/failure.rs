//! Why a turn failed, for machines and for people.

use takopi_core::model::Reason;

/// Why a process failed that printed nothing on stdout, if its stderr is unambiguous; with a text for
/// people.
pub(crate) fn on_stderr(stderr: &str) -> Option<(Reason, String)> {
    let _ = stderr;
    None
}

/// The end of a run whose login was refused.
pub(crate) fn authentication() -> takopi_core::runner::RunError {
    takopi_core::runner::RunError::new(
        Reason::Auth,
        "the login was refused (run `claude auth login`, or check ANTHROPIC_API_KEY)",
    )
}
