//! The words of a command, where it is certain what they are.

/// Splits a command into its words; `None` if the shell would do more with it than run one program:
/// operators, substitutions, redirections, globs. A rule that cannot tell what a command does must
/// not allow it.
pub(super) fn words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        quoted => word.push(quoted),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '$' | '`' | '\\' | '!' => return None,
                        quoted => word.push(quoted),
                    }
                }
            }
            plain if plain.is_alphanumeric() || "-_./=:,@+%".contains(plain) => {
                word.get_or_insert_default().push(plain);
            }
            _ => return None,
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_commands_are_split_as_a_shell_would() {
        for (command, expected) in [
            ("git status", &["git", "status"][..]),
            ("  ls   -la\t/tmp ", &["ls", "-la", "/tmp"]),
            ("git log --format='%h; %s' \"a b\"", &["git", "log", "--format=%h; %s", "a b"]),
            ("echo ''", &["echo", ""]),
            ("", &[]),
        ] {
            assert_eq!(words(command).unwrap(), expected, "{command}");
        }
    }

    #[test]
    fn whatever_a_shell_would_do_more_with_is_not_split() {
        for command in [
            "git status; rm -rf x",
            "git status && rm x",
            "git status | sh",
            "git status & rm x",
            "git status\nrm x",
            "git diff > /etc/passwd",
            "git log $(rm x)",
            "git log `rm x`",
            "git log \"$(rm x)\"",
            "git log \"`rm x`\"",
            "git add *",
            "cat ~/.ssh/id",
            "git log 'not closed",
            "git log \"not closed",
            "git log \\;",
            "{ git status",
            "git status # x",
        ] {
            assert_eq!(words(command), None, "{command}");
        }
    }
}
