//! The session that a command line resumes.

use std::path::Path;

use takopi_core::catalog::EngineEntry;
use takopi_core::{ResumeToken, Runner};

use crate::exit::Usage;

/// The session of `--resume`: a single word is an id, longer text has a resume line.
///
/// A word that is not a valid id is passed on: the runner refuses it, and reports that in the stream of
/// events.
pub(crate) fn token(runner: &dyn Runner, text: &str) -> Result<ResumeToken, Usage> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next()) {
        (None, _) => Err(Usage::new("--resume: expected a session id or a resume line")),
        (Some(word), None) => Ok(ResumeToken::new(runner.engine(), word.trim_matches('`'))),
        _ => runner.extract_resume(text).ok_or_else(|| {
            let line = runner.format_resume(&ResumeToken::new(runner.engine(), "ID"));
            Usage::new(format!("--resume: the text has no line such as {line}"))
        }),
    }
}

/// Whether the token is one of the engine.
pub(crate) fn is_valid(runner: &dyn Runner, token: &ResumeToken) -> bool {
    runner.token(&token.value).is_some()
}

/// The newest session of a directory, for `--last`.
pub(crate) fn last(entry: &dyn EngineEntry, directory: &Path) -> anyhow::Result<ResumeToken> {
    let Some(store) = entry.sessions()? else {
        return Err(Usage::new(format!("--last: {} stores no sessions", entry.id())).into());
    };
    let newest = store.list(Some(directory)).next();
    let newest = newest.ok_or_else(|| {
        anyhow::anyhow!("no session of {} was found; start one without --last", directory.display())
    })?;
    Ok(newest.token)
}

#[cfg(test)]
mod tests {
    use takopi_codex::Codex;

    use super::*;

    const ID: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

    #[test]
    fn a_single_word_is_an_id() {
        let codex = Codex::new().exec();
        for text in [ID.to_owned(), format!(" {ID}\n"), format!("`{ID}`")] {
            assert_eq!(token(&codex, &text).unwrap(), ResumeToken::new("codex", ID));
        }
        assert_eq!(token(&codex, "--last").unwrap().value, "--last");
    }

    #[test]
    fn longer_text_has_a_resume_line() {
        let codex = Codex::new().exec();
        for text in [
            format!("codex resume {ID}"),
            format!("done\n\n`codex exec resume {ID}`\n"),
            format!("takopi run --resume {}", ID.to_uppercase()),
        ] {
            assert_eq!(token(&codex, &text).unwrap(), ResumeToken::new("codex", ID), "{text}");
        }
        let error = token(&codex, "two words").unwrap_err().to_string();
        assert_eq!(error, "--resume: the text has no line such as `codex resume ID`");
        assert!(token(&codex, " \n").is_err());
    }

    #[test]
    fn only_ids_of_the_engine_are_valid_tokens() {
        let codex = Codex::new().exec();
        assert!(is_valid(&codex, &ResumeToken::new("codex", ID)));
        for value in ["--last", "name", "a`b"] {
            assert!(!is_valid(&codex, &ResumeToken::new("codex", value)), "{value}");
        }
    }
}
