//! What Claude Code's agent may do without asking for approval.

/// The modes that `permission_mode` may name, as Claude Code spells them.
pub const PERMISSION_MODES: &[&str] =
    &["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto"];

/// The mode as Claude Code is given it: `manual` is another name of `default`, which older releases do not
/// know.
pub(crate) fn permission_mode(text: &str) -> Result<&'static str, String> {
    let wanted = if text == "manual" { "default" } else { text };
    let known = PERMISSION_MODES.iter().find(|mode| **mode == wanted);
    known.copied().ok_or_else(|| {
        let known = PERMISSION_MODES.join(", ");
        format!("unknown permission mode `{text}`; claude has {known}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_known_by_name_and_manual_is_the_default() {
        for mode in PERMISSION_MODES {
            assert_eq!(permission_mode(mode), Ok(*mode));
        }
        assert_eq!(permission_mode("manual"), Ok("default"));
        for mode in ["", "Plan", "accept-edits", "plan "] {
            let error = permission_mode(mode).unwrap_err();
            assert!(error.starts_with(&format!("unknown permission mode `{mode}`; ")), "{error}");
        }
    }
}
