//! The extension that takopi passes to pi: approvals, the host's tools and its MCP servers.
//!
//! It is written to a private file that is named by its content, so that equal processes share it and
//! nobody else can change what a process is about to load.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use takopi_core::mcp::McpServer;
use takopi_core::tools::{HostTool, HostTools};
use uuid::Uuid;

use crate::permission_mode::PermissionMode;

const SOURCE: &str = include_str!("extension.js");
/// The key of the status by which the extension reports that it is loaded.
pub(crate) const STATUS_KEY: &str = "takopi";

/// The text of an extension, and the sign by which it reports that it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extension {
    source: String,
    pub(crate) sign: String,
}

impl Extension {
    pub(crate) fn new(mode: PermissionMode, tools: &HostTools, servers: &[McpServer]) -> Self {
        let mut setup = json!({
            "asks": mode != PermissionMode::Bypass,
            "free": mode.free_tools(),
            "tools": tools.iter().map(tool).collect::<Vec<_>>(),
            "servers": servers.iter().map(server).collect::<Vec<_>>(),
        });
        let sign = Uuid::new_v5(&Uuid::NAMESPACE_OID, setup.to_string().as_bytes()).to_string();
        setup["sign"] = sign.as_str().into();
        Self { source: SOURCE.replacen("TAKOPI_SETUP", &setup.to_string(), 1), sign }
    }

    /// Writes it below a directory, unless it is there. Blocks on the file system.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        let directory = directory.join("pi");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, self.source.as_bytes());
        let path = directory.join(format!("takopi-{name}.js"));
        if fs::read(&path).is_ok_and(|written| written == self.source.as_bytes()) {
            return Ok(path);
        }
        // Another process may be loading it: it appears in one piece.
        let draft = directory.join(format!(".{}.js", Uuid::new_v4()));
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(self.source.as_bytes())?;
        fs::rename(&draft, &path)?;
        Ok(path)
    }
}

fn tool(tool: &HostTool) -> Value {
    json!({
        "name": tool.name(),
        "description": tool.description(),
        "parameters": tool.schema(),
    })
}

fn server(server: &McpServer) -> Value {
    let env: serde_json::Map<String, Value> =
        server.env.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    json!({
        "name": server.name,
        "command": server.command.to_string_lossy(),
        "args": server.args,
        "env": env,
        "inherits": server.inherits,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_private_and_named_by_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let none = HostTools::default();
        let asking = Extension::new(PermissionMode::Default, &none, &[]);
        let path = asking.write(dir.path()).unwrap();
        assert_eq!(asking.write(dir.path()).unwrap(), path);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let other = Extension::new(PermissionMode::Bypass, &none, &[]);
        assert_ne!(other.write(dir.path()).unwrap(), path);
        fs::write(&path, "changed").unwrap();
        asking.write(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), asking.source);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn the_setup_is_part_of_the_source() {
        let server = McpServer::new("lab", "/opt/lab").unwrap().arg("-x").inherit("TOKEN");
        let extension =
            Extension::new(PermissionMode::AcceptEdits, &HostTools::default(), &[server]);
        assert!(!extension.source.contains("TAKOPI_SETUP"));
        assert!(extension.source.contains(&extension.sign));
        assert!(extension.source.contains(r#""inherits":["TOKEN"]"#));
    }
}
