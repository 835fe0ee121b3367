//! Rules: what may be done without asking anybody.
//!
//! A rule allows; nothing forbids. What no rule allows goes to [`Rules::otherwise`], and is declined
//! if there is nobody. A rule says yes only where it is certain what is asked:
//! - a command is one program with its words, nothing that a shell would make more of, and asks for
//!   nothing besides (wider permissions, the network);
//! - a path is looked at where it really leads, symbolic links and all;
//! - of an MCP server only the question whether its tool may be called, not one that wants something
//!   filled in.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::decision_of;
use super::words::words;
use crate::runner::{ApprovalHandler, ApprovalKind, ApprovalRequest, Decision, Reply};

/// Accepts by rule.
///
/// ```
/// use takopi_core::approvals::Rules;
///
/// let rules = Rules::new()
///     .command("git status")
///     .command("cargo test")
///     .writes_below("/srv/project")
///     .mcp_server("tickets");
/// ```
#[derive(Clone, Default)]
#[must_use = "rules do nothing until they are given to a request"]
pub struct Rules {
    commands: Vec<Vec<String>>,
    directories: Vec<PathBuf>,
    servers: Vec<String>,
    otherwise: Option<Arc<dyn ApprovalHandler>>,
}

impl Rules {
    /// No rule: everything is left to [`Rules::otherwise`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows commands that begin with these words: `git log` allows `git log -3`, not `git logs`.
    /// The rule knows nothing of what further words do: allow what is harmless with any of them.
    /// A prefix that is no plain command allows nothing.
    pub fn command(mut self, prefix: &str) -> Self {
        self.commands.extend(words(prefix).filter(|words| !words.is_empty()));
        self
    }

    /// Allows changes to files below this directory.
    pub fn writes_below(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directories.push(directory.into());
        self
    }

    /// Allows calls of this MCP server's tools. Meant for servers that the host itself registered.
    pub fn mcp_server(mut self, name: impl Into<String>) -> Self {
        self.servers.push(name.into());
        self
    }

    /// Asks this handler for what no rule allows.
    pub fn otherwise(mut self, handler: impl ApprovalHandler + 'static) -> Self {
        self.otherwise = Some(Arc::new(handler));
        self
    }

    fn allows_command(&self, request: &ApprovalRequest) -> Option<String> {
        let more = ["additionalPermissions", "networkApprovalContext"];
        if more.iter().any(|key| request.detail.get(key).is_some_and(|value| !value.is_null())) {
            return None;
        }
        let said = words(&request.title)?;
        let rule = self.commands.iter().find(|prefix| said.starts_with(prefix))?;
        Some(format!("a rule allows `{}`", rule.join(" ")))
    }

    fn allows_server(&self, request: &ApprovalRequest) -> Option<String> {
        let server = request.detail.get("serverName")?.as_str()?;
        let filled_in = request.detail.get("requestedSchema").and_then(|schema| {
            let fields = schema.get("properties")?.as_object()?;
            Some(!fields.is_empty())
        });
        if filled_in == Some(true) || request.detail.get("mode").is_some_and(|mode| mode == "url") {
            return None;
        }
        let known = self.servers.iter().any(|known| known == server);
        known.then(|| format!("a rule allows the tools of `{server}`"))
    }

    /// The files a patch changes; `None` if that is not certain.
    fn files(request: &ApprovalRequest) -> Option<Vec<PathBuf>> {
        let changes = request.detail.get("changes")?.as_array()?;
        let text = |value: &Value| value.as_str().map(|path| request.cwd.join(path));
        let mut files = Vec::new();
        for change in changes {
            files.push(text(change.get("path")?)?);
            if let Some(moved) = change.get("move_path").filter(|moved| !moved.is_null()) {
                files.push(text(moved)?);
            }
        }
        // The agent may ask for a whole directory for the rest of the session.
        if let Some(root) = request.detail.get("grantRoot").filter(|root| !root.is_null()) {
            files.push(text(root)?);
        }
        (!files.is_empty()).then_some(files)
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules")
            .field("commands", &self.commands)
            .field("directories", &self.directories)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

impl ApprovalHandler for Rules {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        decision_of(self.reply(request))
    }

    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        let yes = match request.kind {
            ApprovalKind::Command => self.allows_command(&request),
            ApprovalKind::Elicitation => self.allows_server(&request),
            _ => None,
        };
        let files = (request.kind == ApprovalKind::FileChange && !self.directories.is_empty())
            .then(|| Self::files(&request))
            .flatten();
        let (directories, otherwise) = (self.directories.clone(), self.otherwise.clone());
        Box::pin(async move {
            let yes = match (yes, files) {
                (Some(yes), _) => Some(yes),
                // File systems can be slow.
                (None, Some(files)) => {
                    let allowed =
                        tokio::task::spawn_blocking(move || all_below(&files, &directories));
                    allowed.await.ok().flatten()
                }
                (None, None) => None,
            };
            match (yes, otherwise) {
                (Some(why), _) => Reply::from(Decision::Accept).because(why),
                (None, Some(otherwise)) => otherwise.reply(request).await,
                (None, None) => Reply::from(Decision::Decline).because("no rule allows it"),
            }
        })
    }
}

/// Why all of these files may be changed, if they may.
fn all_below(files: &[PathBuf], directories: &[PathBuf]) -> Option<String> {
    let directories: Vec<(&PathBuf, PathBuf)> = directories
        .iter()
        .filter_map(|directory| Some((directory, directory.canonicalize().ok()?)))
        .collect();
    let mut why = None;
    for file in files {
        let real = real_path(file)?;
        let (named, _) = directories.iter().find(|(_, directory)| real.starts_with(directory))?;
        why = Some(format!("a rule allows writes below {}", named.display()));
    }
    why
}

/// Where a path leads, though its end may not be there yet.
fn real_path(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let there = path.ancestors().find(|part| part.symlink_metadata().is_ok())?;
    let rest = path.strip_prefix(there).ok()?;
    let there = there.canonicalize().ok()?;
    // Joining nothing would add a slash.
    Some(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::approvals::accept_all;

    fn request(kind: ApprovalKind, title: &str, detail: Value) -> ApprovalRequest {
        let mut request = ApprovalRequest::new("lab".into(), kind, title, "/".into());
        if let Value::Object(detail) = detail {
            request.detail = detail.into();
        }
        request
    }

    async fn yes(rules: &Rules, request: ApprovalRequest) -> bool {
        rules.decide(request).await == Decision::Accept
    }

    #[tokio::test]
    async fn commands_are_allowed_by_their_first_words() {
        let rules = Rules::new().command("git log").command("cargo test").command("a; b");
        for (command, allowed) in [
            ("git log", true),
            ("git log -3 'a b'", true),
            ("git logs", false),
            ("git", false),
            ("git log; rm -rf x", false),
            ("GIT_PAGER=x git log", false),
            ("cargo test --all", true),
            ("a", false),
        ] {
            let asked = request(ApprovalKind::Command, command, json!({}));
            assert_eq!(yes(&rules, asked).await, allowed, "{command}");
        }
        let more = json!({ "additionalPermissions": { "network": { "enabled": true } } });
        assert!(!yes(&rules, request(ApprovalKind::Command, "git log", more)).await);
        let none = json!({ "additionalPermissions": null });
        assert!(yes(&rules, request(ApprovalKind::Command, "git log", none)).await);
    }

    #[tokio::test]
    async fn files_are_allowed_where_they_really_are() {
        let directory = tempfile::tempdir().unwrap();
        let allowed = directory.path().join("allowed");
        std::fs::create_dir(&allowed).unwrap();
        std::os::unix::fs::symlink("/etc", allowed.join("out")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", allowed.join("dangling")).unwrap();
        let rules = Rules::new().writes_below(&allowed);
        let asked = |paths: &[&str]| {
            let changes: Vec<Value> = paths.iter().map(|path| json!({ "path": path })).collect();
            let mut asked = request(ApprovalKind::FileChange, "", json!({ "changes": changes }));
            asked.cwd.clone_from(&allowed);
            asked
        };
        for (paths, expected) in [
            (&["new.txt"][..], true),
            (&["deep/er/new.txt"], true),
            (&["new.txt", "/etc/passwd"], false),
            (&["../new.txt"], false),
            (&["out/passwd"], false),
            (&["dangling"], false),
            (&[], false),
        ] {
            assert_eq!(yes(&rules, asked(paths)).await, expected, "{paths:?}");
        }
        let mut moved = asked(&["new.txt"]);
        let mut changes = moved.detail["changes"].clone();
        changes[0]["move_path"] = json!("/etc/new.txt");
        moved.detail.insert("changes", changes);
        assert!(!yes(&rules, moved).await);
        let mut whole = asked(&["new.txt"]);
        whole.detail.insert("grantRoot".to_owned(), json!("/"));
        assert!(!yes(&rules, whole).await);
    }

    #[tokio::test]
    async fn servers_are_allowed_by_name_unless_something_is_to_be_filled_in() {
        let rules = Rules::new().mcp_server("lab");
        let asked = |detail| request(ApprovalKind::Elicitation, "", detail);
        let empty = json!({ "type": "object", "properties": {} });
        let form = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        for (detail, expected) in [
            (json!({ "serverName": "lab", "requestedSchema": empty }), true),
            (json!({ "serverName": "other", "requestedSchema": empty }), false),
            (json!({ "serverName": "lab", "requestedSchema": form }), false),
            (json!({ "serverName": "lab", "mode": "url" }), false),
            (json!({}), false),
        ] {
            assert_eq!(yes(&rules, asked(detail.clone())).await, expected, "{detail}");
        }
    }

    #[tokio::test]
    async fn what_no_rule_allows_is_declined_or_left_to_another() {
        let asked = || request(ApprovalKind::Permissions, "network", json!({}));
        let said = Rules::new().reply(asked()).await;
        assert_eq!(said.to_string(), "declined: no rule allows it");
        assert!(yes(&Rules::new().otherwise(accept_all()), asked()).await);
    }
}
