//! What changes in a file, as one hunk of a unified diff.

use std::fmt::Write as _;

/// The lines that differ between two texts, in at most this many bytes; what is cut ends in a line `…`.
pub(crate) fn unified(old: Option<&str>, new: &str, limit: usize) -> String {
    let before: Vec<&str> = old.unwrap_or_default().lines().collect();
    let after: Vec<&str> = new.lines().collect();
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = before.iter().zip(&after).take_while(same).count();
    let rest = (&before[head..], &after[head..]);
    let tail = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(same).count();
    let removed = &before[head..before.len() - tail];
    let added = &after[head..after.len() - tail];
    let mut diff = String::new();
    if removed.is_empty() && added.is_empty() {
        return diff;
    }
    let start = |count: usize| if count == 0 { head } else { head + 1 };
    let _ = writeln!(
        diff,
        "@@ -{},{} +{},{} @@",
        start(removed.len()),
        removed.len(),
        start(added.len()),
        added.len()
    );
    let removed = removed.iter().map(|line| ('-', line));
    for (mark, line) in removed.chain(added.iter().map(|line| ('+', line))) {
        if diff.len() + line.len() + "+\n…\n".len() > limit {
            diff.push_str("…\n");
            break;
        }
        let _ = writeln!(diff, "{mark}{line}");
    }
    diff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_that_differ_are_shown() {
        let diff = unified(Some("a\nb\nc\nd\n"), "a\nB\nd\n", 999);
        assert_eq!(diff, "@@ -2,2 +2,1 @@\n-b\n-c\n+B\n");
        assert_eq!(unified(None, "a\nb\n", 999), "@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(unified(Some("a\n"), "", 999), "@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(unified(Some("a\n"), "a\n", 999), "");
    }

    #[test]
    fn a_long_diff_is_cut_and_marked() {
        let new = "x".repeat(20) + "\n";
        let diff = unified(None, &new.repeat(100), 200);
        assert!(diff.len() <= 200 && diff.ends_with("x\n…\n"), "{diff}");
    }
}
