//! Answers in Markdown, laid out for the terminal, whole and in pieces.

use proptest::prelude::*;
use takopi_bridge::present::terminal::{Written, answer};
use takopi_bridge::present::{Line, Style};

use crate::terminal::text;

#[test]
fn an_answer_is_laid_out_for_reading() {
    let markdown = "\
# Result

The parser reads **tabs** and *spaces*; see `src/lib.rs` and
[the guide](https://example.org/guide).

1. first
2. second, which is long enough that it has to be wrapped
   - inner
   - [x] done

> quoted, and
> so on

```rust
fn main() {
\tprintln!(\"hi\");
}
```

| name | size |
|------|------|
| a    | 10   |
| long | 2    |

---
the end
";
    let lines = answer(markdown, 44);
    insta::assert_snapshot!(text(&lines), @r#"
    Result

    The parser reads tabs and spaces; see
    src/lib.rs and the guide
    https://example.org/guide.

    1. first
    2. second, which is long enough that it has
       to be wrapped
       • inner
       • [x] done

    │ quoted, and so on

      fn main() {
          println!("hi");
      }

    name  size
    a     10
    long  2

    ────────────────────────────────────────

    the end
    "#);
    let strong: Vec<&str> = lines
        .iter()
        .flat_map(Line::spans)
        .filter(|span| matches!(span.style, Style::Strong | Style::Heading))
        .map(|span| span.text.trim())
        .collect();
    assert_eq!(strong, ["Result", "tabs", "name", "size"]);
}

const TABLE: &str = "\
| name | what it does | size |
|:-----|:------------:|-----:|
| parser | reads **tabs** and spaces and everything between | 1000 |
| a | b | 2 |
";

#[test]
fn columns_of_a_table_are_aligned_and_cells_wrapped() {
    insta::assert_snapshot!(text(&answer(TABLE, 100)), @"
    name                    what it does                  size
    parser  reads tabs and spaces and everything between  1000
    a                            b                           2
    ");
    insta::assert_snapshot!(text(&answer(TABLE, 40)), @"
    name           what it does         size
    ────────────────────────────────────────
    parser  reads tabs and spaces and   1000
                everything between
    ────────────────────────────────────────
    a                   b                  2
    ");
}

#[test]
fn nothing_of_a_table_is_lost_on_a_narrow_screen() {
    insta::assert_snapshot!(text(&answer(TABLE, 20)), @"
    name: parser
    what it does: reads
    tabs and spaces and
    everything between
    size: 1000

    name: a
    what it does: b
    size: 2
    ");
}

#[test]
fn struck_text_is_struck_and_not_italic() {
    let line = &answer("~~old~~ *new*", 40)[0];
    assert_eq!(line.ansi(), "\x1b[9mold\x1b[0m \x1b[3mnew\x1b[0m");
}

/// The lines of a text that comes in pieces of so many characters.
fn written(markdown: &str, pieces: &[usize], width: usize) -> Vec<Line> {
    let mut written = Written::default();
    let mut lines = Vec::new();
    let mut rest = markdown;
    for length in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let at = rest.char_indices().nth(*length).map_or(rest.len(), |(at, _)| at);
        let (piece, later) = rest.split_at(at);
        lines.extend(written.push(piece, width));
        rest = later;
    }
    lines.extend(written.end(width));
    lines
}

/// Blocks of Markdown.
const BLOCKS: [&str; 14] = [
    "# A *heading*",
    "Some **bold** text that is\nlong enough to be wrapped at some width, `code` and 日本語 e\u{301}.",
    "Setext\n------",
    "1. one\n1. two\n1. three\n   - inner\n   - [x] done\n\n   more\n1. four",
    "- a\n\n- b\n- c",
    "  * indented\n  * list\n    and more",
    "```rust\nfn main() {\n\n    let a = \"```\";\n}\n```",
    "~~~~\n```\n~~~\n~~~~",
    "> quoted\n> - list\n>\n> ```\n> code\n> ```",
    TABLE,
    "---",
    "    indented code\n\n    more of it",
    "<div>\nhtml\n</div>",
    "see [the guide](https://example.org/guide) and <https://example.org>",
];

#[test]
fn complete_blocks_items_and_lines_of_code_come_before_the_end() {
    for (before, after, complete) in [
        ("One.\n\nTw", "o.", "One."),
        ("- one\n- two\n- th", "ree", "• one"),
        ("```\none\ntwo\nth", "ree\n```", "  one\n  two"),
        ("3. one\n9. two\n1. th", "ree", "3. one"),
    ] {
        let mut written = Written::default();
        assert_eq!(text(&written.push(before, 40)), complete, "{before}");
        let mut lines = written.push(after, 40);
        lines.extend(written.end(40));
        let whole = format!("{complete}\n{}", text(&lines));
        assert_eq!(whole, text(&answer(&format!("{before}{after}"), 40)));
    }
}

#[test]
fn the_target_of_a_link_that_is_defined_later_is_not_lost() {
    let lines = written("See [it] now.\n\nMore.\n\n[it]: https://example.org\n", &[7], 60);
    assert!(text(&lines).contains("[it]: https://example.org"), "{}", text(&lines));
}

#[test]
fn plain_text_stays_as_it_is() {
    assert_eq!(text(&answer("just a word", 80)), "just a word");
    assert_eq!(text(&answer("", 80)), "");
    assert_eq!(text(&answer("\x1b[31mred\x07", 80)), "�[31mred�");
}

proptest! {
    #[test]
    fn an_answer_in_pieces_has_the_lines_of_the_whole(
        blocks in proptest::collection::vec(0..BLOCKS.len(), 1..8),
        pieces in proptest::collection::vec(1..30_usize, 1..8),
        width in 12..90_usize,
    ) {
        let blocks: Vec<&str> = blocks.iter().map(|n| BLOCKS[*n]).collect();
        let markdown = blocks.join("\n\n");
        prop_assert_eq!(text(&written(&markdown, &pieces, width)), text(&answer(&markdown, width)), "{}", markdown);
    }

    #[test]
    fn no_word_of_a_table_is_lost(
        rows in proptest::collection::vec(proptest::collection::vec("[a-z]{1,12}( [a-z]{1,6})?", 1..6), 2..5),
        width in 8..50_usize,
    ) {
        let columns = rows.iter().map(Vec::len).min().unwrap();
        let row = |row: &Vec<String>| format!("| {} |\n", row[..columns].join(" | "));
        let mut markdown = row(&rows[0]) + &format!("|{}\n", "---|".repeat(columns));
        markdown.extend(rows[1..].iter().map(row));
        let bare = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
        let lines = answer(&markdown, width);
        let mut shown: Vec<char> = bare(&text(&lines)).chars().collect();
        let mut said: Vec<char> = rows.iter().flat_map(|row| &row[..columns]).flat_map(|it| bare(it).chars().collect::<Vec<_>>()).collect();
        shown.sort_unstable();
        said.sort_unstable();
        // In a list the names of the columns are repeated.
        prop_assert!(said.iter().all(|it| shown.iter().filter(|x| x == &it).count() >= said.iter().filter(|x| x == &it).count()));
        prop_assert!(!text(&lines).contains('…'));
        for line in lines {
            prop_assert!(line.width() <= width, "{:?}", line.plain());
        }
    }

    #[test]
    fn markdown_of_any_kind_fits_but_for_code(text in "[-a-z0-9*_`>#| \\[\\]()\n日]{0,120}", width in 10..50_usize) {
        let is_code = |line: &Line| line.spans().iter().any(|span| span.style == Style::Code);
        for line in answer(&text, width) {
            prop_assert!(is_code(&line) || line.width() <= width, "{:?}", line.plain());
        }
    }
}
