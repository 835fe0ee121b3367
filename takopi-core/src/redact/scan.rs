//! Finds credentials in a text, from left to right.
//!
//! The text is read word by word. At the start of a word it is decided whether it begins a credential
//! (a key, a token, a private key), or names one that follows (`api_key=`, `Bearer `). Colours and escapes
//! such as `\n` belong to no word, and colours may stand wherever blanks may. No part of the text is read
//! more often than a fixed number of times.

use std::ops::Range;

use super::REDACTED;

/// Prefixes of keys, and the least number of characters that must follow.
const KEY_PREFIXES: [(&str, usize); 24] = [
    ("sk-", 8),
    ("sk_live_", 8),
    ("sk_test_", 8),
    ("rk_live_", 8),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("xoxa-", 8),
    ("xoxb-", 8),
    ("xoxe-", 8),
    ("xoxp-", 8),
    ("xoxr-", 8),
    ("xoxs-", 8),
    ("xapp-", 8),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("hf_", 16),
    ("npm_", 16),
    ("whsec_", 16),
];

/// The ends of names whose value is a secret, in lower case and without `-` and `_`.
const SECRET_NAMES: [&str; 13] = [
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "secret",
    "token",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "credential",
    "credentials",
    "authorization",
];
/// Headers of which the whole line is a secret.
const SECRET_HEADERS: [&str; 2] = ["cookie", "setcookie"];
/// Values that are no secret, whatever their name.
const PLAIN_VALUES: [&str; 7] = ["null", "none", "true", "false", "undefined", "nil", "..."];

/// The longest name that is looked at.
const LONGEST_NAME: usize = 64;
/// How much of a value is looked at to decide whether it is a secret.
const VALUE_HEAD: usize = 256;
/// What a control sequence of a terminal begins with.
const ESCAPE: u8 = 0x1b;
/// How the first and the last line of a private key end.
const PEM_END: &str = "PRIVATE KEY-----";
/// How long the first line of a private key can be.
const PEM_HEAD: usize = 80;

/// Yields where the credentials of a text are.
pub(super) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0 }
    }

    /// The end of the run of such bytes.
    fn end_of(&self, start: usize, of: impl Fn(u8) -> bool) -> usize {
        let rest = self.bytes.get(start..).unwrap_or_default();
        rest.iter().position(|byte| !of(*byte)).map_or(self.bytes.len(), |length| start + length)
    }

    fn rest(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..).unwrap_or_default()
    }

    /// The end of the control sequence of a terminal that begins here, such as a colour. The escape character may be escaped itself.
    fn control_sequence(&self, start: usize) -> Option<usize> {
        let rest = self.rest(start);
        let escape = match rest {
            [ESCAPE, ..] => 1,
            [b'\\', b'e', ..] => 2,
            [b'\\', b'x', b'1', b'b' | b'B', ..] | [b'\\', b'0', b'3', b'3', ..] => 4,
            [b'\\', b'u', b'0', b'0', b'1', b'b' | b'B', ..]
            | [b'\\', b'u', b'{', b'1', b'b' | b'B', b'}', ..] => 6,
            _ => return None,
        };
        let parameters = rest.get(escape..)?.strip_prefix(b"[")?;
        let length = parameters.iter().position(|byte| !matches!(byte, b'0'..=b'?'))?;
        let ends = match parameters[length] {
            b'm' | b'K' | b'J' | b'H' => true,
            // Without a parameter it is as likely the first letter of a word.
            last => length > 0 && matches!(last, b'@'..=b'~'),
        };
        ends.then_some(start + escape + 1 + length + 1)
    }

    /// Where the next word begins.
    fn word_from(&self, mut at: usize) -> usize {
        loop {
            at = self.end_of(at, |byte| !is_word(byte) && !matches!(byte, ESCAPE | b'\\'));
            at = match (self.control_sequence(at), self.bytes.get(at)) {
                (Some(end), _) => end,
                (None, Some(&(ESCAPE | b'\\'))) => at + 1,
                (None, _) => return at,
            };
        }
    }

    /// The end of the blanks from here, and of the colours among them.
    fn end_of_blanks(&self, mut at: usize) -> usize {
        loop {
            at = self.end_of(at, is_blank);
            match self.control_sequence(at) {
                Some(end) => at = end,
                None => return at,
            }
        }
    }

    /// How long the rest of an escape such as `\n` or `\u0022` is that the word from `start` to `end` begins with.
    fn escape_length(&self, start: usize, end: usize) -> usize {
        let length = match &self.bytes[start..end] {
            [b'u', digits @ ..]
                if digits.iter().take(4).filter(|it| it.is_ascii_hexdigit()).count() == 4 =>
            {
                5
            }
            [b'n' | b'r' | b't' | b'b' | b'f', ..] => 1,
            _ => 0,
        };
        // A letter alone is a word.
        if end - start > length { length } else { 0 }
    }

    /// What the word from `start` to `end` begins or names, if it is a secret.
    fn secret_at(&self, start: usize, end: usize) -> Option<Range<usize>> {
        let word = &self.text[start..end];
        if word.starts_with("-----BEGIN") {
            return self.private_key(start);
        }
        key(start, word)
            .or_else(|| self.json_web_token(start, end, word))
            .or_else(|| self.scheme(end, word))
            .or_else(|| self.named(start, end, word))
            .or_else(|| self.url(end))
    }

    /// `eyJ….eyJ….…`; a token may be cut off.
    fn json_web_token(&self, start: usize, end: usize, word: &str) -> Option<Range<usize>> {
        if !word.starts_with("eyJ") || word.len() < 12 || self.bytes.get(end) != Some(&b'.') {
            return None;
        }
        let claims = self.end_of(end + 1, is_word);
        if claims - end < 8 {
            return None;
        }
        let signed = self.bytes.get(claims) == Some(&b'.');
        Some(start..if signed { self.end_of(claims + 1, is_word) } else { claims })
    }

    /// `Bearer …`, `Basic …`.
    fn scheme(&self, end: usize, word: &str) -> Option<Range<usize>> {
        if !word.eq_ignore_ascii_case("bearer") && !word.eq_ignore_ascii_case("basic") {
            return None;
        }
        let start = self.end_of_blanks(end);
        let end_of_value = self.end_of(start, is_token);
        let value = &self.text[start..end_of_value];
        (start > end && looks_random(value)).then_some(start..end_of_value)
    }

    /// `api_key=…`, `"api_key": "…"`, `password: …`, `--token …`, `Authorization: Bearer …`.
    fn named(&self, start: usize, end: usize, word: &str) -> Option<Range<usize>> {
        let name = folded_name(word)?;
        let header = SECRET_HEADERS.contains(&name.as_str());
        if !header && !names_secret(&name) {
            return None;
        }
        // `"name": ` and `\"name\": `.
        let mut at = end;
        let escaped = self.rest(at).starts_with(b"\\\"") || self.rest(at).starts_with(b"\\'");
        at += usize::from(escaped);
        let quoted = matches!(self.bytes.get(at), Some(b'"' | b'\''));
        at += usize::from(quoted);
        at = self.end_of_blanks(at);
        let separator = self.bytes.get(at).copied().filter(|byte| matches!(byte, b'=' | b':'));
        if separator.is_some() {
            at = self.end_of_blanks(at + 1);
        } else if !(word.starts_with("--") && at > end) {
            return None;
        }
        if header && separator == Some(b':') {
            return self.value(at, |byte| !matches!(byte, b'\n' | b'\r' | b'"'), |_| true);
        }
        if matches!(self.rest(at), [b'"' | b'\'', ..] | [b'\\', b'"', ..]) {
            return self.quoted_value(at);
        }
        let authorization = name.ends_with("authorization");
        if authorization {
            let scheme_ends = self.end_of(at, |byte| byte.is_ascii_alphabetic());
            let token = self.end_of_blanks(scheme_ends);
            if scheme_ends > at && token > scheme_ends {
                return self.value(token, is_value, |_| true);
            }
        }
        // `name=value` is written by machines, `name: value` and `--name value` by people, too.
        let sure = separator == Some(b'=') || quoted && start > 0;
        self.value(at, is_value, |head| sure || looks_random(head))
    }

    /// The value that begins here, if it is a secret. Only its head is read to decide that.
    fn value(
        &self,
        start: usize,
        of: impl Fn(u8) -> bool + Copy,
        is_secret: impl FnOnce(&str) -> bool,
    ) -> Option<Range<usize>> {
        let limit = self.text.floor_char_boundary(start + VALUE_HEAD);
        let rest = &self.bytes[start..limit.max(start)];
        let length = rest.iter().position(|byte| !of(*byte)).unwrap_or(rest.len());
        let head = &self.text[start..start + length];
        (!is_plain(head) && is_secret(head)).then(|| start..self.end_of(start + length, of))
    }

    /// The inside of the quoted value that begins here, if it is a secret.
    fn quoted_value(&self, at: usize) -> Option<Range<usize>> {
        let escaped = self.bytes.get(at) == Some(&b'\\');
        let open = at + usize::from(escaped);
        let quote = *self.bytes.get(open)?;
        let start = open + 1;
        if self.rest(start).starts_with(REDACTED.as_bytes()) {
            return None;
        }
        let mut end = start;
        while let Some(byte) = self.bytes.get(end) {
            match byte {
                b'\\' if escaped && self.bytes.get(end + 1) == Some(&b'"') => break,
                b'\\' => end += 2,
                byte if *byte == quote => break,
                _ => end += 1,
            }
        }
        let value = start..self.text.floor_char_boundary(end);
        (!is_plain(&self.text[value.clone()])).then_some(value)
    }

    /// The password in `scheme://user:password@host`, or the token in `scheme://token@host`.
    fn url(&self, end: usize) -> Option<Range<usize>> {
        // In JSON the slashes may be escaped.
        let opening =
            ["://", r":\/\/"].into_iter().find(|it| self.rest(end).starts_with(it.as_bytes()))?;
        let start = end + opening.len();
        let authority = start
            ..self.end_of(start, |byte| {
                !byte.is_ascii_whitespace() && !b"/?#\"'<>\\".contains(&byte)
            });
        let at = start + self.text[authority].rfind('@')?;
        let user = &self.text[start..at];
        match user.find(':') {
            Some(colon) => {
                let password = start + colon + 1..at;
                (!is_plain(&self.text[password.clone()])).then_some(password)
            }
            None => looks_random(user).then_some(start..at),
        }
    }

    /// `-----BEGIN … PRIVATE KEY-----` up to its end, or that of the text.
    fn private_key(&self, start: usize) -> Option<Range<usize>> {
        let head = &self.text[start..self.text.floor_char_boundary(start + PEM_HEAD)];
        let head = head.split(['\n', '\\']).next().unwrap_or_default();
        if !head.contains("PRIVATE KEY") {
            return None;
        }
        let begins = start + head.find(PEM_END).map_or(head.len(), |at| at + PEM_END.len());
        let ends = self.text[begins..]
            .find(PEM_END)
            .map_or(self.text.len(), |at| begins + at + PEM_END.len());
        Some(start..ends)
    }
}

impl Iterator for Scanner<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        while self.at < self.bytes.len() {
            let mut start = self.word_from(self.at);
            let end = self.end_of(start, is_word);
            if start > self.at && self.bytes[start - 1] == b'\\' {
                start += self.escape_length(start, end);
            }
            self.at = end;
            if let Some(secret) = self.secret_at(start, end).filter(|secret| !secret.is_empty()) {
                self.at = secret.end;
                return Some(secret);
            }
        }
        None
    }
}

/// `sk-…`, `ghp_…`, `AKIA…`.
fn key(start: usize, word: &str) -> Option<Range<usize>> {
    let (prefix, least) = KEY_PREFIXES.iter().find(|(prefix, _)| word.starts_with(prefix))?;
    let rest = &word[prefix.len()..];
    // `sk-` and the like also begin names of things, which have no digits and capital letters.
    let random = rest.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    (rest.len() >= *least && random).then_some(start..start + word.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// What a bearer token is made of.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// What a value without quotes is made of.
fn is_value(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !b",;&\"'`)}<>\\".contains(&byte)
}

/// Whether the value of a member of this name is a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let is_named = folded_name(name)
        .is_some_and(|name| names_secret(&name) || SECRET_HEADERS.contains(&name.as_str()));
    is_named && !is_plain(value)
}

/// Whether a folded name ends as those of secrets do.
fn names_secret(name: &str) -> bool {
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

/// Whether a value is no secret, whatever its name.
fn is_plain(value: &str) -> bool {
    value.starts_with(REDACTED)
        || PLAIN_VALUES.iter().any(|plain| value.eq_ignore_ascii_case(plain))
        || value.trim().is_empty()
}

/// A name in lower case without `-` and `_`; `None` if it is too long to be one.
fn folded_name(word: &str) -> Option<String> {
    if word.len() > LONGEST_NAME {
        return None;
    }
    let letters = word.bytes().filter(|byte| !matches!(byte, b'-' | b'_'));
    Some(letters.map(|byte| char::from(byte.to_ascii_lowercase())).collect())
}

/// Whether a value is rather random than a word, a number, a path, an address or an id.
fn looks_random(value: &str) -> bool {
    const LONGEST_WORD: usize = 24;
    let value = value.trim_end_matches(['.', ':', '!', '?']);
    let has = |of: fn(&u8) -> bool| value.bytes().any(|byte| of(&byte));
    let letters = has(u8::is_ascii_alphabetic);
    let mixed = has(u8::is_ascii_digit)
        || value.bytes().skip(1).any(|byte| byte.is_ascii_uppercase())
            && has(u8::is_ascii_lowercase);
    let plain = value.starts_with(['/', '~', '.', '[', '<', '{', '$', '('])
        || value.contains("://")
        || is_uuid(value);
    value.len() >= 6 && letters && !plain && (mixed || value.len() > LONGEST_WORD)
}

fn is_uuid(value: &str) -> bool {
    value.len() == 36
        && value.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
