//! What the agent ran, without the shell that Codex puts around it.
//!
//! Codex prints `/bin/bash -lc 'cargo test'`; the agent ran `cargo test`.

use std::borrow::Cow;

/// The shells Codex wraps commands in.
const SHELLS: &[&str] = &["bash", "zsh", "sh", "dash", "ksh"];
/// Their options for "run this text".
const RUN: &[&str] = &["-lc", "-c", "-cl"];

/// Removes one wrapper. A command that is not exactly shell, option and script stays as it is.
pub(crate) fn without_shell(command: &str) -> Cow<'_, str> {
    let script = usual_script(command).map(Cow::Borrowed).or_else(|| script(command));
    script.unwrap_or(Cow::Borrowed(command))
}

/// The same for a text that may be owned, which keeps its memory.
pub(crate) fn into_without_shell(command: Cow<'_, str>) -> Cow<'_, str> {
    let mut command = match command {
        Cow::Borrowed(command) => return without_shell(command),
        Cow::Owned(command) => command,
    };
    if let Some(length) = usual_script(&command).map(str::len) {
        // It stands right before the last quote.
        command.pop();
        command.drain(..command.len() - length);
    } else if let Some(script) = script(&command).map(Cow::into_owned) {
        command = script;
    }
    Cow::Owned(command)
}

/// The script in the form in which nearly every command comes: quoted once, and plain otherwise.
fn usual_script(command: &str) -> Option<&str> {
    let (shell, rest) = command.split_once(' ')?;
    let (option, script) = rest.split_once(' ')?;
    let script = script.strip_prefix('\'')?.strip_suffix('\'')?;
    let plain = !shell.contains(['\'', '"', '\\']) && !script.contains('\'');
    (plain && is_shell(shell) && RUN.contains(&option)).then_some(script)
}

fn is_shell(path: &str) -> bool {
    SHELLS.contains(&path.rsplit('/').next().unwrap_or_default())
}

fn script(command: &str) -> Option<Cow<'_, str>> {
    let mut words = Words { rest: command };
    if !is_shell(&words.next()??) || !RUN.contains(&&*words.next()??) {
        return None;
    }
    let script = words.next()??;
    words.next().is_none().then_some(script)
}

/// The words of a command line as a POSIX shell splits and unquotes them; a word that is not closed
/// is `None`. Nothing is expanded, and a word of one piece is borrowed.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Words<'a> {
    type Item = Option<Cow<'a, str>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rest = self.rest.trim_start();
        (!self.rest.is_empty()).then(|| self.word())
    }
}

impl<'a> Words<'a> {
    fn word(&mut self) -> Option<Cow<'a, str>> {
        let mut word = Cow::Borrowed("");
        while let Some(letter) = self.rest.chars().next() {
            match letter {
                '\'' => {
                    let (quoted, rest) = self.rest[1..].split_once('\'')?;
                    self.rest = rest;
                    word += quoted;
                }
                '"' => {
                    self.rest = &self.rest[1..];
                    self.double_quoted(&mut word)?;
                }
                '\\' => {
                    let escaped = self.rest[1..].chars().next()?;
                    let (letter, rest) = self.rest[1..].split_at(escaped.len_utf8());
                    self.rest = rest;
                    word += if escaped == '\n' { "" } else { letter };
                }
                white if white.is_whitespace() => break,
                _ => {
                    let ends = |letter: char| {
                        matches!(letter, '\'' | '"' | '\\') || letter.is_whitespace()
                    };
                    word += self.until(ends);
                }
            }
        }
        Some(word)
    }

    /// What stands between double quotes, of which the first is behind us.
    fn double_quoted(&mut self, word: &mut Cow<'a, str>) -> Option<()> {
        loop {
            *word += self.until(|letter| matches!(letter, '"' | '\\'));
            let mut letters = self.rest.chars();
            if letters.next()? == '"' {
                self.rest = letters.as_str();
                return Some(());
            }
            let escaped = letters.next()?;
            // The backslash stays where it has no meaning.
            let has_meaning = matches!(escaped, '$' | '`' | '"' | '\\');
            let (letters, rest) = self.rest.split_at(1 + escaped.len_utf8());
            self.rest = rest;
            *word += if escaped == '\n' { "" } else { &letters[usize::from(has_meaning)..] };
        }
    }

    /// Takes what comes before such a letter.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let (taken, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_around_a_command_is_removed() {
        for (wrapped, plain) in [
            (
                "/bin/bash -lc 'echo takopi-out; echo err >&2; exit 3'",
                "echo takopi-out; echo err >&2; exit 3",
            ),
            ("/bin/bash -lc ls", "ls"),
            ("bash -lc \"git status\"", "git status"),
            ("/bin/zsh -lc 'pwd'", "pwd"),
            ("/usr/bin/zsh -c 'pwd'", "pwd"),
            ("sh -c 'a && b'", "a && b"),
            // The three ways to write an apostrophe.
            (r"bash -lc 'echo '\''hi'\'''", "echo 'hi'"),
            (r#"bash -lc 'echo '"'"'hi'"'"''"#, "echo 'hi'"),
            (r#"bash -lc "echo 'hi'""#, "echo 'hi'"),
            // What a backslash does in double quotes.
            (r#"bash -lc "echo \"\$HOME\" \`x\` \\ \n""#, r#"echo "$HOME" `x` \ \n"#),
            (r"bash -lc echo\ hi", "echo hi"),
            ("bash -lc 'first\nsecond'", "first\nsecond"),
            ("bash  -lc   'x'  ", "x"),
            ("bash -lc ''", ""),
            // One wrapper is Codex's; the next is the agent's own.
            (r#"bash -lc "bash -lc 'ls'""#, "bash -lc 'ls'"),
            ("bash -lc 'naïve 🐙'", "naïve 🐙"),
        ] {
            assert_eq!(without_shell(wrapped), plain, "{wrapped}");
            assert_eq!(into_without_shell(wrapped.to_owned().into()), plain, "owned: {wrapped}");
            assert_eq!(script(wrapped).as_deref(), Some(plain), "the short cut agrees: {wrapped}");
        }
    }

    #[test]
    fn anything_else_stays_as_it_is() {
        for command in [
            "",
            " ",
            "ls -la",
            "bash",
            "bash script.sh",
            "bash -lc",
            "bash -lc 'a' && b",
            "bash -c 'echo $0' name",
            "bash -lc 'not closed",
            "bash -lc \"not closed",
            "bash -lc trailing\\",
            "python -c 'print(1)'",
            "bashful -lc 'x'",
            "bash -x 'y'",
            "'/bin/bash -lc 'x'",
            "bash -lc '",
        ] {
            assert_eq!(without_shell(command), command, "{command}");
            assert_eq!(into_without_shell(command.to_owned().into()), command, "owned: {command}");
            assert_eq!(usual_script(command), None, "the short cut agrees: {command}");
        }
    }
}
