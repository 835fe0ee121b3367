//! The prompt of `takopi run`.
//!
//! The arguments; with `-` among them standard input follows as context; without any argument
//! standard input is the prompt, unless it is a terminal. With arguments and no `-`, standard input
//! is not read.

use std::io::{IsTerminal as _, Read as _};

use crate::exit::Usage;

/// A prompt, and whether bytes were replaced in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    /// Standard input was not UTF-8.
    pub(crate) replaced: bool,
}

/// Where the prompt comes from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Arguments(String),
    ArgumentsAndInput(String),
    Input,
    Nothing,
}

/// Reads the prompt.
pub(crate) fn read(args: &[String]) -> anyhow::Result<Prompt> {
    let stdin = std::io::stdin();
    let (prompt, input) = match source(args, stdin.is_terminal()) {
        Source::Arguments(prompt) => (prompt, None),
        Source::ArgumentsAndInput(prompt) => (prompt, Some(input()?)),
        Source::Input => (String::new(), Some(input()?)),
        Source::Nothing => {
            let message = "no prompt: give it as an argument, or on standard input";
            return Err(Usage::new(message).into());
        }
    };
    compose(prompt, input.as_deref()).map_err(Into::into)
}

fn source(args: &[String], terminal: bool) -> Source {
    let words: Vec<&str> = args.iter().map(String::as_str).filter(|word| *word != "-").collect();
    let dash = words.len() < args.len();
    match (words.is_empty(), dash) {
        (false, false) => Source::Arguments(words.join(" ")),
        (false, true) => Source::ArgumentsAndInput(words.join(" ")),
        (true, false) if terminal => Source::Nothing,
        (true, _) => Source::Input,
    }
}

fn input() -> anyhow::Result<Vec<u8>> {
    let mut input = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut input);
    read.map_err(|error| anyhow::anyhow!("cannot read standard input: {error}"))?;
    Ok(input)
}

fn compose(prompt: String, input: Option<&[u8]>) -> Result<Prompt, Usage> {
    let input = String::from_utf8_lossy(input.unwrap_or_default());
    let replaced = matches!(input, std::borrow::Cow::Owned(_));
    let text = match (prompt.is_empty(), input.trim().is_empty()) {
        (_, true) => prompt,
        (true, false) => input.into_owned(),
        (false, false) => format!("{prompt}\n\n{input}"),
    };
    if text.trim().is_empty() {
        return Err(Usage::new("the prompt is empty"));
    }
    Ok(Prompt { text, replaced })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(args: &[&str], terminal: bool) -> Source {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        source(&args, terminal)
    }

    #[test]
    fn with_arguments_standard_input_is_not_read() {
        for terminal in [true, false] {
            assert_eq!(from(&["a", "b"], terminal), Source::Arguments("a b".to_owned()));
        }
    }

    #[test]
    fn a_dash_in_any_position_adds_standard_input() {
        for args in [["review", "-"], ["-", "review"]] {
            assert_eq!(from(&args, true), Source::ArgumentsAndInput("review".to_owned()));
        }
        assert_eq!(from(&["-"], true), Source::Input);
    }

    #[test]
    fn without_arguments_standard_input_is_the_prompt_unless_it_is_a_terminal() {
        assert_eq!(from(&[], false), Source::Input);
        assert_eq!(from(&[], true), Source::Nothing);
    }

    #[test]
    fn context_follows_the_prompt_behind_a_blank_line() {
        let text = |prompt: &str, input: &[u8]| compose(prompt.to_owned(), Some(input)).unwrap();
        assert_eq!(text("review", b"+ a\n").text, "review\n\n+ a\n");
        assert_eq!(text("review", b" \n").text, "review");
        assert_eq!(text("", b"all of it\n").text, "all of it\n");
        assert!(!compose("alone".to_owned(), None).unwrap().replaced);
        let replaced = text("review", b"caf\xe9");
        assert_eq!((replaced.text.as_str(), replaced.replaced), ("review\n\ncaf\u{fffd}", true));
    }

    #[test]
    fn an_empty_prompt_is_an_error() {
        assert!(compose(" ".to_owned(), None).is_err());
        assert!(compose(String::new(), Some(b"\n\t\n")).is_err());
    }
}
