//! What can be read of a line that was too long.

/// The members of an object that are whole in the first bytes of its line, as an object of their own; `None` if
/// none is.
///
/// For lines that were [skipped](crate::process::Frame::Skipped): a request that nobody could read is answered by
/// the id ahead of its long member.
///
/// ```
/// use takopi_core::jsonl::whole_members;
/// let head = br#"{"type":"ask","id":7,"long":{"a":"b","c":"xxx"#;
/// assert_eq!(whole_members(head).as_deref(), Some(r#"{"type":"ask","id":7}"#));
/// assert_eq!(whole_members(br#"{"long":["a","b"#), None);
/// ```
pub fn whole_members(head: &[u8]) -> Option<String> {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    let mut end = None;
    for (at, byte) in head.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => end = Some(at),
            _ => {}
        }
    }
    let members = head.trim_ascii_start().starts_with(b"{").then_some(&head[..end?])?;
    Some(String::from_utf8_lossy(members).into_owned() + "}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_left_out() {
        for (head, members) in [
            (r#"{"a":1,"b":"x, }","c":{"d":1,"e"#, Some(r#"{"a":1,"b":"x, }"}"#)),
            (r#"{"a":[1,{"b":2}],"c":"\"},{"#, Some(r#"{"a":[1,{"b":2}]}"#)),
            (r#"{"a":"\\","b"#, Some(r#"{"a":"\\"}"#)),
            (r#"{"a":"x"#, None),
            (r#"["a","b","c"#, None),
            ("", None),
            ("}},{", None),
        ] {
            assert_eq!(whole_members(head.as_bytes()).as_deref(), members, "{head}");
        }
    }
}
