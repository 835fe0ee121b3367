//! Code as HTML: colours for comments, strings, numbers, keywords, types and calls, and for the lines of a diff.
//!
//! A small lexer with a table of languages. A full set of grammars would double the time that the first build
//! takes, and slow a debug build down to seconds for each block; what a reader needs to find their way in an answer
//! are comments, strings and keywords. Promises:
//! - the text of the result is the code, escaped: nothing is added, removed or interpreted;
//! - one pass, in time and memory proportional to the code; longer code than [`MOST`] is not coloured;
//! - an unknown language is shown without colours.

use std::fmt::Write as _;

/// The most bytes of code that are coloured.
const MOST: usize = 256 * 1024;

/// How the words of a language look.
struct Language {
    /// What begins a comment that ends with the line.
    line: &'static [&'static str],
    /// What begins and ends other comments.
    block: Option<(&'static str, &'static str)>,
    /// The characters that begin and end a text.
    quotes: &'static str,
    keywords: &'static [&'static str],
    /// Whether words with a capital are types.
    types: bool,
}

const C_LIKE: Language = Language {
    line: &["//"],
    block: Some(("/*", "*/")),
    quotes: "\"'`",
    keywords: &[
        "abstract",
        "as",
        "async",
        "await",
        "auto",
        "bool",
        "boolean",
        "break",
        "byte",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "constexpr",
        "continue",
        "data",
        "default",
        "defer",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "export",
        "extends",
        "extern",
        "false",
        "final",
        "finally",
        "float",
        "for",
        "foreach",
        "from",
        "fun",
        "func",
        "function",
        "get",
        "go",
        "goto",
        "if",
        "implements",
        "import",
        "in",
        "include",
        "inline",
        "instanceof",
        "int",
        "interface",
        "internal",
        "is",
        "let",
        "long",
        "map",
        "namespace",
        "new",
        "nil",
        "null",
        "nullptr",
        "of",
        "operator",
        "override",
        "package",
        "private",
        "protected",
        "protocol",
        "public",
        "range",
        "readonly",
        "record",
        "return",
        "select",
        "set",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "super",
        "switch",
        "template",
        "this",
        "throw",
        "throws",
        "true",
        "try",
        "type",
        "typedef",
        "typeof",
        "undefined",
        "union",
        "unsigned",
        "using",
        "val",
        "var",
        "virtual",
        "void",
        "volatile",
        "when",
        "where",
        "while",
        "with",
        "yield",
    ],
    types: true,
};

const RUST: Language = Language {
    quotes: "\"",
    keywords: &[
        "as", "async", "await", "bool", "box", "break", "char", "const", "continue", "crate",
        "dyn", "else", "enum", "extern", "f32", "f64", "false", "fn", "for", "i8", "i16", "i32",
        "i64", "if", "impl", "in", "isize", "let", "loop", "match", "mod", "move", "mut", "pub",
        "ref", "return", "self", "static", "str", "struct", "super", "trait", "true", "type", "u8",
        "u16", "u32", "u64", "unsafe", "use", "usize", "where", "while",
    ],
    ..C_LIKE
};

const PYTHON: Language = Language {
    line: &["#"],
    block: None,
    quotes: "\"'",
    keywords: &[
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "case", "class",
        "continue", "def", "del", "elif", "else", "end", "ensure", "except", "finally", "for",
        "from", "global", "if", "import", "in", "is", "lambda", "match", "module", "nil",
        "nonlocal", "not", "or", "pass", "raise", "require", "rescue", "return", "self", "then",
        "try", "unless", "until", "while", "with", "yield",
    ],
    types: true,
};

const SHELL: Language = Language {
    line: &["#"],
    block: None,
    quotes: "\"'",
    keywords: &[
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "RUN",
        "USER",
        "VOLUME",
        "WORKDIR",
        "alias",
        "case",
        "cd",
        "do",
        "done",
        "echo",
        "elif",
        "else",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "false",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "local",
        "read",
        "readonly",
        "return",
        "set",
        "shift",
        "source",
        "sudo",
        "then",
        "trap",
        "true",
        "unset",
        "until",
        "while",
    ],
    types: false,
};

const SQL: Language = Language {
    line: &["--"],
    block: Some(("/*", "*/")),
    quotes: "'\"",
    keywords: &[
        "add",
        "all",
        "alter",
        "and",
        "as",
        "asc",
        "begin",
        "between",
        "by",
        "case",
        "commit",
        "count",
        "create",
        "cross",
        "default",
        "delete",
        "desc",
        "distinct",
        "drop",
        "else",
        "end",
        "exists",
        "false",
        "foreign",
        "from",
        "full",
        "group",
        "having",
        "if",
        "in",
        "index",
        "inner",
        "insert",
        "into",
        "is",
        "join",
        "key",
        "left",
        "like",
        "limit",
        "not",
        "null",
        "offset",
        "on",
        "or",
        "order",
        "outer",
        "primary",
        "references",
        "returning",
        "right",
        "rollback",
        "select",
        "set",
        "table",
        "then",
        "true",
        "union",
        "unique",
        "update",
        "using",
        "values",
        "view",
        "when",
        "where",
        "with",
    ],
    types: false,
};

const CONFIG: Language = Language {
    line: &["#", ";"],
    block: None,
    quotes: "\"'",
    keywords: &["false", "no", "null", "off", "on", "true", "yes"],
    types: false,
};

const JSON: Language = Language {
    line: &["//"],
    quotes: "\"",
    keywords: &["false", "null", "true"],
    types: false,
    ..C_LIKE
};

const MARKUP: Language =
    Language { line: &[], block: Some(("<!--", "-->")), quotes: "\"", keywords: &[], types: false };

const CSS: Language =
    Language { line: &[], quotes: "\"'", keywords: &["important"], types: false, ..C_LIKE };

const LUA: Language = Language { line: &["--"], types: false, ..PYTHON };

fn language(name: &str) -> Option<&'static Language> {
    Some(match name {
        "rust" | "rs" => &RUST,
        "python" | "py" | "ruby" | "rb" | "elixir" | "julia" => &PYTHON,
        "sh" | "bash" | "zsh" | "shell" | "console" | "fish" | "dockerfile" | "docker" | "make"
        | "makefile" => &SHELL,
        "sql" | "postgresql" | "sqlite" | "mysql" => &SQL,
        "toml" | "ini" | "yaml" | "yml" | "conf" | "env" | "properties" => &CONFIG,
        "json" | "jsonc" | "json5" | "jsonl" => &JSON,
        "html" | "xml" | "svg" | "vue" | "svelte" => &MARKUP,
        "css" | "scss" | "less" => &CSS,
        "lua" | "haskell" | "hs" => &LUA,
        "c" | "h" | "cpp" | "c++" | "cc" | "hpp" | "cs" | "csharp" | "go" | "golang" | "java"
        | "javascript" | "js" | "jsx" | "kotlin" | "kt" | "mjs" | "objc" | "php" | "proto"
        | "scala" | "swift" | "ts" | "tsx" | "typescript" | "dart" | "zig" => &C_LIKE,
        _ => return None,
    })
}

/// Escapes a text for HTML.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    push(&mut html, text);
    html
}

fn push(html: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
}

fn push_span(html: &mut String, class: &str, text: &str) {
    let _ = write!(html, "<span class=\"{class}\">");
    push(html, text);
    html.push_str("</span>");
}

/// Code in this language.
pub(super) fn code(code: &str, name: &str) -> String {
    if code.len() > MOST {
        return escape(code);
    }
    let name = name.to_ascii_lowercase();
    if matches!(name.as_str(), "diff" | "patch") {
        return diff(code);
    }
    match language(&name) {
        Some(language) => colored(code, language, name.contains("sql")),
        None => escape(code),
    }
}

/// The lines of a diff.
pub(super) fn diff(text: &str) -> String {
    if text.len() > MOST {
        return escape(text);
    }
    let mut html = String::with_capacity(text.len() * 3 / 2);
    for line in text.split_inclusive('\n') {
        let class = match line.as_bytes() {
            [b'+', ..] if !line.starts_with("+++ ") => "add",
            [b'-', ..] if !line.starts_with("--- ") => "del",
            [b'@', b'@', ..] => "hunk",
            _ => {
                push(&mut html, line);
                continue;
            }
        };
        push_span(&mut html, class, line);
    }
    html
}

fn colored(code: &str, language: &Language, folds_case: bool) -> String {
    let mut html = String::with_capacity(code.len() * 2);
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let (length, class) = token(rest, first, language, folds_case);
        let (text, behind) = rest.split_at(length);
        match class {
            Some(class) => push_span(&mut html, class, text),
            None => push(&mut html, text),
        }
        rest = behind;
    }
    html
}

/// The length of the next token, and its class.
fn token(
    rest: &str,
    first: char,
    language: &Language,
    folds_case: bool,
) -> (usize, Option<&'static str>) {
    let line_end = || rest.find('\n').unwrap_or(rest.len());
    if language.line.iter().any(|begin| rest.starts_with(begin)) {
        return (line_end(), Some("c"));
    }
    if let Some((begin, end)) = language.block
        && rest.starts_with(begin)
    {
        let length = rest[begin.len()..].find(end).map(|at| at + begin.len() + end.len());
        return (length.unwrap_or(rest.len()), Some("c"));
    }
    if language.quotes.contains(first) {
        return (quoted(rest, first), Some("s"));
    }
    if first.is_ascii_digit() {
        let length = rest.find(|it: char| !(it.is_ascii_alphanumeric() || it == '.' || it == '_'));
        return (length.unwrap_or(rest.len()), Some("n"));
    }
    if first.is_alphabetic() || first == '_' {
        let length =
            rest.find(|it: char| !(it.is_alphanumeric() || it == '_')).unwrap_or(rest.len());
        let word = &rest[..length];
        let lower = if folds_case { word.to_ascii_lowercase() } else { String::new() };
        let known = if folds_case { lower.as_str() } else { word };
        let class = if language.keywords.contains(&known) {
            Some("k")
        } else if rest[length..].starts_with('(') || rest[length..].starts_with("!(") {
            Some("f")
        } else {
            (language.types && first.is_uppercase()).then_some("t")
        };
        return (length, class);
    }
    (first.len_utf8(), None)
}

/// The length of a quoted text: to its end, or to the end of the line. Three quotes and backticks span lines.
fn quoted(rest: &str, quote: char) -> usize {
    let triple: String = [quote; 3].iter().collect();
    if quote != '`' && rest.starts_with(&triple) {
        return rest[3..].find(&triple).map_or(rest.len(), |at| at + 6);
    }
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' if quote != '`' => return at,
            other if other == quote => return at + other.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text of HTML.
    fn text(html: &str) -> String {
        let mut text = String::new();
        let mut rest = html;
        while let Some(at) = rest.find('<') {
            text.push_str(&rest[..at]);
            rest = &rest[at + rest[at..].find('>').unwrap() + 1..];
        }
        text.push_str(rest);
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    }

    #[test]
    fn words_of_a_language_are_marked() {
        let shown = code("let a = f(1); // it's\n", "rust");
        assert_eq!(
            shown,
            "<span class=\"k\">let</span> a = <span class=\"f\">f</span>(<span class=\"n\">1</span>); \
             <span class=\"c\">// it's</span>\n"
        );
        assert_eq!(
            code("SELECT 'a'", "SQL"),
            "<span class=\"k\">SELECT</span> <span class=\"s\">'a'</span>"
        );
        assert_eq!(code("a < \"b\"", "martian"), "a &lt; &quot;b&quot;");
    }

    #[test]
    fn the_lines_of_a_diff_are_marked() {
        let shown = code("--- a\n+++ b\n@@ -1 +1 @@\n-<x>\n+y\n z\n", "diff");
        assert_eq!(
            shown,
            "--- a\n+++ b\n<span class=\"hunk\">@@ -1 +1 @@\n</span><span class=\"del\">-&lt;x&gt;\n</span>\
             <span class=\"add\">+y\n</span> z\n"
        );
    }

    proptest! {
        #[test]
        fn the_text_stays_the_same(
            source in r#"([<>/="'`\\ \n#*&;+-]|//|/\*|\*/|"""|let|fn|[a-zA-Z0-9é])*"#,
            name in prop::sample::select(vec!["rust", "py", "ts", "sh", "sql", "yaml", "json", "html", "css", "diff", ""])
        ) {
            prop_assert_eq!(text(&code(&source, name)), source);
        }
    }
}
