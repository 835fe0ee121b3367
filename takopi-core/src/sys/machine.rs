//! The name of this machine.

use std::sync::OnceLock;

/// The host name, or `localhost` if it cannot be read. Read once.
pub(crate) fn machine_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned())
    })
}
