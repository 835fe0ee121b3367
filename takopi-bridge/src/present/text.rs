//! Text in columns: measured, truncated and wrapped between grapheme clusters.

use std::borrow::Cow;
use std::time::Duration;

use takopi_core::Reason;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::line::{Line, Style, flow};

/// The width of a text on a terminal in columns.
pub fn width(text: &str) -> usize {
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// Removes what could control a terminal or reorder a line: line ends and tabs become spaces, other
/// control characters and direction overrides become `�`.
///
/// ```
/// use takopi_bridge::present::clean;
/// assert_eq!(clean("rm\x1b[8m -rf\n/"), "rm�[8m -rf /");
/// ```
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for character in text.replace("\r\n", "\n").chars() {
        match character {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => clean.push(' '),
            character if is_steering(character) => clean.push('\u{fffd}'),
            character => clean.push(character),
        }
    }
    Cow::Owned(clean)
}

fn is_steering(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text on one line, with white space collapsed, truncated to `max` columns.
pub fn one_line(text: &str, max: usize) -> String {
    // Text far beyond the limit is not read.
    let far = text.char_indices().nth(max.saturating_mul(8).max(64)).map_or(text.len(), |it| it.0);
    let words: Vec<&str> = text[..far].split_whitespace().collect();
    let mut line = words.join(" ");
    if far < text.len() {
        line.push('…');
    }
    cut(&clean(&line), max).into_owned()
}

/// At most `max` columns of the text; a truncated text ends in `…`.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if width(text) <= max {
        return Cow::Borrowed(text);
    }
    if max == 0 {
        return Cow::Borrowed("");
    }
    let mut kept = String::new();
    let mut taken = 0;
    for grapheme in text.graphemes(true) {
        taken += grapheme.width();
        if taken > max - 1 {
            break;
        }
        kept.push_str(grapheme);
    }
    kept.push('…');
    Cow::Owned(kept)
}

/// Wraps a text into lines of at most `max` columns, between words where possible. Its own line
/// ends are kept.
pub fn wrap(text: &str, max: usize) -> Vec<String> {
    let paragraphs = text.lines().map(|paragraph| [(Style::Plain, paragraph)]);
    let lines = paragraphs.flat_map(|paragraph| flow(paragraph, max, Line::new));
    lines.map(|line| line.plain()).collect()
}

/// A duration for people: `9s`, `1m 05s`, `2h 03m`.
///
/// ```
/// use std::time::Duration;
/// use takopi_bridge::present::elapsed;
/// assert_eq!(elapsed(Duration::from_secs(65)), "1m 05s");
/// ```
pub fn elapsed(length: Duration) -> String {
    let seconds = length.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

/// Why a run failed, in words.
pub(super) fn reason_label(reason: &Reason) -> String {
    match reason {
        Reason::TimeoutWall => "timeout".to_owned(),
        Reason::TimeoutIdle => "idle timeout".to_owned(),
        _ => reason.as_str().replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sequences that move the cursor, change colours, titles or the clipboard, hide text, ring, or
    /// reorder a line.
    const STEERING: &[&str] = &[
        "\x1b[2J",
        "\x1b[8m",
        "\x1b[31;1m",
        "\x1b[?1049h",
        "\x1b[1A",
        "\x1b]0;title\x07",
        "\x1b]52;c;aGk=\x1b\\",
        "\x1b]8;;http://h\x1b\\",
        "\x1bP1$r0m\x1b\\",
        "\x1b_x\x1b\\",
        "\x1bc",
        "\u{9b}2J",
        "\u{9d}0;title\u{9c}",
        "\u{90}q\u{9c}",
        "\u{85}",
        "\u{84}",
        "\u{8d}",
        "\x07",
        "\x08",
        "\x7f",
        "\0",
        "\x0b",
        "\x0c",
        "\x0e",
        "\x0f",
        "\r",
        "\n",
        "\r\n",
        "\t",
        "\u{2028}",
        "\u{2029}",
        "\u{202a}",
        "\u{202b}",
        "\u{202c}",
        "\u{202d}",
        "\u{202e}abc",
        "\u{2066}",
        "\u{2067}",
        "\u{2068}",
        "\u{2069}",
    ];

    /// What no text on a terminal may contain, by number: C0, DEL and C1, the separators of lines and
    /// paragraphs, and the embeddings, overrides and isolates of the bidirectional algorithm. Its marks
    /// (U+200E, U+200F, U+061C) are part of ordinary text in some languages.
    const FORBIDDEN: &[(u32, u32)] =
        &[(0x00, 0x1f), (0x7f, 0x9f), (0x2028, 0x202e), (0x2066, 0x2069)];

    fn assert_harmless(text: &str) {
        for shown in [clean(text).into_owned(), one_line(text, 40)] {
            for character in shown.chars() {
                let code = u32::from(character);
                let forbidden = FORBIDDEN.iter().any(|(from, to)| (*from..=*to).contains(&code));
                assert!(!forbidden, "U+{code:04X} of {text:?} is in {shown:?}");
            }
        }
    }

    #[test]
    fn no_sequence_that_steers_a_terminal_gets_through() {
        for sequence in STEERING {
            assert_harmless(&format!("before{sequence}after"));
            assert_harmless(sequence);
        }
        assert_eq!(clean("naïve 日本語 👩‍👩‍👧‍👧 e\u{301}"), "naïve 日本語 👩‍👩‍👧‍👧 e\u{301}");
    }

    #[test]
    fn a_cut_never_splits_what_people_see_as_one_character() {
        assert_eq!(cut("👩‍👩‍👧‍👧 family", 3), "👩‍👩‍👧‍👧…");
        assert_eq!(cut("👩‍👩‍👧‍👧 family", 2), "…");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
        assert_eq!(cut("日本語", 5), "日本…");
    }

    #[test]
    fn words_are_kept_whole_where_they_fit() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one\n\ntwo", 7), ["one", "", "two"]);
        assert_eq!(wrap("a abcdefgh b", 4), ["a", "abcd", "efgh", "b"]);
    }

    #[test]
    fn lengths_of_time() {
        let said = [0, 59, 60, 3599, 3600, 90_061].map(|it| elapsed(Duration::from_secs(it)));
        assert_eq!(said, ["0s", "59s", "1m 00s", "59m 59s", "1h 00m", "25h 01m"]);
    }

    #[test]
    fn one_line_is_one_line_and_reads_no_more_than_it_must() {
        assert_eq!(one_line(" a\n\tb  c ", 10), "a b c");
        let long = "word ".repeat(1_000_000);
        assert_eq!(one_line(&long, 9), "word wor…");
        assert_eq!(one_line(&" ".repeat(1000), 9), "…");
    }

    proptest! {
        #[test]
        fn a_cut_is_never_too_wide_and_keeps_the_beginning(text in ".{0,40}", max in 0..30_usize) {
            let text = clean(&text);
            let cut = cut(&text, max);
            prop_assert!(width(&cut) <= max);
            prop_assert!(text.starts_with(cut.trim_end_matches('…')));
        }

        #[test]
        fn wrapped_lines_fit_and_lose_nothing(text in "[a-z 日👩\u{301}]{0,80}", max in 2..20_usize) {
            let lines = wrap(&text, max);
            for line in &lines {
                prop_assert!(width(line) <= max, "{line:?}");
            }
            let bare = |text: &str| text.chars().filter(|it| *it != ' ').collect::<String>();
            prop_assert_eq!(bare(&lines.concat()), bare(&text));
        }

        #[test]
        fn nothing_that_steers_gets_through(
            pieces in prop::collection::vec(
                prop_oneof![any::<String>(), prop::sample::select(STEERING).prop_map(str::to_owned)],
                0..8,
            ),
        ) {
            assert_harmless(&pieces.concat());
        }
    }
}
