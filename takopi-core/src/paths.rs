//! Paths as a person in the run's directory would write them.

use std::borrow::Cow;
use std::path::Path;

use memchr::memmem::Finder;

/// The run's directory, under each of the names it may be called by. For titles of actions.
///
/// ```
/// use std::path::Path;
/// use takopi_core::paths::Directory;
///
/// let directory = Directory::new([Path::new("/srv/app")]);
/// assert_eq!(directory.relative("/srv/app/src/lib.rs"), "src/lib.rs");
/// assert_eq!(directory.relative_in("cat /srv/app/a /etc/hosts".into()), "cat a /etc/hosts");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Directory {
    names: Vec<Name>,
}

/// One of its names, and what looks for it in a text.
#[derive(Debug, Clone)]
struct Name {
    text: String,
    finder: Finder<'static>,
}

impl Directory {
    /// A directory by all its names, such as with and without symbolic links. A name that is not
    /// absolute, or is the root of everything, makes nothing shorter and is left out.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut kept: Vec<Name> = Vec::new();
        for name in names {
            let Some(text) = name.to_str().map(|text| text.trim_end_matches('/')) else { continue };
            let known = kept.iter().any(|other| other.text == text);
            if name.is_absolute() && !text.is_empty() && !known {
                let finder = Finder::new(text).into_owned();
                kept.push(Name { text: text.to_owned(), finder });
            }
        }
        Self { names: kept }
    }

    /// The path, relative to the directory if it is inside.
    pub fn relative<'a>(&self, path: &'a str) -> &'a str {
        let inside = self.names.iter().find_map(|name| {
            let rest = path.strip_prefix(name.text.as_str())?;
            if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
        });
        match inside {
            Some("") => ".",
            Some(rest) => rest,
            None => path,
        }
    }

    /// The command, with every path into the directory made relative.
    pub fn relative_in<'a>(&self, command: Cow<'a, str>) -> Cow<'a, str> {
        self.names.iter().fold(command, |command, name| match shortened(&command, name) {
            Some(shorter) => Cow::Owned(shorter),
            None => command,
        })
    }
}

/// Replaces `name` wherever it stands as a path of its own or at the head of one.
fn shortened(command: &str, name: &Name) -> Option<String> {
    let mut shorter = String::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(found) = name.finder.find(&command.as_bytes()[at..]) {
        let start = at + found;
        let end = start + name.text.len();
        at = end;
        if command[..start].chars().next_back().is_some_and(is_in_path) {
            continue;
        }
        let rest = &command[end..];
        let (skipped, dot) = match rest.strip_prefix('/') {
            Some(below) if below.starts_with(can_begin_a_path) => (1, ""),
            // Of `/dir/-rf` the path must stay: the rest alone would read as a flag.
            Some(below) if !below.is_empty() && !below.starts_with(ends_a_path) => continue,
            Some(_) => (1, "."),
            None if rest.is_empty() || rest.starts_with(ends_a_path) => (0, "."),
            None => continue,
        };
        shorter.push_str(&command[from..start]);
        shorter.push_str(dot);
        from = end + skipped;
        at = from;
    }
    if from == 0 {
        return None;
    }
    shorter.push_str(&command[from..]);
    Some(shorter)
}

fn is_in_path(letter: char) -> bool {
    letter.is_alphanumeric()
        || matches!(letter, '/' | '.' | '_' | '-' | '~' | '$' | '}' | '*' | '\\')
}

fn can_begin_a_path(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '.' | '_' | '*' | '@' | '+' | '[' | '{')
}

fn ends_a_path(letter: char) -> bool {
    letter.is_whitespace()
        || matches!(letter, '\'' | '"' | '`' | ';' | '&' | '|' | ')' | '>' | '<' | ':' | ',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn srv() -> Directory {
        Directory::new([Path::new("/srv/app"), Path::new("/srv/app/"), Path::new("/data/app")])
    }

    #[test]
    fn paths_inside_are_relative_and_others_stay() {
        for (path, shown) in [
            ("/srv/app/src/lib.rs", "src/lib.rs"),
            ("/data/app/x", "x"),
            ("/srv/app", "."),
            ("/srv/app/", "."),
            ("/srv/apple/x", "/srv/apple/x"),
            ("/etc/hosts", "/etc/hosts"),
            ("src/lib.rs", "src/lib.rs"),
            ("", ""),
        ] {
            assert_eq!(srv().relative(path), shown);
        }
    }

    #[test]
    fn paths_in_commands_are_relative() {
        for (command, shown) in [
            ("cat /srv/app/a.txt /srv/app/b.txt", "cat a.txt b.txt"),
            ("cat '/srv/app/a b.txt'", "cat 'a b.txt'"),
            ("cd /srv/app && ls", "cd . && ls"),
            ("ls /srv/app", "ls ."),
            ("ls /srv/app/", "ls ."),
            ("ls /srv/app/.git", "ls .git"),
            ("X=/srv/app/x:/data/app/y run", "X=x:y run"),
            ("ls /srv/apple /mnt/srv/app/x", "ls /srv/apple /mnt/srv/app/x"),
            ("rm /srv/app/-rf", "rm /srv/app/-rf"),
            ("ls", "ls"),
            ("echo 🐙 /srv/app/é", "echo 🐙 é"),
        ] {
            assert_eq!(srv().relative_in(command.into()), shown);
        }
    }

    #[test]
    fn the_root_makes_nothing_shorter() {
        let root = Directory::new([Path::new("/"), Path::new("relative")]);
        assert_eq!(root.relative("/etc/hosts"), "/etc/hosts");
        assert_eq!(root.relative_in("cat /etc/hosts".into()), "cat /etc/hosts");
    }
}
