//! An approval request as lines on a screen.

use std::time::Duration;

use takopi_core::{ApprovalRequest, Decision};
use unicode_segmentation::UnicodeSegmentation;

use crate::answers;

use super::super::line::{Line, Style};
use super::super::question::{Block, BlockKind, Entry, Sheet, directory};
use super::super::text::{elapsed, width as columns, wrap};

/// How many lines of its blocks (diffs, inputs, plans) a folded request shows, and how many of each
/// at least: one long diff does not hide the next.
const FOLDED_LINES: usize = 40;
const FOLDED_LINES_EACH: usize = 3;
/// The width of a tab.
const TAB: &str = "    ";

/// An approval request on a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// The lines to print: everything that an approval grants, with long diffs folded.
    pub lines: Vec<Line>,
    /// The same with nothing folded; `None` if nothing is.
    pub unfolded: Option<Vec<Line>>,
}

/// An approval request with everything that an approval grants. The possible answers are the
/// [`choices`].
pub fn question(request: &ApprovalRequest, width: usize) -> Asked {
    let whole = lines(request, width, usize::MAX);
    let folded = lines(request, width, FOLDED_LINES);
    if folded.len() < whole.len() {
        Asked { lines: folded, unfolded: Some(whole) }
    } else {
        Asked { lines: whole, unfolded: None }
    }
}

fn lines(request: &ApprovalRequest, width: usize, room: usize) -> Vec<Line> {
    let sheet = Sheet::of(request);
    let blocks = sheet.entries.iter().filter(|entry| matches!(entry, Entry::Block(_))).count();
    let room = (room / blocks.max(1)).max(FOLDED_LINES_EACH);
    let mut lines = vec![Line::new().with(Style::Warn, "? ").with(Style::Strong, sheet.head)];
    let mut add = |indent: &str, style: Style, text: &str| {
        lines.push(Line::new().with(Style::Plain, indent).with(style, text));
    };
    let wrapped = |text: &str, indent: usize| wrap(text.trim(), width.saturating_sub(indent));
    for text in sheet.command.iter().flat_map(|command| wrapped(command, 4)) {
        add("    ", Style::Code, &text);
    }
    for entry in sheet.entries {
        match entry {
            Entry::Fact(text) => {
                for text in wrapped(&text, 4) {
                    add("    ", Style::Plain, &text);
                }
            }
            Entry::Warning(text) => {
                for text in wrapped(&text, 4) {
                    add("    ", Style::Warn, &text);
                }
            }
            Entry::Block(block) => {
                let all = laid_out(&block, width.saturating_sub(6));
                let shown = all.len().min(room);
                for (style, text) in &all[..shown] {
                    add("      ", *style, text);
                }
                if shown < all.len() {
                    let more = format!("… {} more lines: v shows all", all.len() - shown);
                    add("      ", Style::Dim, &more);
                }
                if let Some(mark) = &block.mark {
                    add("      ", Style::Warn, mark);
                }
            }
        }
    }
    for text in wrapped(&format!("in {}", directory(request)), 2) {
        add("  ", Style::Dim, &text);
    }
    for text in wrapped(request.reason.as_deref().unwrap_or_default(), 2) {
        add("  ", Style::Plain, &text);
    }
    if !request.is_whole() {
        let note = "the request is incomplete: the rest is too long or unknown, so it can only be declined";
        for text in wrapped(note, 2) {
            add("  ", Style::Warn, &text);
        }
    }
    lines.into_iter().map(|line| line.cut(width)).collect()
}

/// The lines of a block, wrapped without loss.
fn laid_out(block: &Block, width: usize) -> Vec<(Style, String)> {
    let mut lines = Vec::new();
    for line in block.text.lines() {
        let style = match (block.kind, line.chars().next()) {
            (BlockKind::Diff, Some('+')) => Style::Good,
            (BlockKind::Diff, Some('-')) => Style::Bad,
            (BlockKind::Diff, Some('@')) => Style::Dim,
            (BlockKind::Code, _) => Style::Code,
            _ => Style::Plain,
        };
        let mut part = String::new();
        let mut taken = 0;
        for grapheme in line.replace('\t', TAB).graphemes(true) {
            let takes = columns(grapheme);
            if taken + takes > width && !part.is_empty() {
                lines.push((style, std::mem::take(&mut part)));
                taken = 0;
            }
            part.push_str(grapheme);
            taken += takes;
        }
        lines.push((style, part));
    }
    lines
}

/// The possible answers to a [`question`], and the time left: on one line, or one below the other
/// if that is too wide.
pub fn choices(
    request: &ApprovalRequest,
    asked: &Asked,
    left: Duration,
    width: usize,
) -> Vec<Line> {
    let keys = [
        ("y", "yes", Some(Decision::Accept)),
        ("a", "yes, for this session", Some(Decision::AcceptForSession)),
        ("n", "no", Some(Decision::Decline)),
        ("c", "no, and stop", Some(Decision::Cancel)),
        ("v", "show all of it", None),
    ];
    let offered = keys.iter().filter(|(_, _, decision)| match decision {
        Some(decision) => can_choose(request, *decision),
        None => asked.unfolded.is_some(),
    });
    let how = match answers::questions(request).len() {
        0 => None,
        1 => Some("  type the answer, or its number, then Enter;".to_owned()),
        many => Some(format!(
            "  type {many} answers, or their numbers, with `;` between them, then Enter;"
        )),
    };
    let how = how.map(|how| Line::new().with(Style::Strong, how));
    let choices = offered.map(|(key, meaning, _)| {
        let indent = Line::new().with(Style::Plain, "  ");
        indent.with(Style::Strong, key).with(Style::Plain, format!(" {meaning}"))
    });
    let mut parts: Vec<Line> = how.into_iter().chain(choices).collect();
    parts.push(Line::new().with(Style::Dim, format!("  ({} left)", elapsed(left))));
    let spans = parts.iter().flat_map(Line::spans);
    let line = spans.fold(Line::new(), |line, span| line.with(span.style, &span.text));
    if line.width() <= width {
        return vec![line];
    }
    parts.into_iter().map(|part| part.cut(width)).collect()
}

/// Whether a person can decide this way: what cannot be shown completely cannot be accepted, and a
/// question needs its answer.
pub fn can_choose(request: &ApprovalRequest, decision: Decision) -> bool {
    let may_accept = request.is_whole() && answers::questions(request).is_empty();
    request.offers(decision) && (may_accept || !decision.is_yes())
}
