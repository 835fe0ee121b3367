//! Warnings about lines that could not be read.

use crate::redact::redact;

/// How many of each kind are shown before they are only counted.
const SHOWN: u64 = 3;
/// How much of a line is shown.
const LINE_SHOWN: usize = 200;
/// How much of a line is searched for credentials.
const LINE_READ: usize = 8 * 1024;

/// Counts the lines of one run that could not be read. The first three of each kind have a warning of
/// their own, the others have one together.
#[derive(Debug, Default)]
pub struct LineWarnings {
    not_json: u64,
    too_long: u64,
}

impl LineWarnings {
    /// A line that is not JSON; the warning for it, unless enough were shown.
    pub fn not_json(&mut self, line: &[u8]) -> Option<String> {
        self.not_json += 1;
        (self.not_json <= SHOWN).then(|| {
            // More than is shown: a credential that is cut in two cannot be recognised.
            let text = String::from_utf8_lossy(&line[..line.len().min(LINE_READ)]);
            let text = redact(&text);
            format!("not JSON: {}", text[..text.floor_char_boundary(LINE_SHOWN)].trim_end())
        })
    }

    /// A line that was skipped for its size; the warning for it, unless enough were shown.
    pub fn too_long(&mut self, bytes: u64) -> Option<String> {
        self.too_long += 1;
        (self.too_long <= SHOWN)
            .then(|| format!("a line of {bytes} bytes was too long and is skipped"))
    }

    /// The warnings for those that were not shown, and resets the counts.
    pub fn rest(&mut self) -> Vec<String> {
        let Self { not_json, too_long } = std::mem::take(self);
        let more = |count: u64, what: &str| {
            let more = count.checked_sub(SHOWN).filter(|more| *more > 0)?;
            Some(format!("{more} more lines were {what}"))
        };
        more(not_json, "not JSON").into_iter().chain(more(too_long, "too long")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_lines_are_shown_and_the_others_counted() {
        let mut lines = LineWarnings::default();
        let shown = (0..5).filter_map(|_| lines.not_json(b"junk\n")).collect::<Vec<_>>();
        assert_eq!(shown, ["not JSON: junk"; 3]);
        assert_eq!(lines.too_long(7).unwrap(), "a line of 7 bytes was too long and is skipped");
        assert_eq!(lines.rest(), ["2 more lines were not JSON"]);
        assert_eq!(lines.rest(), Vec::<String>::new());
    }

    #[test]
    fn a_credential_at_the_end_of_what_is_shown_is_not_shown_in_part() {
        let line = format!("{}postgres://app:hunter2@host/db", "x".repeat(LINE_SHOWN - 25));
        let warning = LineWarnings::default().not_json(line.as_bytes()).unwrap();
        assert!(!warning.contains("hunter"), "{warning}");
    }
}
