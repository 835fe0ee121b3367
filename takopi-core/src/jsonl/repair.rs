//! JSON that a strict parser refuses although it can be understood.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;

/// Rewrites a line that is not quite JSON; `None` if it has none of the faults that are known here.
///
/// For engines that print what other programs gave them: a byte-order mark, bytes that are not UTF-8,
/// numbers too large for any type (`1e999`) and `NaN` (both become `null`), half a surrogate pair
/// (`"\ud800"`), unknown escapes, and control characters inside of strings. To be called only after
/// a strict parser failed; the result may still be no JSON.
///
/// ```
/// use takopi_core::jsonl::repair;
/// assert_eq!(repair(br#"{"n":1e999,"s":"\ud800"}"#).as_deref(), Some(r#"{"n":null,"s":"\ufffd"}"#));
/// assert_eq!(repair(br#"{"n":1}"#), None);
/// ```
pub fn repair(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let json = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut repair = Repair { json, at: 0, out: String::with_capacity(json.len()) };
    repair.all();
    (repair.out.as_bytes() != line).then_some(repair.out)
}

/// Parses a text, and if that fails what a [`repair`] makes of it. The error is that of the text itself.
///
/// ```
/// use takopi_core::jsonl::parse_repaired;
/// assert_eq!(parse_repaired::<Vec<String>>(r#"["\ud800"]"#)?, ["\u{fffd}"]);
/// assert!(parse_repaired::<Vec<String>>("[1]").is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn parse_repaired<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(json).or_else(|error| {
        let repaired = repair(json.as_bytes()).and_then(|json| serde_json::from_str(&json).ok());
        repaired.ok_or(error)
    })
}

struct Repair<'a> {
    json: &'a str,
    at: usize,
    out: String,
}

impl<'a> Repair<'a> {
    fn all(&mut self) {
        while let Some(byte) = self.peek(0) {
            if byte == b'"' {
                self.copy(1);
                self.string();
            } else if byte == b'-' || byte.is_ascii_alphanumeric() {
                self.word();
            } else {
                self.copy_while(|byte| {
                    byte != b'"' && byte != b'-' && !byte.is_ascii_alphanumeric()
                });
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.json[self.at..]
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.rest().as_bytes().get(ahead).copied()
    }

    fn copy(&mut self, bytes: usize) {
        let rest = self.rest();
        let bytes = rest.ceil_char_boundary(bytes);
        self.out.push_str(&rest[..bytes]);
        self.at += bytes;
    }

    /// Copies such bytes. A byte that is not copied must be ASCII.
    fn copy_while(&mut self, of: impl Fn(u8) -> bool) {
        let rest = self.rest();
        self.copy(rest.bytes().position(|byte| !of(byte)).unwrap_or(rest.len()));
    }

    /// A number, or a word such as `true`.
    fn word(&mut self) {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let rest = self.rest();
        let length = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let word = &rest[..length];
        // Infinite is what Rust makes of `1e999` and `Infinity`.
        let number = word.parse::<f64>().ok();
        if number.is_some_and(|number| !number.is_finite()) {
            self.out.push_str("null");
            self.at += length;
        } else {
            self.copy(length);
        }
    }

    /// The rest of a string, up to its closing quote.
    fn string(&mut self) {
        loop {
            self.copy_while(|byte| byte != b'"' && byte != b'\\' && byte >= b' ');
            match self.peek(0) {
                None => return,
                Some(b'"') => return self.copy(1),
                Some(b'\\') => self.escape(),
                Some(control) => {
                    let _ = write!(self.out, "\\u{control:04x}");
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self) {
        match self.peek(1) {
            Some(b'u') => match (self.unit(0), self.unit(6)) {
                (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => self.copy(12),
                (Some(0xd800..0xe000), _) => {
                    self.out.push_str("\\ufffd");
                    self.at += 6;
                }
                (Some(_), _) => self.copy(6),
                (None, _) => self.literal_backslash(),
            },
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.copy(2),
            _ => self.literal_backslash(),
        }
    }

    fn literal_backslash(&mut self) {
        self.out.push_str("\\\\");
        self.at += 1;
    }

    /// The value of the `\uXXXX` that stands so far ahead.
    fn unit(&self, ahead: usize) -> Option<u32> {
        let escape = self.rest().get(ahead..ahead + 6)?.strip_prefix("\\u")?;
        let plain = escape.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(escape, 16).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(line: &[u8]) -> Value {
        assert!(serde_json::from_slice::<Value>(line).is_err(), "nothing to repair");
        serde_json::from_str(&repair(line).unwrap()).unwrap()
    }

    #[test]
    fn every_known_fault_is_repaired_and_the_rest_stays() {
        for (line, expected) in [
            ("\u{feff}{\"a\":1}".as_bytes(), json!({ "a": 1 })),
            (br#"{"a":1e999,"b":[-1e999,2e3]}"#, json!({ "a": null, "b": [null, 2000.0] })),
            (br#"{"a":NaN,"b":-Infinity}"#, json!({ "a": null, "b": null })),
            (br#"{"a":"\ud800","b":"x\udc00y"}"#, json!({ "a": "\u{fffd}", "b": "x\u{fffd}y" })),
            (br#"{"a":"\ud83d\ud83d\udc19"}"#, json!({ "a": "\u{fffd}\u{1f419}" })),
            (br#"{"a\ud800":"\x\u12"}"#, json!({ "a\u{fffd}": "\\x\\u12" })),
            (b"{\"a\":\"tab\there\x00\"}", json!({ "a": "tab\there\0" })),
            (b"{\"a\":\"caf\xe9 1e999 NaN\"}", json!({ "a": "caf\u{fffd} 1e999 NaN" })),
        ] {
            assert_eq!(read(line), expected, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn what_is_no_json_is_left_to_the_parser() {
        for line in ["", "hello world", "{\"a\":", "\"open", "1e5", "-", "{]}", "\"\\"] {
            let repaired = repair(line.as_bytes()).unwrap_or_else(|| line.to_owned());
            assert!(repaired.len() <= 2 * line.len(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn good_json_is_never_changed(text in any::<String>(), number in any::<f64>(), key in ".*") {
            let value = json!({ key: [text, number, null, true, { "deep": -1 }] });
            prop_assert_eq!(repair(value.to_string().as_bytes()), None);
        }

        #[test]
        fn any_bytes_can_be_looked_at(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = repair(&line);
        }

        #[test]
        fn strings_with_any_escapes_can_be_read(
            text in "(\\\\u[0-9a-f]{0,4}|\\\\ud[89abcdef]00|\\\\[nxq/\"\\\\]|[a-z\t\u{1}]){0,20}",
        ) {
            let line = format!("\"{text}\"");
            let line = repair(line.as_bytes()).unwrap_or(line);
            prop_assert!(serde_json::from_str::<Value>(&line).is_ok(), "{}", line);
        }
    }
}
