//! What an agent asks, as types. The same for every engine.
//!
//! An engine translates a request of its agent into a [`Question`]. Whatever it cannot translate
//! completely goes into [`ApprovalRequest::unrecognized`](super::ApprovalRequest::unrecognized), so
//! that nothing that a yes would grant is lost on the way.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

use super::location::Location;
use super::words::words;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Question {
    /// May this command run?
    Command(Command),
    /// May these files be changed?
    Patch(Patch),
    /// May the agent have these permissions from now on?
    Permissions(Permissions),
    /// May this tool be called?
    ToolCall(ToolCall),
    /// A tool server wants a form filled in, or an address visited.
    Form(Form),
    /// The agent has questions for the user.
    Questions(Vec<UserQuestion>),
    /// May the agent carry out this plan?
    Plan(Excerpt),
    /// A request that the engine could not read.
    Unknown(Unknown),
}

/// The kind of a [`Question`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ApprovalKind {
    /// To run a command.
    Command,
    /// To change files.
    FileChange,
    /// For wider permissions.
    Permissions,
    /// To call a tool.
    ToolCall,
    /// To fill in a form of a tool server.
    Form,
    /// Questions for the user.
    UserInput,
    /// To carry out a plan.
    Plan,
    /// Something that the engine could not read.
    Unknown,
}

impl ApprovalKind {
    /// The name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::FileChange => "file_change",
            Self::Permissions => "permissions",
            Self::ToolCall => "tool_call",
            Self::Form => "form",
            Self::UserInput => "user_input",
            Self::Plan => "plan",
            Self::Unknown => "unknown",
        }
    }
}

impl Question {
    /// A command that asks for nothing else.
    pub fn command(command: impl Into<String>) -> Self {
        Self::Command(Command::new(command))
    }

    /// Its kind.
    pub fn kind(&self) -> ApprovalKind {
        match self {
            Self::Command(_) => ApprovalKind::Command,
            Self::Patch(_) => ApprovalKind::FileChange,
            Self::Permissions(_) => ApprovalKind::Permissions,
            Self::ToolCall(_) => ApprovalKind::ToolCall,
            Self::Form(_) => ApprovalKind::Form,
            Self::Questions(_) => ApprovalKind::UserInput,
            Self::Plan(_) => ApprovalKind::Plan,
            Self::Unknown(_) => ApprovalKind::Unknown,
        }
    }
}

/// The beginning of a text that may be too long to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Excerpt {
    /// What was kept.
    pub text: String,
    /// How many bytes were left out at the end.
    pub omitted: usize,
}

impl Excerpt {
    /// At most `max` bytes of a text.
    pub fn new(text: &str, max: usize) -> Self {
        let kept = &text[..text.floor_char_boundary(max)];
        Self { text: kept.to_owned(), omitted: text.len() - kept.len() }
    }

    /// Nothing of a text of so many bytes. Never whole.
    pub fn left_out(bytes: usize) -> Self {
        Self { text: String::new(), omitted: bytes.max(1) }
    }

    /// Whether nothing was left out.
    pub fn is_whole(&self) -> bool {
        self.omitted == 0
    }
}

impl From<&str> for Excerpt {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), omitted: 0 }
    }
}

/// A command, and what it asks for besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Command {
    /// As a shell would get it.
    pub command: String,
    /// The program and its arguments; `None` if a shell would do more with it than run one program
    /// (operators, substitutions, redirections, globs).
    pub words: Option<Vec<String>>,
    /// Whether it is input for a command that already runs.
    pub is_input: bool,
    /// Permissions that this command would get in addition.
    pub extra: Permissions,
}

impl Command {
    /// A command that asks for nothing else.
    pub fn new(command: impl Into<String>) -> Self {
        let command = command.into();
        let words = words(&command).filter(|words| !words.is_empty());
        Self { command, words, is_input: false, extra: Permissions::default() }
    }
}

/// Changes to files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Patch {
    /// The files, as far as they are known. None if the engine did not get to know them.
    pub files: Vec<FileChange>,
    /// A directory below which the agent wants to write without asking again.
    pub grant_root: Option<Location>,
}

impl Patch {
    /// A patch of these files.
    pub fn new(files: impl IntoIterator<Item = FileChange>) -> Self {
        Self { files: files.into_iter().collect(), grant_root: None }
    }

    /// Every place that would be written to.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        let files = self.files.iter().flat_map(|file| [Some(&file.path), file.moved_to.as_ref()]);
        files.flatten().chain(&self.grant_root)
    }

    /// Looks up where the paths lead. Blocks on the file system.
    pub(crate) fn resolve(&mut self, cwd: &Path) {
        let files = self.files.iter_mut();
        let paths = files.flat_map(|file| [Some(&mut file.path), file.moved_to.as_mut()]).flatten();
        paths.chain(&mut self.grant_root).for_each(|path| path.resolve(cwd));
    }
}

/// What happens to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileChange {
    /// The file.
    pub path: Location,
    /// What happens to it.
    pub kind: ChangeKind,
    /// Where it is moved to.
    pub moved_to: Option<Location>,
    /// The diff, or the content of a new file; `None` if the engine did not get to know it.
    pub diff: Option<Excerpt>,
}

impl FileChange {
    /// A change whose diff is not known.
    pub fn new(kind: ChangeKind, path: impl AsRef<Path>, cwd: &Path) -> Self {
        Self { path: Location::new(path, cwd), kind, moved_to: None, diff: None }
    }

    /// With its diff.
    pub fn diff(mut self, diff: impl Into<Excerpt>) -> Self {
        self.diff = Some(diff.into());
        self
    }
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It is created.
    Add,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// Not known.
    Unknown,
}

impl ChangeKind {
    /// The name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Unknown => "change",
        }
    }
}

/// Permissions beyond those that the agent has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Permissions {
    /// On the file system.
    pub files: Vec<FileAccess>,
    /// On the network.
    pub network: Option<Network>,
}

impl Permissions {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.network.is_none()
    }

    /// One line each: `write /srv`, `network access`.
    pub fn lines(&self) -> Vec<String> {
        let files = self.files.iter().map(ToString::to_string);
        files.chain(self.network.as_ref().map(ToString::to_string)).collect()
    }
}

/// Access to some part of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileAccess {
    /// Which access.
    pub access: Access,
    /// To what.
    pub scope: FileScope,
}

impl FileAccess {
    /// Access to a part of the file system.
    pub fn new(access: Access, scope: FileScope) -> Self {
        Self { access, scope }
    }
}

impl fmt::Display for FileAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.access {
            Access::Read => "read ",
            Access::Write => "write ",
            Access::Deny => "no access to ",
        })?;
        match &self.scope {
            FileScope::Path(path) => write!(f, "{}", path.display()),
            FileScope::Glob(pattern) => write!(f, "everything that matches {pattern}"),
            FileScope::Special(name) => f.write_str(name),
        }
    }
}

/// Which access to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Access {
    /// To read.
    Read,
    /// To read and write.
    Write,
    /// None at all.
    Deny,
}

/// A part of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FileScope {
    /// A file, or a directory with everything below it.
    Path(PathBuf),
    /// What matches a pattern.
    Glob(String),
    /// A named place, as text: `the whole file system`.
    Special(String),
}

/// Access to the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Network {
    /// All of it.
    All,
    /// One host.
    Host {
        /// Its name.
        host: String,
        /// How it is reached: `https`, `socks5Tcp`, …
        protocol: String,
    },
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("network access"),
            Self::Host { host, protocol } => write!(f, "network access to {host} ({protocol})"),
        }
    }
}

/// The call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The MCP server that offers it; `None` for a tool of the agent itself.
    pub server: Option<String>,
    /// Its name, if the agent sends it apart from the message.
    pub tool: Option<String>,
    /// How the agent puts the question.
    pub message: Option<String>,
    /// The description of the tool.
    pub description: Option<String>,
    /// What it is called with, as JSON.
    pub input: Option<Excerpt>,
}

/// A form of a tool server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Form {
    /// The server that asks.
    pub server: String,
    /// Its message.
    pub message: String,
    /// The fields; none if it only wants to be confirmed.
    pub fields: Vec<FormField>,
    /// An address that the user should visit instead of filling in fields.
    pub url: Option<String>,
}

/// A field of a form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FormField {
    /// Its name, by which [`Reply::content`](super::Reply::content) fills it in.
    pub name: String,
    /// The title and the description, if there are any.
    pub label: Option<String>,
    /// The type of its value, as in JSON Schema: `string`, `integer`, `array`, …
    pub value: String,
    /// The values to choose from; any if there are none.
    pub options: Vec<String>,
    /// Whether it must be filled in.
    pub required: bool,
}

/// A question for the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UserQuestion {
    /// Its id, by which [`Reply::content`](super::Reply::content) answers it.
    pub id: String,
    /// A heading.
    pub header: Option<String>,
    /// The question.
    pub question: String,
    /// Suggested answers.
    pub options: Vec<QuestionOption>,
    /// Whether several answers may be chosen.
    pub multi: bool,
    /// Whether the answer is a secret, such as a password.
    pub secret: bool,
}

/// A suggested answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QuestionOption {
    /// The answer.
    pub label: String,
    /// What it means.
    pub description: Option<String>,
}

/// A request that the engine could not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unknown {
    /// What the agent calls it.
    pub method: String,
    /// As it came.
    pub raw: Excerpt,
}

impl Unknown {
    /// A request that could not be read.
    pub fn new(method: impl Into<String>, raw: Excerpt) -> Self {
        Self { method: method.into(), raw }
    }
}

macro_rules! setters {
    ($($of:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        impl $of {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    )* };
}

// The types may get more fields, so they are not built as literals outside of this crate.
setters! {
    Command { is_input: bool, extra: Permissions }
    Patch { grant_root: Option<Location> }
    FileChange { moved_to: Option<Location> }
    Permissions { files: Vec<FileAccess>, network: Option<Network> }
    ToolCall {
        server: Option<String>,
        tool: Option<String>,
        message: Option<String>,
        description: Option<String>,
        input: Option<Excerpt>,
    }
    Form { server: String, message: String, fields: Vec<FormField>, url: Option<String> }
    FormField {
        name: String,
        label: Option<String>,
        value: String,
        options: Vec<String>,
        required: bool,
    }
    UserQuestion {
        id: String,
        header: Option<String>,
        question: String,
        options: Vec<QuestionOption>,
        multi: bool,
        secret: bool,
    }
    QuestionOption { label: String, description: Option<String> }
}
