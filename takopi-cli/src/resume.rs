//! The session that a command line resumes.

use std::path::Path;
use std::sync::Arc;

use takopi_core::catalog::{EngineEntry, SessionError};
use takopi_core::{Completed, EngineId, Reason, ResumeToken, Runner};

use crate::engines;
use crate::exit::Usage;
use crate::sessions;

/// A shorter word is hardly meant as the beginning of an id.
const SHORTEST_PREFIX: usize = 4;

/// The engine of the session that `--resume` names, if the command line names none: by its resume line, or by
/// the engine that has stored it. `default` is the engine otherwise.
pub(crate) fn owner(default: Option<&str>, text: &str) -> Result<Option<EngineId>, Usage> {
    let default = engines::named(default)?;
    let runners = engines::readers(&default.id())?;
    let found = session(&runners, text).map(|(runner, _)| runner.engine());
    if found.is_none() && text.split_whitespace().nth(1).is_some() {
        let stored = runners.iter().filter(|runner| stores(&runner.engine()));
        let lines: Vec<String> = stored.map(|runner| example(&**runner)).collect();
        let lines = lines.join(" or ");
        return Err(Usage::new(format!("--resume: the text has no line such as {lines}")));
    }
    Ok(found)
}

/// The whole id of the stored session whose id begins with this word; `None` if there is none. `engine` limits
/// the search. A prefix of several ids is an error.
pub(crate) fn completed(engine: Option<&str>, text: &str) -> anyhow::Result<Option<String>> {
    let word = text.trim().trim_matches('`');
    let is_prefix = word.len() >= SHORTEST_PREFIX && !word.contains(char::is_whitespace);
    let default = engines::named(engine)?;
    let is_id = || {
        let readers = engines::readers(&default.id()).unwrap_or_default();
        let mut asked = readers.iter().filter(|it| engine.is_none() || it.engine() == default.id());
        asked.any(|it| !takes_any_word(&**it) && it.token(word).is_some())
    };
    if !is_prefix || is_id() {
        return Ok(None);
    }
    match sessions::unique(engine, word) {
        Ok(session) => Ok(Some(session.token.value)),
        Err(SessionError::Ambiguous { .. }) => {
            let problem = format!("--resume: {word} is the beginning of several ids");
            Err(Usage::new(format!("{problem}; list them with `takopi sessions --search {word}`"))
                .into())
        }
        // The runner refuses it, and says why.
        Err(_) => Ok(None),
    }
}

/// Whether the engine takes any word for an id: then the form of an id does not show that it is the engine's.
fn takes_any_word(runner: &dyn Runner) -> bool {
    runner.token("any-word").is_some()
}

/// The session that a text names, and its runner: by the last resume line, or by its id. Of several runners
/// whose id it can be, the first one that has stored it counts, else the first. A runner that takes any word for an id
/// counts only if it comes first: it is the one to use if nothing else is known.
pub(crate) fn session<'a>(
    runners: &'a [Arc<dyn Runner>],
    text: &str,
) -> Option<(&'a Arc<dyn Runner>, ResumeToken)> {
    let mut words = text.split_whitespace();
    let word = words.next()?.trim_matches('`');
    if words.next().is_some() {
        return text.lines().rev().find_map(|line| {
            runners.iter().find_map(|runner| Some((runner, runner.extract_resume(line)?)))
        });
    }
    let counts = |at: usize, runner: &dyn Runner| at == 0 || !takes_any_word(runner);
    let own = runners.iter().enumerate().filter(|(at, runner)| counts(*at, &***runner));
    let ids = own.filter_map(|(_, runner)| Some((runner, runner.token(word)?)));
    let mut ids: Vec<_> = ids.collect();
    let stored =
        if ids.len() > 1 { ids.iter().position(|(_, token)| is_stored(token)) } else { None };
    (!ids.is_empty()).then(|| ids.swap_remove(stored.unwrap_or(0)))
}

/// Whether the token's engine has stored the session on this machine.
fn is_stored(token: &ResumeToken) -> bool {
    let store =
        engines::find(token.engine.as_str()).ok().and_then(|entry| entry.sessions().ok()?);
    store.is_some_and(|store| store.find(&token.value).is_ok())
}

/// Whether the session of a run that never started can be resumed: it waited for another run on the session, and
/// its engine has stored the session, or stores none.
pub(crate) fn may_exist(token: &ResumeToken, outcome: Option<&Completed>) -> bool {
    let waited = outcome.is_some_and(|completed| {
        matches!(completed.reason, Some(Reason::SessionBusy | Reason::Interrupted))
    });
    waited && (is_stored(token) || !stores(&token.engine))
}

/// Whether the engine stores sessions.
pub(crate) fn stores(engine: &EngineId) -> bool {
    let entry = engines::find(engine.as_str()).ok();
    entry.is_some_and(|entry| matches!(entry.sessions(), Ok(Some(_))))
}

/// A resume line of an engine.
fn example(runner: &dyn Runner) -> String {
    runner.format_resume(&ResumeToken::new(runner.engine(), "ID"))
}

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
            Usage::new(format!("--resume: the text has no line such as {}", example(runner)))
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
        return Err(Usage::new(format!("--last: {}", sessions::unlisted(entry))).into());
    };
    let newest = store.list(Some(directory)).next();
    let newest = newest.ok_or_else(|| {
        let other = other_with_session(entry, directory).map(|other| {
            format!("; {} has one: choose it with --engine {}", other.title(), other.id())
        });
        let (engine, directory) = (entry.title(), directory.display());
        let other = other.unwrap_or_else(|| "; start one without --last".to_owned());
        anyhow::anyhow!("no {engine} session of {directory} was found{other}")
    })?;
    Ok(newest.token)
}

/// Another engine that has a session of the directory.
fn other_with_session(
    entry: &dyn EngineEntry,
    directory: &Path,
) -> Option<&'static dyn EngineEntry> {
    let has_one = |other: &&'static dyn EngineEntry| {
        let store = other.sessions().ok().flatten();
        store.is_some_and(|store| store.list(Some(directory)).next().is_some())
    };
    engines::all().filter(|other| other.id() != entry.id()).find(has_one)
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
    fn a_resume_line_names_its_engine_and_the_last_one_counts() {
        let owner = |text: &str| owner(None, text).map(|owner| owner.map(|it| it.to_string()));
        for (text, engine) in [
            (format!("claude --resume {ID}"), "claude"),
            (format!("`takopi run --engine claude --resume {ID}`"), "claude"),
            (format!("codex resume {ID}\nclaude --resume {ID}\nso far"), "claude"),
            (format!("claude --resume {ID}\ncodex resume {ID}"), "codex"),
            (format!("`pi --session {ID}`"), "pi"),
            ("takopi run --resume demo-abc".to_owned(), "demo"),
            ("demo-abc".to_owned(), "demo"),
        ] {
            assert_eq!(owner(&text).unwrap().as_deref(), Some(engine), "{text}");
        }
        assert_eq!(owner("no-token").unwrap(), None);
        let error = owner("two words").unwrap_err().to_string();
        let expected = "--resume: the text has no line such as `codex resume ID` or `claude --resume ID` or \
                        `pi --session ID`";
        assert_eq!(error, expected);
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
