//! Warnings about lines that came while nobody was there to see them.

use super::LineWarnings;

/// Warnings that wait for a run to be shown in. As few of them as [`LineWarnings`] shows in one run.
#[derive(Debug, Default)]
pub struct UnreadLines {
    lines: LineWarnings,
    warnings: Vec<String>,
}

impl UnreadLines {
    /// Keeps the warning of a line.
    pub fn keep(&mut self, warning: impl FnOnce(&mut LineWarnings) -> Option<String>) {
        self.warnings.extend(warning(&mut self.lines));
    }

    /// All that waits.
    pub fn take(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(self.lines.rest());
        warnings
    }
}

/// Warnings about lines of a process that serves one run after another: those of a run, and those that came
/// while no run had the process, which wait for the next.
///
/// ```
/// use takopi_core::jsonl::ProcessLines;
///
/// let mut lines = ProcessLines::default();
/// assert_eq!(lines.not_json(b"hello\n"), None);
/// assert_eq!(lines.begin(), ["not JSON: hello"]);
/// assert_eq!(lines.not_json(b"again\n").as_deref(), Some("not JSON: again"));
/// assert!(lines.end().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct ProcessLines {
    /// Those of the run that has the process, if one has it.
    run: Option<LineWarnings>,
    unread: UnreadLines,
}

impl ProcessLines {
    /// A run has the process from now on. Returns the warnings of the time before.
    pub fn begin(&mut self) -> Vec<String> {
        self.run = Some(LineWarnings::default());
        self.unread.take()
    }

    /// No run has the process any more. Returns the warnings for lines that were only counted.
    pub fn end(&mut self) -> Vec<String> {
        self.run.take().map(|mut lines| lines.rest()).unwrap_or_default()
    }

    /// A line that is not JSON; the warning for the run, if there is one to be shown now.
    pub fn not_json(&mut self, line: &[u8]) -> Option<String> {
        self.warn(|lines| lines.not_json(line))
    }

    /// A line that was skipped for its size; the warning for the run, if there is one to be shown now.
    pub fn too_long(&mut self, bytes: u64) -> Option<String> {
        self.warn(|lines| lines.too_long(bytes))
    }

    fn warn(
        &mut self,
        warning: impl FnOnce(&mut LineWarnings) -> Option<String>,
    ) -> Option<String> {
        let Some(lines) = &mut self.run else {
            self.unread.keep(warning);
            return None;
        };
        warning(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_two_runs_are_shown_in_the_next_one_and_bounded() {
        let mut lines = ProcessLines::default();
        assert!((0..5).all(|_| lines.not_json(b"early\n").is_none()));
        let earlier = lines.begin();
        assert_eq!(earlier.len(), 4, "{earlier:?}");
        assert_eq!(earlier[3], "2 more lines were not JSON");
        assert!((0..3).all(|_| lines.not_json(b"own\n").is_some()), "it counts for itself");
        assert_eq!(lines.not_json(b"own\n"), None);
        assert_eq!(lines.end(), ["1 more lines were not JSON"]);
        assert_eq!(lines.too_long(9), None);
        assert!(lines.end().is_empty());
        assert_eq!(lines.begin(), ["a line of 9 bytes was too long and is skipped"]);
        assert!(lines.begin().is_empty());
    }
}
