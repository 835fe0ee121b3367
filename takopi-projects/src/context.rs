//! The line that names where a run took place: `` `ctx: web @fix/parser` ``.
//!
//! It stands next to the resume line under an answer. A reply to that answer is read back from it, also after
//! a restart, by a process that never saw the run.

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

    /// Reads a line, with or without backticks.
    pub fn read_line(line: &str) -> Option<Self> {
        let line = line.trim();
        let line = line.strip_prefix('`').and_then(|line| line.strip_suffix('`')).unwrap_or(line);
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
        write!(f, "`{MARK} {}", self.project)?;
        if let Some(branch) = &self.branch {
            write!(f, " @{branch}")?;
        }
        f.write_str("`")
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
        ] {
            let answer = format!("the answer\n\n{context}\n`codex resume 0199`");
            assert_eq!(Context::find(&answer), Some(context.clone()));
            let plain = answer.replace('`', "");
            assert_eq!(Context::find(&plain), Some(context), "as a chat shows code");
        }
    }

    #[test]
    fn of_several_lines_the_last_one_counts() {
        assert_eq!(Context::find("ctx: a\nctx: b"), Some(Context::new("b")));
    }

    #[test]
    fn other_text_is_no_context() {
        for line in ["", "ctx:", "ctx: a b", "ctx: a @", "ctx: ../x", "the ctx: web", "ctx: a @b c"]
        {
            assert_eq!(Context::read_line(line), None, "{line}");
        }
    }
}
