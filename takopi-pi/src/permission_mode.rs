//! What pi's agent may do without asking for approval. pi itself never asks: takopi's extension does.

/// The modes that `permission_mode` may name.
pub const PERMISSION_MODES: &[&str] = &["default", "acceptEdits", "bypassPermissions"];

/// Tools that only read.
const READING: [&str; 4] = ["read", "grep", "find", "ls"];
/// Those, and tools that change files.
const EDITING: [&str; 6] = ["read", "grep", "find", "ls", "edit", "write"];

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PermissionMode {
    /// Everything but reading.
    #[default]
    Default,
    /// Everything but reading and changing files.
    AcceptEdits,
    /// Nothing, as in pi itself.
    Bypass,
}

impl PermissionMode {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "default" | "manual" => Ok(Self::Default),
            "acceptEdits" => Ok(Self::AcceptEdits),
            "bypassPermissions" => Ok(Self::Bypass),
            _ => {
                let known = PERMISSION_MODES.join(", ");
                Err(format!("unknown permission mode `{text}`; pi has {known}"))
            }
        }
    }

    /// The tools that are never asked about.
    pub(crate) fn free_tools(self) -> &'static [&'static str] {
        match self {
            Self::Default => &READING,
            Self::AcceptEdits | Self::Bypass => &EDITING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_known_by_name() {
        for mode in PERMISSION_MODES {
            assert!(PermissionMode::parse(mode).is_ok(), "{mode}");
        }
        let error = PermissionMode::parse("plan").unwrap_err();
        assert!(error.starts_with("unknown permission mode `plan`; pi has default"), "{error}");
        assert!(!PermissionMode::Default.free_tools().contains(&"bash"));
        assert!(!PermissionMode::AcceptEdits.free_tools().contains(&"bash"));
    }
}
