//! The maximum length of a chat message.

use unicode_segmentation::UnicodeSegmentation;

/// The smallest limit: any single character fits.
const NARROWEST: usize = 2;

/// The maximum length of a chat message, in the unit the chat counts in.
///
/// A limit below two counts as two, so that any single character fits.
///
/// ```
/// use takopi_bridge::present::Limit;
/// assert!(Limit::Chars(5).fits("🐙🐙🐙"));
/// assert!(!Limit::Utf16(5).fits("🐙🐙🐙"));
/// assert_eq!(Limit::default(), Limit::Utf16(4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// This many Unicode characters.
    Chars(usize),
    /// This many UTF-16 units: a character beyond the basic plane, such as most emoji, counts
    /// twice.
    Utf16(usize),
}

impl Default for Limit {
    /// The limit of Telegram. Most chats allow more.
    fn default() -> Self {
        Self::Utf16(4096)
    }
}

impl Limit {
    /// The length of a text in the unit of this limit.
    pub fn measure(self, text: &str) -> usize {
        match self {
            Self::Chars(_) => text.chars().count(),
            Self::Utf16(_) => text.encode_utf16().count(),
        }
    }

    /// Whether a text is within the limit.
    pub fn fits(self, text: &str) -> bool {
        self.measure(text) <= self.most()
    }

    /// The limit as a number, at least two.
    pub(super) fn most(self) -> usize {
        match self {
            Self::Chars(most) | Self::Utf16(most) => most.max(NARROWEST),
        }
    }

    /// A limit of this many in the same unit.
    pub(super) fn with_most(self, most: usize) -> Self {
        match self {
            Self::Chars(_) => Self::Chars(most),
            Self::Utf16(_) => Self::Utf16(most),
        }
    }

    /// The beginning of a text, in at most `room` units; a truncated text ends in `…`.
    pub(super) fn cut(self, text: &str, room: usize) -> String {
        if self.measure(text) <= room {
            return text.to_owned();
        }
        let mut kept = String::new();
        let mut left = room.saturating_sub(1);
        for grapheme in text.graphemes(true) {
            let takes = self.measure(grapheme);
            if takes > left {
                break;
            }
            left -= takes;
            kept.push_str(grapheme);
        }
        if room > 0 {
            kept.push('…');
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_shows_and_never_splits_what_people_see_as_one_character() {
        let limit = Limit::Utf16(100);
        assert_eq!(limit.cut("🐙🐙", 4), "🐙🐙");
        assert_eq!(limit.cut("🐙🐙", 3), "🐙…");
        assert_eq!(limit.cut("e\u{301}e\u{301}e\u{301}", 4), "e\u{301}…");
        assert_eq!(limit.cut("ab", 1), "…");
        assert_eq!(limit.cut("ab", 0), "");
    }
}
