//! What Tab completes: commands, engines and projects at the beginning of a message, files after `@`.

use std::path::{Path, PathBuf};

/// The most possibilities that are shown.
const SHOWN: usize = 20;

/// The words that a message can begin with: commands, engines and projects.
#[derive(Debug, Default)]
pub(super) struct Completion {
    words: Vec<String>,
    directory: PathBuf,
}

/// What Tab does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// Inserts this.
    Insert(String),
    /// Shows the possibilities.
    Offer(Vec<String>),
}

impl Completion {
    /// Completes these words, and files of this directory.
    pub(super) fn new(words: impl IntoIterator<Item = String>, directory: PathBuf) -> Self {
        let mut words: Vec<String> = words.into_iter().collect();
        words.sort();
        words.dedup();
        Self { words, directory }
    }

    /// What can follow this text; nothing if that is unknown.
    pub(super) fn complete(&self, before: &str) -> Completed {
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let (typed, found) = if let Some(path) = word.strip_prefix('@') {
            let (parent, name) =
                path.rsplit_once('/').map_or(("", path), |(parent, name)| (parent, name));
            (name, self.files(path.strip_suffix(name).unwrap_or(parent), name))
        } else if word == before && word.starts_with('/') {
            let known = self.words.iter().filter(|it| it.starts_with(word));
            (word, known.map(|it| format!("{it} ")).collect())
        } else {
            return Completed::Offer(Vec::new());
        };
        let common = common(&found);
        match common.strip_prefix(typed) {
            Some(rest) if !rest.is_empty() => Completed::Insert(rest.to_owned()),
            _ => {
                let more = found.len().saturating_sub(SHOWN);
                let mut shown: Vec<String> =
                    found.into_iter().take(SHOWN).map(|it| it.trim_end().to_owned()).collect();
                if more > 0 {
                    shown.push(format!("… {more} more"));
                }
                Completed::Offer(shown)
            }
        }
    }

    /// The files of a directory whose names begin so. Hidden ones must be asked for.
    fn files(&self, parent: &str, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.join(Path::new(parent)));
        let names = entries.into_iter().flatten().filter_map(Result::ok).filter_map(|entry| {
            let directory = entry.path().is_dir();
            let name = entry.file_name().into_string().ok()?;
            Some(if directory { name + "/" } else { name + " " })
        });
        let wanted =
            |it: &String| it.starts_with(name) && (name.starts_with('.') || !it.starts_with('.'));
        let mut names: Vec<String> = names.filter(wanted).collect();
        names.sort();
        names
    }
}

/// The longest text that all begin with.
fn common(texts: &[String]) -> String {
    let Some((first, others)) = texts.split_first() else { return String::new() };
    let mut end = first.len();
    for other in others {
        let same = first.char_indices().zip(other.chars()).take_while(|((_, a), b)| a == b);
        end = end.min(same.last().map_or(0, |((at, letter), _)| at + letter.len_utf8()));
    }
    first[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_engines_and_files_are_completed() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["README.md", "Readable", ".hidden"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        std::fs::create_dir(directory.path().join("src")).unwrap();
        std::fs::write(directory.path().join("src/lib.rs"), "").unwrap();
        let words = ["/new", "/cancel", "/claude", "/codex"].map(str::to_owned);
        let completion = Completion::new(words, directory.path().to_owned());
        let insert = |text: &str| Completed::Insert(text.to_owned());
        let offer =
            |names: &[&str]| Completed::Offer(names.iter().map(|it| (*it).to_owned()).collect());
        for (text, expected) in [
            ("/n", insert("ew ")),
            ("/c", offer(&["/cancel", "/claude", "/codex"])),
            ("/cl", insert("aude ")),
            ("see @R", offer(&["README.md", "Readable"])),
            ("see @RE", insert("ADME.md ")),
            ("@s", insert("rc/")),
            ("@src/l", insert("ib.rs ")),
            ("@.", insert("hidden ")),
            ("say /n", offer(&[])),
            ("@nothing", offer(&[])),
        ] {
            assert_eq!(completion.complete(text), expected, "{text}");
        }
    }
}
