//! The words of a command, where it is certain what they are.

/// Splits a command into its words; `None` if the shell would do more with it than run one program:
/// operators, substitutions, redirections, globs, escapes. A rule that does not know what a command
/// does must not allow it.
pub(crate) fn words(command: &str) -> Option<Vec<String>> {
    if is_plain(command) { shlex::split(command) } else { None }
}

/// Whether the command has nothing but plain characters and quoted text that stays as it is.
/// `shlex` splits words, but does not know operators and expansions.
fn is_plain(command: &str) -> bool {
    let mut quote = None;
    for letter in command.chars() {
        let plain = match quote {
            Some(open) if letter == open => {
                quote = None;
                true
            }
            // In double quotes these mean something to the shell.
            Some('"') => !matches!(letter, '$' | '`' | '\\' | '!'),
            Some(_) => true,
            None if matches!(letter, '\'' | '"') => {
                quote = Some(letter);
                true
            }
            None => letter.is_alphanumeric() || " \t-_./=:,@+%".contains(letter),
        };
        if !plain {
            return false;
        }
    }
    quote.is_none()
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
