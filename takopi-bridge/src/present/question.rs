//! The content of an approval request, the same in every presenter, with everything an approval
//! grants.

use takopi_core::ApprovalRequest;
use takopi_core::runner::{Excerpt, FileChange, Form, FormField, Patch, Question, UserQuestion};

use super::text::one_line;

/// What is shown, in this order.
#[derive(Debug)]
pub(super) struct Sheet {
    /// The agent, and what it asks for.
    pub(super) head: String,
    /// The command.
    pub(super) command: Option<String>,
    /// Everything else.
    pub(super) entries: Vec<Entry>,
}

/// One entry below the command.
#[derive(Debug)]
pub(super) enum Entry {
    /// A line.
    Fact(String),
    /// A line that people should not overlook.
    Warning(String),
    /// A text of many lines.
    Block(Block),
}

/// A text of many lines.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: BlockKind,
    pub(super) text: String,
    /// A note below it if it is truncated.
    pub(super) mark: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    Diff,
    Code,
    Prose,
}

/// The directory of a request: in quotes and escaped if something of it would not be seen otherwise, as a line end behind it.
pub(super) fn directory(request: &ApprovalRequest) -> String {
    let directory = request.cwd.display().to_string();
    if one_line(&directory, usize::MAX) == directory { directory } else { format!("{directory:?}") }
}

impl Sheet {
    pub(super) fn of(request: &ApprovalRequest) -> Self {
        let asker = match &request.subagent {
            Some(name) => format!("sub-agent {name} of {}", request.engine),
            None => request.engine.to_string(),
        };
        let mut sheet = Self {
            head: format!("{asker} {}", wants(&request.question)),
            command: None,
            entries: Vec::new(),
        };
        sheet.question(request);
        for part in &request.unrecognized {
            sheet.warn(format!("unknown part of the request, may grant more: {}", part.field));
            sheet.block(BlockKind::Code, &part.value);
        }
        sheet
    }

    fn question(&mut self, request: &ApprovalRequest) {
        match &request.question {
            Question::Command(command) => {
                self.command = Some(command.command.clone());
                for line in command.extra.lines() {
                    self.warn(format!("also grants: {line}"));
                }
            }
            Question::Patch(patch) => self.patch(patch),
            Question::Permissions(permissions) => {
                for line in permissions.lines() {
                    self.fact(line);
                }
            }
            Question::ToolCall(call) => {
                self.fact(request.title());
                if let (Some(tool), Some(_)) = (&call.tool, &call.message) {
                    self.fact(format!("tool: {tool}"));
                }
                if let Some(description) = &call.description {
                    self.fact(description.clone());
                }
                if let Some(input) = &call.input {
                    self.block(BlockKind::Code, input);
                }
            }
            Question::Form(form) => self.form(form),
            Question::Questions(questions) => {
                for question in questions {
                    self.user_question(question);
                }
            }
            Question::Plan(plan) => self.block(BlockKind::Prose, plan),
            Question::Unknown(unknown) => {
                self.warn(format!("takopi could not read this request: {}", unknown.method));
                self.block(BlockKind::Code, &unknown.raw);
            }
            _ => self.fact(request.title()),
        }
    }

    fn patch(&mut self, patch: &Patch) {
        if patch.files.is_empty() {
            self.warn("the files are unknown".to_owned());
        }
        for file in &patch.files {
            self.file(file);
        }
        if let Some(root) = &patch.grant_root {
            self.warn(format!(
                "also grants: write access below {root} for the rest of the session"
            ));
        }
    }

    fn file(&mut self, file: &FileChange) {
        let mut line = format!("{} {}", file.kind.as_str(), file.path);
        let mut outside = file.path.is_outside();
        if let Some(moved) = &file.moved_to {
            line = format!("{line} → {moved}");
            outside |= moved.is_outside();
        }
        match &file.diff {
            Some(diff) if diff.is_whole() => line = format!("{line}{}", counts(&diff.text)),
            Some(_) => {}
            None => line.push_str(", the changes are unknown"),
        }
        if outside {
            self.warn(line);
        } else {
            self.fact(line);
        }
        if let Some(diff) = &file.diff {
            self.block(BlockKind::Diff, diff);
        }
    }

    fn form(&mut self, form: &Form) {
        self.fact(format!("{}: {}", form.server, form.message));
        if let Some(url) = &form.url {
            self.warn(format!("wants you to open {url}"));
        }
        for FormField { name, label, value, options, required, .. } in &form.fields {
            let mut line = format!("field {name}: {value}");
            if *required {
                line.push_str(", required");
            }
            if !options.is_empty() {
                line = format!("{line}, one of {}", options.join(", "));
            }
            if let Some(label) = label {
                line = format!("{line} ({label})");
            }
            self.fact(line);
        }
    }

    fn user_question(&mut self, question: &UserQuestion) {
        let header = question.header.iter().map(|header| format!("{header}: "));
        self.fact(header.chain([question.question.clone()]).collect());
        for (at, option) in question.options.iter().enumerate() {
            let description = option.description.iter().map(|text| format!(": {text}"));
            self.fact(
                [format!("({}) {}", at + 1, option.label)].into_iter().chain(description).collect(),
            );
        }
    }

    fn fact(&mut self, text: String) {
        self.entries.push(Entry::Fact(text));
    }

    fn warn(&mut self, text: String) {
        self.entries.push(Entry::Warning(text));
    }

    fn block(&mut self, kind: BlockKind, text: &Excerpt) {
        let mark = (!text.is_whole()).then(|| format!("… truncated: {} bytes more", text.omitted));
        if text.text.trim().is_empty() {
            if let Some(mark) = mark {
                self.warn(mark);
            }
        } else {
            self.entries.push(Entry::Block(Block { kind, text: text.text.clone(), mark }));
        }
    }
}

fn wants(question: &Question) -> &'static str {
    match question {
        Question::Command(command) if command.is_input => {
            "wants to send input to a running command"
        }
        Question::Command(_) => "wants to run a command",
        Question::Patch(_) => "wants to change files",
        Question::Permissions(_) => "wants wider permissions",
        Question::ToolCall(_) => "wants to call a tool",
        Question::Form(_) => "forwards a request of a tool server",
        Question::Plan(_) => "wants to carry out a plan",
        Question::Unknown(_) => "asks for approval",
        _ => "has a question",
    }
}

/// ` (+12 −3)`
fn counts(diff: &str) -> String {
    let count = |sign| diff.lines().filter(|line| line.starts_with(sign)).count();
    match (count('+'), count('-')) {
        (0, 0) => String::new(),
        (added, 0) => format!(" (+{added})"),
        (0, removed) => format!(" (−{removed})"),
        (added, removed) => format!(" (+{added} −{removed})"),
    }
}
