//! A template for prompts: text with the columns of a job in braces.

use std::str::FromStr;

use thiserror::Error;

/// A template such as `review {prompt}`. `{{` and `}}` stand for braces.
///
/// ```
/// use takopi_batch::PromptTemplate;
///
/// let template: PromptTemplate = "review {file} {{carefully}}".parse()?;
/// let prompt = template.fill(|name| (name == "file").then(|| "a.rs".to_owned()));
/// assert_eq!(prompt, Ok("review a.rs {carefully}".to_owned()));
/// assert_eq!(template.fill(|_| None), Err("file".to_owned()));
/// # Ok::<(), takopi_batch::TemplateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptTemplate {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Column(String),
}

/// A template that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A brace has no counterpart.
    #[error("a `{{` or `}}` stands alone; write {{{{ or }}}} for a brace")]
    Brace,
    /// There is nothing to fill in: every prompt would be the same.
    #[error("it has no column such as {{prompt}}: every prompt would be the same")]
    NoColumn,
}

impl FromStr for PromptTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = rest.split_once('}').ok_or(TemplateError::Brace)?;
            if brace == "}" || name.contains('{') || name.trim().is_empty() {
                return Err(TemplateError::Brace);
            }
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
            pieces.push(Piece::Column(name.trim().to_owned()));
            rest = after;
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        if pieces.len() == 1 {
            return Err(TemplateError::NoColumn);
        }
        Ok(Self { pieces })
    }
}

impl PromptTemplate {
    /// The prompt, with the value of each column; the name of a column that there is not.
    pub fn fill(&self, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let mut prompt = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => prompt.push_str(text),
                Piece::Column(name) => prompt.push_str(&value(name).ok_or_else(|| name.clone())?),
            }
        }
        Ok(prompt)
    }

    /// Whether it has a column of this name.
    pub(super) fn uses(&self, column: &str) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Column(name) if name == column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_needs_a_column_and_braces_in_pairs() {
        for (text, error) in [
            ("review", TemplateError::NoColumn),
            ("{{prompt}}", TemplateError::NoColumn),
            ("review {prompt", TemplateError::Brace),
            ("review prompt}", TemplateError::Brace),
            ("{}", TemplateError::Brace),
            ("{a{b}}", TemplateError::Brace),
        ] {
            assert_eq!(text.parse::<PromptTemplate>(), Err(error), "{text}");
        }
    }

    #[test]
    fn values_are_put_in_as_they_are() {
        let template: PromptTemplate = "{a}{ b }{{{a}}}".parse().unwrap();
        let value = |name: &str| Some(format!("<{name} {{x}}>"));
        assert_eq!(template.fill(value).unwrap(), "<a {x}><b {x}>{<a {x}>}");
        assert!(template.uses("b") && !template.uses("c"));
    }
}
