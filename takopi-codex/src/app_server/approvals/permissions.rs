//! Permissions beyond the sandbox, as codex names them.
//!
//! Read strictly: a shape that is not known here is not read at all.

use serde::Deserialize;
use takopi_core::runner::{Access, FileAccess, FileScope, Network, Permissions};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Profile {
    file_system: Option<FileSystem>,
    network: Option<NetworkProfile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FileSystem {
    entries: Option<Vec<Entry>>,
    // How deep patterns are searched for; it grants nothing.
    #[serde(rename = "globScanMaxDepth")]
    _glob_scan_max_depth: Option<u64>,
    read: Option<Vec<String>>,
    write: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkProfile {
    enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    access: AccessMode,
    path: EntryPath,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum AccessMode {
    Read,
    Write,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, tag = "type", rename_all = "snake_case")]
enum EntryPath {
    Path { path: String },
    GlobPattern { pattern: String },
    Special { value: SpecialPath },
}

// Variants without fields are empty structs: only so are further fields refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
enum SpecialPath {
    Root {},
    Minimal {},
    ProjectRoots { subpath: Option<String> },
    Tmpdir {},
    SlashTmp {},
}

/// The host that a command wants to reach.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkContext {
    host: String,
    protocol: String,
}

impl From<NetworkContext> for Network {
    fn from(context: NetworkContext) -> Self {
        Self::Host { host: context.host, protocol: context.protocol }
    }
}

impl From<Profile> for Permissions {
    fn from(profile: Profile) -> Self {
        let mut files: Vec<FileAccess> = Vec::new();
        // The older form may repeat the entries.
        let mut add = |access, scope| {
            let file = FileAccess::new(access, scope);
            if !files.contains(&file) {
                files.push(file);
            }
        };
        if let Some(system) = profile.file_system {
            for (access, paths) in [(Access::Write, system.write), (Access::Read, system.read)] {
                for path in paths.into_iter().flatten() {
                    add(access, FileScope::Path(path.into()));
                }
            }
            for entry in system.entries.into_iter().flatten() {
                let access = match entry.access {
                    AccessMode::Read => Access::Read,
                    AccessMode::Write => Access::Write,
                    AccessMode::Deny => Access::Deny,
                };
                add(access, scope(entry.path));
            }
        }
        let network = profile.network.and_then(|network| network.enabled);
        let network = (network == Some(true)).then_some(Network::All);
        Self::default().files(files).network(network)
    }
}

fn scope(path: EntryPath) -> FileScope {
    let special = match path {
        EntryPath::Path { path } => return FileScope::Path(path.into()),
        EntryPath::GlobPattern { pattern } => return FileScope::Glob(pattern),
        EntryPath::Special { value } => value,
    };
    FileScope::Special(match special {
        SpecialPath::Root {} => "the whole file system".to_owned(),
        SpecialPath::Minimal {} => "what programs need to run".to_owned(),
        SpecialPath::ProjectRoots { subpath: None } => "the project's directories".to_owned(),
        SpecialPath::ProjectRoots { subpath: Some(path) } => {
            format!("{path} in the project's directories")
        }
        SpecialPath::Tmpdir {} => "the temporary directory".to_owned(),
        SpecialPath::SlashTmp {} => "/tmp".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Option<Vec<String>> {
        let profile = Profile::deserialize(value).ok()?;
        Some(Permissions::from(profile).lines())
    }

    #[test]
    fn permissions_are_listed_once_each() {
        let wanted = json!({
            "fileSystem": {
                "write": ["/srv"],
                "read": null,
                "globScanMaxDepth": 3,
                "entries": [
                    { "access": "write", "path": { "type": "path", "path": "/srv" } },
                    { "access": "read", "path": { "type": "glob_pattern", "pattern": "**/*.key" } },
                    { "access": "write", "path": { "type": "special", "value": { "kind": "root" } } },
                    { "access": "deny", "path": { "type": "path", "path": "/etc" } },
                ],
            },
            "network": { "enabled": true },
        });
        assert_eq!(
            read(&wanted).unwrap(),
            [
                "write /srv",
                "read everything that matches **/*.key",
                "write the whole file system",
                "no access to /etc",
                "network access",
            ]
        );
        assert_eq!(read(&json!({})).unwrap(), Vec::<String>::new());
        assert!(read(&json!({ "network": { "enabled": false } })).unwrap().is_empty());
    }

    #[test]
    fn a_shape_that_is_not_known_is_not_read() {
        for odd in [
            json!({ "odd": 1 }),
            json!({ "network": { "enabled": true, "hosts": ["*"] } }),
            json!({ "network": true }),
            json!({ "fileSystem": { "write": "/srv" } }),
            json!({ "fileSystem": { "execute": ["/srv"] } }),
            json!({ "fileSystem": { "entries": [{ "access": "own", "path": { "type": "path", "path": "/" } }] } }),
            json!({ "fileSystem": { "entries": [
                { "access": "read", "path": { "type": "special", "value": { "kind": "root", "x": 1 } } },
            ] } }),
            json!({ "fileSystem": { "entries": [
                { "access": "read", "path": { "type": "special", "value": { "kind": "unknown", "path": "x" } } },
            ] } }),
            json!([]),
            json!("all"),
        ] {
            assert_eq!(read(&odd), None, "{odd}");
        }
    }
}
