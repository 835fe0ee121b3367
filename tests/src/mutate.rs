//! Mutations of lines: what a newer, an older or a broken engine might send instead.
//!
//! [`json`] changes the structure of a JSON line: a field is dropped, renamed, duplicated, nested,
//! moved, or gets a value of another type. [`harmless`] changes what a tolerant reader does not look
//! at. [`bytes`] knows nothing of structure. [`lines`] does one of these to one line of many, or loses,
//! repeats or moves it. All are determined by their dice.

use serde_json::Value;

use crate::dice::Dice;

/// JSON that may have duplicate keys and tokens that are no values, such as `1e999`.
#[derive(Clone, Debug)]
enum Node {
    Token(String),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// Values of other types than the one expected. None is a number that a client uses as an id.
const VALUES: [&str; 22] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "1e999",
    "-0.0",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    r#""""#,
    r#""other""#,
    r#""\ud800""#,
    r#""\u0000\u001b[31m""#,
    r#""completed""#,
    r#""failed""#,
    "[]",
    "{}",
    "[null]",
    r#"{"id":"other"}"#,
    r#"[{"type":"other"}]"#,
];

impl Node {
    fn of(value: &Value) -> Self {
        match value {
            Value::Array(values) => Self::Array(values.iter().map(Self::of).collect()),
            Value::Object(fields) => Self::Object(
                fields.iter().map(|(key, value)| (key.clone(), Self::of(value))).collect(),
            ),
            other => Self::Token(other.to_string()),
        }
    }

    fn write(&self, to: &mut String) {
        match self {
            Self::Token(token) => to.push_str(token),
            Self::Array(nodes) => {
                to.push('[');
                for (n, node) in nodes.iter().enumerate() {
                    if n > 0 {
                        to.push(',');
                    }
                    node.write(to);
                }
                to.push(']');
            }
            Self::Object(fields) => {
                to.push('{');
                for (n, (key, node)) in fields.iter().enumerate() {
                    if n > 0 {
                        to.push(',');
                    }
                    to.push_str(&Value::String(key.clone()).to_string());
                    to.push(':');
                    node.write(to);
                }
                to.push('}');
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Token(_) => 0,
            Self::Array(nodes) => nodes.len(),
            Self::Object(fields) => fields.len(),
        }
    }

    fn child(&mut self, at: usize) -> &mut Self {
        match self {
            Self::Array(nodes) => &mut nodes[at],
            Self::Object(fields) => &mut fields[at].1,
            Self::Token(_) => self,
        }
    }

    /// How many containers with something in them there are, this one included.
    fn containers(&self) -> usize {
        let inside: usize = match self {
            Self::Token(_) => return 0,
            Self::Array(nodes) => nodes.iter().map(Self::containers).sum(),
            Self::Object(fields) => fields.iter().map(|(_, node)| node.containers()).sum(),
        };
        inside + usize::from(self.len() > 0)
    }

    /// The `n`th container with something in it.
    fn container(&mut self, n: &mut usize) -> Option<&mut Self> {
        if self.len() > 0 {
            if *n == 0 {
                return Some(self);
            }
            *n -= 1;
        }
        match self {
            Self::Token(_) => None,
            Self::Array(nodes) => nodes.iter_mut().find_map(|node| node.container(n)),
            Self::Object(fields) => fields.iter_mut().find_map(|(_, node)| node.container(n)),
        }
    }
}

fn value(dice: &mut Dice) -> Node {
    match dice.below(40) {
        0 => Node::Token(format!("{}1{}", "[".repeat(200), "]".repeat(200))),
        1 => Node::Token(format!("\"{}\"", "long ".repeat(20_000))),
        _ => Node::Token(dice.pick(&VALUES).to_owned()),
    }
}

fn renamed(dice: &mut Dice, key: &str) -> String {
    match dice.below(5) {
        0 => format!("{key}2"),
        1 => key.to_uppercase(),
        2 => {
            let snake = |c: char| {
                if c.is_uppercase() { format!("_{}", c.to_lowercase()) } else { c.to_string() }
            };
            let renamed: String = key.chars().map(snake).collect();
            if renamed == key { format!("_{key}") } else { renamed }
        }
        3 => String::new(),
        _ => dice
            .pick(&["type", "status", "item", "text", "turn", "thread", "error", "params"])
            .to_owned(),
    }
}

/// Lines of which one was mutated.
#[derive(Clone, Debug)]
pub struct Drift {
    /// The lines.
    pub lines: Vec<Vec<u8>>,
    /// Which of those before were changed, lost, repeated or moved.
    touched: Vec<usize>,
    /// The line was changed by [`harmless`].
    harmless: bool,
}

impl Drift {
    /// Whether every line for which this holds is what and where it was, for a tolerant reader.
    pub fn keeps(&self, before: &[String], counts: impl Fn(&str) -> bool) -> bool {
        self.harmless || self.leaves(before, counts)
    }

    /// Whether every line for which this holds is the same, byte for byte, and where it was.
    pub fn leaves(&self, before: &[String], counts: impl Fn(&str) -> bool) -> bool {
        !self.touched.iter().any(|at| counts(&before[*at]))
    }

    /// Whether every line for which this holds is still there, wherever that is.
    pub fn has(&self, before: &[String], counts: impl Fn(&str) -> bool) -> bool {
        let is_there = |line: &String| self.lines.iter().any(|it| it == line.as_bytes());
        let mut touched = self.touched.iter().map(|at| &before[*at]);
        self.harmless || touched.all(|line| !counts(line) || is_there(line))
    }
}

/// Lines with one of them mutated, lost, repeated or out of order.
pub fn lines(dice: &mut Dice, lines: &[String]) -> Drift {
    // The last one often: by that the run ends.
    let at = if dice.chance(20) { lines.len() - 1 } else { dice.index(lines.len()) };
    let mut drifted: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
    let (mut touched, mut is_harmless) = (vec![at], false);
    match dice.below(20) {
        0 => drop(drifted.remove(at)),
        1 => {
            let again = drifted[at].clone();
            let to = dice.index(lines.len());
            drifted.insert(to, again);
        }
        2 => {
            let to = dice.index(lines.len());
            drifted.swap(at, to);
            // Those between them are elsewhere too, seen from these.
            touched = (at.min(to)..=at.max(to)).collect();
        }
        3 => drifted[at] = bytes(dice, &drifted[at]),
        4..7 => {
            drifted[at] = harmless(dice, &lines[at]);
            is_harmless = true;
        }
        _ => drifted[at] = json(dice, &lines[at]),
    }
    Drift { lines: drifted, touched, harmless: is_harmless }
}

/// A change of a JSON line that tells a tolerant reader nothing else: fields in another order, a field
/// that is there twice with one value, a field that nobody knows.
pub fn harmless(dice: &mut Dice, line: &str) -> Vec<u8> {
    let Ok(parsed) = serde_json::from_str::<Value>(line) else { return line.into() };
    let mut root = Node::of(&parsed);
    let containers = root.containers();
    let mut n = if containers == 0 { 0 } else { dice.index(containers) };
    if let Some(Node::Object(fields)) = root.container(&mut n) {
        let at = dice.index(fields.len());
        match dice.below(3) {
            0 => fields.rotate_left(at),
            1 => {
                let again = fields[at].clone();
                fields.insert(dice.index(fields.len() + 1), again);
            }
            _ => {
                let value = dice.pick(&["null", "7", r#""text""#, r#"{"a":[{"b":1}]}"#]);
                fields.insert(at, ("from_the_future".to_owned(), Node::Token(value.to_owned())));
            }
        }
    }
    let mut text = String::new();
    root.write(&mut text);
    text.into_bytes()
}

/// One change to one field or element of a JSON line. A line that is no JSON container is cut short.
pub fn json(dice: &mut Dice, line: &str) -> Vec<u8> {
    let Ok(parsed) = serde_json::from_str::<Value>(line) else {
        return bytes(dice, line.as_bytes());
    };
    let mut root = Node::of(&parsed);
    let containers = root.containers();
    if containers == 0 {
        return bytes(dice, line.as_bytes());
    }
    let mut n = dice.index(containers);
    if let Some(container) = root.container(&mut n) {
        change(dice, container);
    }
    let mut text = String::new();
    root.write(&mut text);
    match dice.below(60) {
        0 => text.insert(0, '\u{feff}'),
        1 => text.push_str(" trailing"),
        2 => text.truncate(text.floor_char_boundary(dice.index(text.len() + 1))),
        3 => text = format!("[{text}]"),
        4 => text.insert_str(0, " \t"),
        5 => text.push('\r'),
        _ => {}
    }
    text.into_bytes()
}

fn change(dice: &mut Dice, container: &mut Node) {
    let at = dice.index(container.len());
    match dice.below(9) {
        0 | 1 => match container {
            Node::Array(nodes) => drop(nodes.remove(at)),
            Node::Object(fields) => drop(fields.remove(at)),
            Node::Token(_) => {}
        },
        2 | 3 => *container.child(at) = value(dice),
        4 => match container {
            Node::Object(fields) => fields[at].0 = renamed(dice, &fields[at].0),
            other => *other.child(at) = value(dice),
        },
        5 => {
            let to = dice.index(container.len());
            match container {
                Node::Array(nodes) => nodes.swap(at, to),
                Node::Object(fields) => fields.swap(at, to),
                Node::Token(_) => {}
            }
        }
        6 => {
            let other = if dice.chance(50) { value(dice) } else { container.child(at).clone() };
            let front = dice.chance(50);
            match container {
                Node::Array(nodes) => nodes.insert(if front { 0 } else { at }, other),
                Node::Object(fields) => {
                    let key = fields[at].0.clone();
                    let at = if front { 0 } else { fields.len() };
                    fields.insert(at, (key, other));
                }
                Node::Token(_) => {}
            }
        }
        7 => {
            let inner = container.child(at).clone();
            *container.child(at) = match dice.below(3) {
                0 => Node::Array(vec![inner]),
                1 => Node::Object(vec![("value".to_owned(), inner)]),
                _ => Node::Array(vec![inner.clone(), inner]),
            };
        }
        _ => *container = container.child(at).clone(),
    }
}

/// One to four changes to bytes: flipped, inserted, removed, repeated, or cut.
pub fn bytes(dice: &mut Dice, input: &[u8]) -> Vec<u8> {
    const ODD: [&[u8]; 16] = [
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"\x1b[2J",
        b"1e999",
        b"```",
        b"\xf0\x9f\x90\x99",
        b"\xe2\x80\xae",
        b"`",
        b"\\ud800",
    ];
    let mut output = input.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.index(output.len() + 1);
        let end = (at + dice.index(40)).min(output.len());
        match dice.below(6) {
            0 if at < output.len() => output[at] ^= 1 << dice.below(8),
            1 => drop(output.drain(at..end)),
            2 => {
                let piece = output[at..end].to_vec();
                let to = dice.index(output.len() + 1);
                output.splice(to..to, piece);
            }
            3 if dice.chance(20) => output.truncate(at),
            4 if at < output.len() => {
                output[at] = u8::try_from(dice.below(256)).unwrap_or_default();
            }
            _ => {
                let piece = dice.pick(&ODD);
                output.splice(at..at, piece.iter().copied());
            }
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"method":"m","params":{"threadId":"t","item":{"id":"i","list":[1,2]}}}"#;

    #[test]
    fn the_same_seed_gives_the_same_mutation() {
        let mutated = |seed| json(&mut Dice::new(seed), LINE);
        assert_eq!(mutated(3), mutated(3));
        let different = (0..100).map(mutated).collect::<std::collections::HashSet<_>>();
        assert!(different.len() > 50, "{}", different.len());
    }

    #[test]
    fn a_harmless_change_leaves_every_field_its_value() {
        let before: Value = serde_json::from_str(LINE).unwrap();
        let mut lines = std::collections::HashSet::new();
        for seed in 0..200 {
            let line = harmless(&mut Dice::new(seed), LINE);
            let text = String::from_utf8(line.clone()).unwrap();
            let after: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(after["params"]["item"]["list"], before["params"]["item"]["list"], "{text}");
            assert_eq!(after["method"], before["method"], "{text}");
            lines.insert(line);
        }
        assert!(lines.len() > 20, "{}", lines.len());
    }

    #[test]
    fn keys_can_be_there_twice() {
        let twice =
            |line: &[u8]| String::from_utf8_lossy(line).matches("\"threadId\"").count() == 2;
        assert!((0..2000).any(|seed| twice(&json(&mut Dice::new(seed), LINE))));
    }
}
