//! Resume lines: how a session is written where people read, and found again.

use std::borrow::Cow;

use crate::model::{EngineId, ResumeToken};

/// How an engine writes its sessions.
///
/// The canonical line is the engine's own interactive command, alone on its line, in backticks:
/// `` `codex resume <id>` ``. Backticks are optional on reading, and the last match wins. takopi's own command,
/// `takopi run --engine NAME --resume <id>`, is read for every engine, with `--fleet` or without.
#[derive(Debug, Clone)]
pub struct ResumeCodec {
    engine: EngineId,
    /// What it writes.
    command: Cow<'static, str>,
    /// The engine's own command, if that is not what is written.
    own: Option<Cow<'static, str>>,
    /// What is read beside these.
    also: &'static [&'static str],
    canonical: fn(&str) -> Option<String>,
}

impl ResumeCodec {
    /// A codec for lines `<command> <id>`. `canonical` folds an id into its one canonical form, or
    /// rejects it.
    pub fn new(
        engine: EngineId,
        command: impl Into<Cow<'static, str>>,
        canonical: fn(&str) -> Option<String>,
    ) -> Self {
        Self { engine, command: command.into(), own: None, also: &[], canonical }
    }

    /// A codec for an engine whose sessions are UUIDs, folded to lower case. Everything else is
    /// rejected: programs take other texts for names, or for flags.
    pub fn of_uuids(engine: EngineId, command: &'static str) -> Self {
        Self::new(engine, command, lower_case_uuid)
    }

    /// Reads these commands too.
    pub fn also(mut self, commands: &'static [&'static str]) -> Self {
        self.also = commands;
        self
    }

    /// Writes this command in place of the one before, which is still read: for sessions that the engine's own command does not find.
    pub fn written_as(mut self, command: impl Into<Cow<'static, str>>) -> Self {
        let before = std::mem::replace(&mut self.command, command.into());
        self.own.get_or_insert(before);
        self
    }

    /// The token of an id, in canonical form, if it is one.
    pub fn token(&self, id: &str) -> Option<ResumeToken> {
        (self.canonical)(id).map(|value| ResumeToken { engine: self.engine.clone(), value })
    }

    /// The line for people.
    pub fn format(&self, token: &ResumeToken) -> String {
        format!("`{} {}`", self.command, token.value)
    }

    /// The session that the last resume line in the text names.
    pub fn extract(&self, text: &str) -> Option<ResumeToken> {
        text.lines().rev().find_map(|line| self.parse(line))
    }

    /// Whether the line is a resume line and nothing else.
    pub fn is_line(&self, line: &str) -> bool {
        self.parse(line).is_some()
    }

    fn parse(&self, line: &str) -> Option<ResumeToken> {
        let line = line.trim();
        let line = match line.strip_prefix('`') {
            Some(rest) => rest.strip_suffix('`')?.trim(),
            None => line,
        };
        let takopis = ["takopi", "run", "--engine", self.engine.as_str(), "--resume"].into_iter();
        let known = std::iter::once(&self.command).chain(&self.own).map(|command| &**command);
        let mut commands = known.chain(self.also.iter().copied());
        let words = || line.split_ascii_whitespace();
        let is_fleet = |word: &&str| *word == "--fleet" || word.starts_with("--fleet=");
        let id = commands
            .find_map(|command| argument_of(words(), command.split(' ')))
            .or_else(|| argument_of(words().filter(|word| !is_fleet(word)), takopis))?;
        self.token(id)
    }
}

/// The one word behind a command, if that is all.
fn argument_of<'a, 'b>(
    mut words: impl Iterator<Item = &'a str>,
    mut command: impl Iterator<Item = &'b str>,
) -> Option<&'a str> {
    let begins = command.all(|word| words.next() == Some(word));
    words.next().filter(|_| begins && words.next().is_none())
}

/// The one form of a UUID that takopi writes, if a text is one.
pub fn lower_case_uuid(id: &str) -> Option<String> {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    // The parser also takes braces, URNs and digits without hyphens; engines print none of them.
    let uuid = (id.len() == text.len()).then(|| uuid::Uuid::try_parse(id).ok()).flatten()?;
    Some(uuid.hyphenated().encode_lower(&mut text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> ResumeCodec {
        let canonical = |id: &str| {
            id.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| id.to_ascii_lowercase())
        };
        ResumeCodec::new(EngineId::from_static("lab"), "lab resume", canonical)
            .also(&["lab exec resume"])
    }

    #[test]
    fn resume_lines_are_read_with_and_without_backticks() {
        let token = ResumeToken::new("lab", "ab1");
        assert_eq!(codec().format(&token), "`lab resume ab1`");
        for line in [
            "`lab resume ab1`",
            " lab resume AB1 ",
            "lab  exec resume ab1",
            "takopi run --engine lab --resume ab1",
            "takopi run --fleet --engine lab --resume ab1",
            "takopi run --fleet=postgres://me@db/f --engine lab --resume ab1",
        ] {
            assert_eq!(codec().extract(line), Some(token.clone()), "{line}");
            assert!(codec().is_line(line), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_written_otherwise_is_still_read_as_it_was() {
        let codec = codec().written_as("takopi run --there --engine lab --resume");
        let token = ResumeToken::new("lab", "ab1");
        assert_eq!(codec.format(&token), "`takopi run --there --engine lab --resume ab1`");
        for line in [&*codec.format(&token), "lab resume ab1", "lab exec resume ab1"] {
            assert_eq!(codec.extract(line), Some(token.clone()), "{line}");
        }
    }

    #[test]
    fn the_last_match_wins() {
        let text = "lab resume one\nsome text\n`lab resume two`\nnot lab resume three";
        assert_eq!(codec().extract(text).map(|token| token.value).as_deref(), Some("two"));
    }

    #[test]
    fn a_resume_line_stands_alone_and_names_an_id() {
        for line in [
            "run lab resume ab1",
            "lab resume",
            "lab resume --last",
            "lab resume a b",
            "`lab resume a",
            "lab resum a",
            "lab resume --fleet a",
        ] {
            assert!(!codec().is_line(line), "{line}");
        }
    }
}
