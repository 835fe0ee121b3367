//! The line that names where a run took place: `` `ctx: web @fix/parser` ``.
//!
//! It stands next to the resume line under an answer. A reply to that answer is read back from it, also after
//! a restart, by a process that never saw the run. An agent may write such a line too: only the last lines of a message
//! count, which are not the agent's.

use std::fmt;

use crate::config::check_name;

const MARK: &str = "ctx:";

/// A project, and a branch of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Context {
    /// The name of the project.
    pub project: String,
    /// The branch; without one the run takes place in the project's own directory.
    pub branch: Option<String>,
}

impl Context {
    /// The directory of a project.
    pub fn new(project: impl Into<String>) -> Self {
        Self { project: project.into(), branch: None }
    }

    /// Sets the branch.
    pub fn branch(mut self, branch: impl Into<String>) -> Self {
        self.branch = Some(branch.into());
        self
    }

    /// Reads the line that a text holds; of several the last one counts.
    pub fn find(text: &str) -> Option<Self> {
        text.lines().rev().find_map(Self::read_line)
    }

    /// Reads the line that stands at the end of a message: directly above its resume line, or below everything if there
    /// is none. A line anywhere else is part of an answer.
    pub fn at_end(text: &str, is_resume_line: impl Fn(&str) -> bool) -> Option<Self> {
        let mut lines = text.trim_end().lines().rev();
        let last = lines.next()?;
        Self::read_line(if is_resume_line(last) { lines.next()? } else { last })
    }

    /// Reads a line, as Markdown or as a chat shows it.
    pub fn read_line(line: &str) -> Option<Self> {
        let line = line.trim();
        let text = line.trim_start_matches('`');
        // As many backticks close as open: a branch may end with one.
        let line = text.strip_suffix(&line[..line.len() - text.len()])?.trim();
        let mut words = line.strip_prefix(MARK)?.split_whitespace();
        let project = words.next().filter(|name| check_name(name).is_ok())?;
        let branch = match words.next() {
            None => None,
            Some(word) => Some(word.strip_prefix('@').filter(|branch| !branch.is_empty())?),
        };
        let whole = words.next().is_none();
        whole.then(|| Self { project: project.to_lowercase(), branch: branch.map(str::to_owned) })
    }
}

/// The line in Markdown, as it stands in a message.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = self.branch.as_deref().unwrap_or_default();
        // Code ends at as many backticks as it begins with: more than a branch has in a row.
        let longest = branch.split(|c| c != '`').map(str::len).max().unwrap_or_default();
        let fence = "`".repeat(longest + 1);
        let space = if longest > 0 { " " } else { "" };
        write!(f, "{fence}{space}{MARK} {}", self.project)?;
        if !branch.is_empty() {
            write!(f, " @{branch}")?;
        }
        write!(f, "{space}{fence}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read_back() {
        for context in [
            Context::new("web"),
            Context::new("web").branch("fix/parser"),
            Context::new("a-b_c").branch("größe/日本"),
            Context::new("web").branch("a`b"),
            Context::new("web").branch("`a``b`"),
            Context::new("web").branch("```"),
        ] {
            let answer = format!("the answer\n\n{context}\n`codex resume 0199`");
            assert_eq!(Context::find(&answer), Some(context.clone()));
            let branch = context.branch.as_ref().map(|it| format!(" @{it}")).unwrap_or_default();
            let shown =
                format!("the answer\n\nctx: {}{branch}\ncodex resume 0199", context.project);
            assert_eq!(Context::find(&shown), Some(context), "as a chat shows code");
        }
    }

    #[test]
    fn of_several_lines_the_last_one_counts() {
        assert_eq!(Context::find("ctx: a\nctx: b"), Some(Context::new("b")));
    }

    #[test]
    fn only_the_last_lines_of_a_message_say_where_it_ran() {
        let resumes = |line: &str| line.trim_matches('`').starts_with("codex resume");
        for (text, found) in [
            ("done\n\nctx: web\ncodex resume 1", Some("web")),
            ("done\n\n`ctx: web`  \n`codex resume 1`\n", Some("web")),
            ("interrupted\n\nctx: web", Some("web")),
            ("ctx: a\ncodex resume 2\n\nctx: web\ncodex resume 1", Some("web")),
            ("done\nctx: web\n\ncodex resume 1", None),
            ("ctx: web\ncodex resume 2\n\ndone\n\ncodex resume 1", None),
            ("ctx: web\n\ndone", None),
            ("ctx: web\ndone", None),
            ("", None),
        ] {
            assert_eq!(Context::at_end(text, resumes), found.map(Context::new), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_context() {
        for line in ["", "ctx:", "ctx: a b", "ctx: a @", "ctx: ../x", "the ctx: web", "ctx: a @b c"]
        {
            assert_eq!(Context::read_line(line), None, "{line}");
        }
    }
}
