//! What a tool changed in a file, as a unified diff.

use std::fmt::Write as _;

use takopi_core::model::OUTPUT_TAIL_BYTES;

use crate::wire::Object;

/// The diff in the output of a tool that writes files: its hunks, or all lines of a new file. At most
/// 8 KiB; what is cut ends in a line `…`.
pub(super) fn unified(output: &Object<'_>) -> Option<String> {
    let mut diff = Diff::default();
    for hunk in output.list("structuredPatch") {
        let hunk = Object::of(hunk);
        let number = |name| hunk.count(name).unwrap_or_default();
        diff.line(&format!(
            "@@ -{},{} +{},{} @@",
            number("oldStart"),
            number("oldLines"),
            number("newStart"),
            number("newLines"),
        ));
        for line in hunk.texts("lines") {
            diff.line(&line);
        }
    }
    if diff.text.is_empty() && is_new(output) {
        let content = output.text("content").unwrap_or_default();
        if !content.is_empty() {
            diff.line(&format!("@@ -0,0 +1,{} @@", content.lines().count()));
        }
        for line in content.lines() {
            if diff.is_full {
                break;
            }
            diff.line(&format!("+{line}"));
        }
    }
    (!diff.text.is_empty()).then_some(diff.text)
}

/// Whether the tool made a new file.
pub(super) fn is_new(output: &Object<'_>) -> bool {
    output.text("type").as_deref() == Some("create")
}

#[derive(Default)]
struct Diff {
    text: String,
    is_full: bool,
}

impl Diff {
    fn line(&mut self, line: &str) {
        if self.is_full {
            return;
        }
        if self.text.len() + line.len() + "\n…\n".len() > OUTPUT_TAIL_BYTES {
            self.is_full = true;
            self.text.push_str("…\n");
        } else {
            let _ = writeln!(self.text, "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(json: &str) -> Option<String> {
        unified(&Object::parse(json).unwrap())
    }

    #[test]
    fn hunks_become_a_unified_diff() {
        let edit = r#"{"filePath":"/a","structuredPatch":[{"oldStart":3,"oldLines":2,"newStart":3,"newLines":2,"lines":[" kept","-one","+two"]}]}"#;
        assert_eq!(diff(edit).as_deref(), Some("@@ -3,2 +3,2 @@\n kept\n-one\n+two\n"));
    }

    #[test]
    fn a_new_file_is_all_additions() {
        let new = r#"{"type":"create","content":"a\nb\n","structuredPatch":[]}"#;
        assert_eq!(diff(new).as_deref(), Some("@@ -0,0 +1,2 @@\n+a\n+b\n"));
        assert_eq!(diff(r#"{"type":"create","content":""}"#), None);
        assert_eq!(diff(r#"{"type":"update","content":"a"}"#), None);
    }

    #[test]
    fn a_long_diff_is_cut_and_marked() {
        let content = "x".repeat(99) + "\\n";
        let new = format!(r#"{{"type":"create","content":"{}"}}"#, content.repeat(1000));
        let diff = diff(&new).unwrap();
        assert!(diff.len() <= OUTPUT_TAIL_BYTES && diff.ends_with("x\n…\n"), "{}", diff.len());
    }
}
