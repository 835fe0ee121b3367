//! Bounded text for details.

/// How much of an output a detail keeps: its last 8 KiB.
pub const OUTPUT_TAIL_BYTES: usize = 8 * 1024;

/// The last `max` bytes of `text`, or a little less so that no character is cut.
///
/// ```
/// use takopi_core::model::tail;
/// assert_eq!(tail("abc", 2), "bc");
/// assert_eq!(tail("aé", 1), "");
/// ```
pub fn tail(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
