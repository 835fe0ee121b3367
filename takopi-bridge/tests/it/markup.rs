//! Markdown in the forms of chats.

use proptest::prelude::*;
use proptest::sample::select;
use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::json;
use takopi_bridge::present::Limit;
use takopi_bridge::present::markup::{RichStyle, RichText, TelegramText};

const ANSWER: &str = "\
# Report

It **works _well_**, see [the `log`](https://x.y/log?a=1&b=2) or [main.rs](/w/src/main.rs#L3).
~~Not~~ <me@x.y>

1. first
   - nested `a < b`
   - [x] done

   more of it
2. second

   ```rust
   let a = 1;
   ```

> quoted **words**
> > deeper

| name | ok |
|------|----|
| `a`  | y  |

---
the *end* 🐙 **`code` in bold**
";

fn rich(markdown: &str) -> RichText {
    RichText::from_markdown(markdown)
}

#[test]
fn plain_text_keeps_lists_quotes_tables_and_targets() {
    insta::assert_snapshot!(rich(ANSWER).plain());
}

#[test]
fn html_has_few_tags_and_is_escaped() {
    insta::assert_snapshot!(rich(ANSWER).html());
    let shown = rich("<script>alert(1)</script> <b>x</b> [a](javascript:alert(1)) `<i>`").html();
    assert!(!shown.contains("<s") && !shown.contains("<b>") && !shown.contains("<a "), "{shown}");
    let shown = rich("[a](https://x.y/?q=\"&lt;)").html();
    assert_eq!(shown, "<a href=\"https://x.y/?q=&quot;&lt;\">a</a>");
}

#[test]
fn mrkdwn_is_what_slack_reads() {
    insta::assert_snapshot!(rich(ANSWER).mrkdwn());
    assert_eq!(rich("<!channel> <@U1> & co").mrkdwn(), "&lt;!channel&gt; &lt;@U1&gt; &amp; co");
    assert_eq!(rich("in**side**words").mrkdwn(), "in\u{200b}*side*\u{200b}words");
    assert_eq!(rich("**two\nlines**").mrkdwn(), "*two*\n*lines*");
    assert_eq!(rich("``a`b``").mrkdwn(), "a`b");
    assert_eq!(rich("[**a**|b](https://x.y/a|b)").mrkdwn(), "<https://x.y/a%7Cb|a|b>");
}

#[test]
fn telegram_gets_entities_in_utf_16_units() {
    let message = rich(ANSWER).telegram();
    insta::assert_json_snapshot!(
        json!({ "text": message.text, "entities": message.entities_json() })
    );
    let message = rich("🐙 **x** ```").telegram();
    assert_eq!((message.entities[0].offset, message.entities[0].length), (3, 1));
}

#[test]
fn a_wide_table_becomes_a_list_of_its_rows() {
    let wide = "| file | what it does there and why |\n|---|---|\n| a.rs | reads the **lines** of a file |\n\
                | [b](https://x.y) | |";
    assert_eq!(
        rich(wide).plain(),
        "• file: a.rs\n  what it does there and why: reads the lines of a file\n\
         • file: b (https://x.y)\n  what it does there and why: "
            .trim_end()
    );
}

#[test]
fn a_long_head_of_many_rows_is_an_item_of_its_own() {
    let long = "a very long name indeed ".repeat(40);
    let rows: Vec<String> = (0..20).map(|row| format!("| r{row} | v{row} | |\n")).collect();
    let shown = rich(&format!("| name | {long} | {long} |\n|-|-|-|\n{}", rows.concat())).plain();
    let long = long.trim();
    let begins =
        format!("• name\n  {long}\n  {long}\n• name: r0\n  a very long…: v0\n• name: r1\n");
    assert!(shown.starts_with(&begins), "{shown}");
    assert!(shown.ends_with("• name: r19\n  a very long…: v19"), "{shown}");
}

#[test]
fn margins_are_bounded_and_no_mark_is_lost() {
    let quotes = format!("- {}one\ntwo", "> ".repeat(40));
    let expected = format!("• {}one\n  {}two", "> ".repeat(40), "> ".repeat(15));
    assert_eq!(rich(&quotes).plain(), expected);
    let items = format!("{}one\ntwo", "- ".repeat(40));
    assert_eq!(rich(&items).plain(), format!("{}one\n{}two", "• ".repeat(40), " ".repeat(32)));
}

#[test]
fn code_in_a_link_with_an_image_is_text() {
    let shown = rich("[![x](https://x.y/1) `a`](https://x.y/2)").html();
    assert_eq!(shown, "<a href=\"https://x.y/2\">x a</a>");
}

#[test]
fn control_characters_never_get_through() {
    let shown =
        rich("a\u{1b}[2J &#27;[8m `\u{9b}` [x](y\u{1b}) [z](https://x.y/\u{202e}) &#x202e;b")
            .plain();
    assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{shown:?}");
}

#[test]
fn a_long_text_with_many_styles_is_converted() {
    let long = "**bold** `code` [l](https://x.y) text\n\n- item\n\n".repeat(20_000);
    let message = rich(&long);
    assert_eq!(message.spans().len(), 60_000);
    assert!(message.telegram().entities.len() == 60_000 && !message.mrkdwn().is_empty());
}

/// Markdown made of everything that nests or breaks.
fn any_markdown() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "a",
        "word ",
        " ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "```",
        "```rust\n",
        "\n```\n",
        "`",
        "``",
        "~~",
        "~",
        "- ",
        "1. ",
        "> ",
        "    ",
        "# ",
        "*",
        "**",
        "_",
        "__",
        "\\",
        "|",
        "|---|---|\n",
        "| a | b |\n",
        "<br>",
        "<div>",
        "<!--",
        "-->",
        "日本",
        "e\u{301}",
        "🐙",
        "👩‍👩‍👧‍👧",
        "[",
        "](https://x.y)",
        "](a.rs)",
        "![",
        "<https://x.y>",
        "[x] ",
        "---\n",
        "===\n",
        "&amp;",
        "&#27;",
        "<",
        "&",
        "a very long cell indeed | ",
    ];
    proptest::collection::vec(select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

fn assert_valid(message: &TelegramText) {
    let units: Vec<u16> = message.text.encode_utf16().collect();
    let is_boundary = |at: usize| {
        String::from_utf16(&units[..at]).is_ok() && String::from_utf16(&units[at..]).is_ok()
    };
    let is_code =
        |style: &RichStyle| matches!(style, RichStyle::Code | RichStyle::CodeBlock { .. });
    let mut last = 0;
    for (n, one) in message.entities.iter().enumerate() {
        let end = one.offset + one.length;
        assert!(one.length > 0 && end <= units.len(), "{one:?} of {}", units.len());
        assert!(is_boundary(one.offset) && is_boundary(end), "{one:?} is inside of a character");
        assert!(last <= one.offset, "{one:?} is out of order");
        last = one.offset;
        for other in &message.entities[n + 1..] {
            let other_end = other.offset + other.length;
            let apart = other.offset >= end;
            let nested = other_end <= end;
            assert!(apart || nested, "{one:?} overlaps {other:?}");
            if !apart {
                assert!(!is_code(&one.style), "{other:?} is in {one:?}");
                assert!(
                    !is_code(&other.style) || one.style == RichStyle::Quote,
                    "{other:?} is in {one:?}"
                );
                assert_ne!(
                    std::mem::discriminant(&one.style),
                    std::mem::discriminant(&other.style)
                );
            }
        }
    }
}

/// The letters that Markdown shows, and whether there is a table.
fn letters(markdown: &str) -> (Vec<char>, bool) {
    let options =
        Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS;
    let mut letters = Vec::new();
    let mut table = false;
    for event in Parser::new_ext(markdown, options) {
        match event {
            Event::Text(text) | Event::Code(text) | Event::Html(text) => {
                letters.extend(text.chars());
            }
            Event::InlineHtml(text) if &*text != "<br>" => letters.extend(text.chars()),
            Event::Start(Tag::Table(_)) => table = true,
            _ => {}
        }
    }
    letters.retain(|it| !it.is_whitespace() && !it.is_control());
    (letters, table)
}

fn assert_nothing_lost(markdown: &str, shown: &str) {
    let (mut expected, table) = letters(markdown);
    let mut found: Vec<char> = shown.chars().collect();
    if table {
        expected.sort_unstable();
        found.sort_unstable();
    }
    let mut found = found.into_iter();
    for letter in expected {
        assert!(found.any(|it| it == letter), "{letter:?} of {markdown:?} is not in {shown:?}");
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Whether every tag is closed, in order.
fn assert_balanced(html: &str) {
    let mut open = Vec::new();
    for tag in html.split('<').skip(1) {
        let name: String =
            tag.chars().take_while(|it| it.is_alphanumeric() || *it == '/').collect();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "{html}"),
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?} of {html}");
}

/// The texts that could grow most: heads and margins are repeated, rows are filled up.
fn any_repetition() -> impl Strategy<Value = String> {
    let size = 1..1000_usize;
    let (margin, row) =
        (select(&["> ", "- ", "1. ", "- > "]), select(&["a|b\n", "||b\n", "|\n", "a\n"]));
    let table =
        (size.clone(), size.clone(), 1..100_usize, row).prop_map(|(head, rows, columns, row)| {
            let name = format!("{}|", "h".repeat(head / columns + 1));
            format!("|{}\n|{}\n{}", name.repeat(columns), "-|".repeat(columns), row.repeat(rows))
        });
    let nested = (size.clone(), size, margin).prop_map(|(depth, lines, margin)| {
        format!("- {}a\n{}", margin.repeat(depth), "b\n".repeat(lines))
    });
    prop_oneof![table, nested]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn what_is_shown_is_not_many_times_as_long_as_the_text(markdown in any_repetition()) {
        let shown = rich(&markdown).text().len();
        prop_assert!(shown <= 32 * markdown.len() + 10_000, "{} of {}", shown, markdown.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn entities_are_in_range_and_nested_and_nothing_is_lost(markdown in any_markdown()) {
        let rich = rich(&markdown);
        let message = rich.telegram();
        assert_valid(&message);
        assert_nothing_lost(&markdown, &message.text);
        assert_nothing_lost(&markdown, &rich.plain());
        assert_nothing_lost(&markdown, &unescaped(&rich.mrkdwn()));
        assert_balanced(&rich.html());
        assert_nothing_lost(&markdown, &unescaped(&rich.html()));
    }

    #[test]
    fn any_text_at_all_is_converted(markdown in any::<String>()) {
        let rich = rich(&markdown);
        assert_valid(&rich.telegram());
        assert_nothing_lost(&markdown, &rich.plain());
    }

    #[test]
    fn parts_fit_are_valid_and_lose_only_white_space(markdown in any_markdown(), most in 2..60_usize) {
        let rich = rich(&markdown);
        let parts = rich.split(Limit::Utf16(most));
        let bare = |text: &str| text.chars().filter(|it| !it.is_whitespace()).collect::<String>();
        let together: String = parts.iter().map(|part| bare(part.text())).collect();
        prop_assert_eq!(together, bare(rich.text()));
        for part in &parts {
            prop_assert!(Limit::Utf16(most).fits(part.text()) && !part.is_empty());
            assert_valid(&part.telegram());
        }
    }
}
