//! Rules: what is accepted without a question to a person.
//!
//! A rule allows; nothing forbids. What no rule allows goes to [`Rules::otherwise`], and is declined
//! if there is no such handler. A rule accepts only what it fully understands:
//! - nothing of the request is [unrecognized](ApprovalRequest::unrecognized);
//! - a command is one program with its arguments, nothing that a shell would make more of, and asks
//!   for no further permissions;
//! - the diff of a patch is known and whole, and every path is allowed where it really leads,
//!   symbolic links included;
//! - of an MCP server only calls of its tools are allowed, not its forms.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use super::decision_of;
use crate::runner::{
    ApprovalHandler, ApprovalRequest, Command, Decision, Excerpt, FileChange, Location, Patch,
    Question, Reply, ToolCall, real_path, words,
};

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

    fn allows_command(&self, command: &Command) -> Option<String> {
        if command.is_input || !command.extra.is_empty() {
            return None;
        }
        let words = command.words.as_ref()?;
        let rule = self.commands.iter().find(|prefix| words.starts_with(prefix))?;
        Some(format!("a rule allows `{}`", rule.join(" ")))
    }

    fn allows_tool(&self, call: &ToolCall) -> Option<String> {
        let server = call.server.as_ref()?;
        let known = self.servers.contains(server);
        known.then(|| format!("a rule allows the tools of `{server}`"))
    }

    /// The places that a patch writes to; `None` if not all of it is known.
    fn places(patch: &Patch) -> Option<Vec<PathBuf>> {
        let whole = |file: &FileChange| file.diff.as_ref().is_some_and(Excerpt::is_whole);
        if patch.files.is_empty() || !patch.files.iter().all(whole) {
            return None;
        }
        Some(patch.locations().flat_map(Location::paths).map(Path::to_owned).collect())
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
        let (mut yes, mut places) = (None, None);
        // What is not understood may grant anything.
        if request.is_understood() && request.offers(Decision::Accept) {
            match &request.question {
                Question::Command(command) => yes = self.allows_command(command),
                Question::ToolCall(call) => yes = self.allows_tool(call),
                Question::Patch(patch) if !self.directories.is_empty() => {
                    places = Self::places(patch);
                }
                _ => {}
            }
        }
        let (directories, otherwise) = (self.directories.clone(), self.otherwise.clone());
        Box::pin(async move {
            if let Some(places) = places {
                // File systems can be slow.
                let allowed = tokio::task::spawn_blocking(move || all_below(&places, &directories));
                yes = allowed.await.ok().flatten();
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approvals::accept_all;
    use crate::runner::{
        Access, ChangeKind, FileAccess, FileScope, Form, Location, Network, Permissions,
        Unrecognized,
    };

    fn request(question: Question) -> ApprovalRequest {
        ApprovalRequest::new("lab".into(), question, "/".into())
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
            ("", false),
        ] {
            assert_eq!(
                yes(&rules, request(Question::command(command))).await,
                allowed,
                "{command}"
            );
        }
    }

    #[test]
    fn rules_are_logged_as_they_were_set() {
        let rules = Rules::new().command("git log").writes_below("/srv").mcp_server("lab");
        let logged = format!("{rules:?}");
        for part in [r#"["git", "log"]"#, r#""/srv""#, r#""lab""#] {
            assert!(logged.contains(part), "{logged}");
        }
    }

    #[tokio::test]
    async fn a_command_that_asks_for_more_is_not_allowed() {
        let rules = Rules::new().command("git log");
        let log = || Command::new("git log");
        let network = Permissions::default().network(Some(Network::All));
        let write = FileAccess::new(Access::Write, FileScope::Path("/".into()));
        let files = Permissions::default().files(vec![write]);
        for more in [log().extra(network), log().extra(files), log().is_input(true)] {
            assert!(!yes(&rules, request(Question::Command(more.clone()))).await, "{more:?}");
        }
        assert!(yes(&rules, request(Question::Command(log()))).await);
    }

    #[tokio::test]
    async fn nothing_with_an_unrecognized_part_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let rules = Rules::new().command("ls").mcp_server("lab").writes_below(directory.path());
        let change = FileChange::new(ChangeKind::Add, "a", directory.path()).diff("a");
        for question in [
            Question::command("ls"),
            Question::ToolCall(ToolCall::default().server(Some("lab".to_owned()))),
            Question::Patch(Patch::new([change])),
        ] {
            let mut asked = request(question);
            assert!(yes(&rules, asked.clone()).await, "{asked:?}");
            asked.unrecognized.push(Unrecognized::new("wider", "true".into()));
            assert!(!yes(&rules, asked.clone()).await, "{asked:?}");
            let next = rules.clone().otherwise(accept_all());
            assert!(yes(&next, asked).await, "the next handler decides");
        }
    }

    #[tokio::test]
    async fn files_are_allowed_where_they_really_are() {
        let directory = tempfile::tempdir().unwrap();
        let allowed = directory.path().join("allowed");
        std::fs::create_dir(&allowed).unwrap();
        std::os::unix::fs::symlink("/etc", allowed.join("out")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", allowed.join("dangling")).unwrap();
        let rules = Rules::new().writes_below(&allowed);
        let change =
            |path: &str| FileChange::new(ChangeKind::Update, path, &allowed).diff("-a\n+b\n");
        let asked = |patch: Patch| request(Question::Patch(patch));
        for (paths, expected) in [
            (&["new.txt"][..], true),
            (&["deep/er/new.txt"], true),
            (&["new.txt", "/etc/passwd"], false),
            (&["../new.txt"], false),
            (&["out/passwd"], false),
            (&["deep/../new.txt"], true),
            (&["out/../new.txt"], false),
            (&["dangling"], false),
            (&[], false),
        ] {
            let patch = Patch::new(paths.iter().map(|path| change(path)));
            assert_eq!(yes(&rules, asked(patch)).await, expected, "{paths:?}");
        }
        let moved = change("new.txt").moved_to(Some(Location::new("/etc/new.txt", &allowed)));
        assert!(!yes(&rules, asked(Patch::new([moved]))).await);
        let root = Some(Location::new("/", &allowed));
        assert!(!yes(&rules, asked(Patch::new([change("new.txt")]).grant_root(root))).await);
    }

    #[tokio::test]
    async fn a_patch_whose_diff_is_missing_or_truncated_is_not_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let rules = Rules::new().writes_below(directory.path());
        let change = || FileChange::new(ChangeKind::Add, "a", directory.path());
        let truncated = change().diff(Excerpt::new("+a\n+b\n", 3));
        for (change, expected) in
            [(change(), false), (truncated, false), (change().diff("+a"), true)]
        {
            let asked = request(Question::Patch(Patch::new([change.clone()])));
            assert_eq!(yes(&rules, asked).await, expected, "{change:?}");
        }
    }

    #[tokio::test]
    async fn servers_are_allowed_by_name_and_for_tool_calls_alone() {
        let rules = Rules::new().mcp_server("lab");
        let call = |server: Option<&str>| {
            Question::ToolCall(ToolCall::default().server(server.map(str::to_owned)))
        };
        let form = Form::default().server("lab".to_owned());
        for (question, expected) in [
            (call(Some("lab")), true),
            (call(Some("other")), false),
            (call(None), false),
            (Question::Form(form), false),
        ] {
            assert_eq!(yes(&rules, request(question.clone())).await, expected, "{question:?}");
        }
    }

    #[tokio::test]
    async fn what_no_rule_allows_is_declined_or_passed_on() {
        let asked = || request(Question::Permissions(Permissions::default()));
        let said = Rules::new().reply(asked()).await;
        assert_eq!(said.to_string(), "declined: no rule allows it");
        assert!(yes(&Rules::new().otherwise(accept_all()), asked()).await);
    }
}
