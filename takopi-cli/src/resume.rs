//! Which session to go on with.

use std::path::Path;

use takopi_core::{ResumeToken, Runner};

use crate::exit::Usage;

/// The session that `--resume` names: one word is an id, otherwise the text has a resume line.
///
/// A word that is no id is passed on as it is: the engine refuses it in its own words, and in the
/// stream of events.
pub(crate) fn token(runner: &dyn Runner, text: &str) -> Result<ResumeToken, Usage> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next()) {
        (None, _) => Err(Usage::new("--resume names no session")),
        (Some(word), None) => Ok(ResumeToken::new(runner.engine(), word.trim_matches('`'))),
        _ => runner.extract_resume(text).ok_or_else(|| {
            let line = runner.format_resume(&ResumeToken::new(runner.engine(), "ID"));
            Usage::new(format!("the text of --resume has no line such as {line}"))
        }),
    }
}

/// Whether the engine would take the token for one.
pub(crate) fn is_valid(runner: &dyn Runner, token: &ResumeToken) -> bool {
    runner.extract_resume(&runner.format_resume(token)).is_some()
}

/// The newest session of a directory, for `--last`.
pub(crate) fn last(runner: &dyn Runner, directory: &Path) -> anyhow::Result<ResumeToken> {
    if runner.engine() != takopi_codex::CODEX {
        let what = format!("--last: {} keeps no sessions", runner.engine());
        return Err(Usage::new(what).into());
    }
    let newest = crate::sessions::newest_of(directory)?;
    let id = newest.ok_or_else(|| {
        anyhow::anyhow!("no session of {} was found; begin one without --last", directory.display())
    })?;
    Ok(ResumeToken::new(takopi_codex::CODEX, id))
}

#[cfg(test)]
mod tests {
    use takopi_codex::Codex;

    use super::*;

    const ID: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

    #[test]
    fn one_word_is_an_id() {
        let codex = Codex::new().exec();
        for text in [ID.to_owned(), format!(" {ID}\n"), format!("`{ID}`")] {
            assert_eq!(token(&codex, &text).unwrap(), ResumeToken::new("codex", ID));
        }
        assert_eq!(token(&codex, "--last").unwrap().value, "--last");
    }

    #[test]
    fn a_text_has_a_resume_line() {
        let codex = Codex::new().exec();
        for text in [
            format!("codex resume {ID}"),
            format!("done\n\n`codex exec resume {ID}`\n"),
            format!("takopi run --resume {}", ID.to_uppercase()),
        ] {
            assert_eq!(token(&codex, &text).unwrap(), ResumeToken::new("codex", ID), "{text}");
        }
        let error = token(&codex, "two words").unwrap_err().to_string();
        assert_eq!(error, "the text of --resume has no line such as `codex resume ID`");
        assert!(token(&codex, " \n").is_err());
    }

    #[test]
    fn a_token_is_valid_or_not() {
        let codex = Codex::new().exec();
        assert!(is_valid(&codex, &ResumeToken::new("codex", ID)));
        for value in ["--last", "name", "a`b"] {
            assert!(!is_valid(&codex, &ResumeToken::new("codex", value)), "{value}");
        }
    }
}
