//! Long Markdown in parts, each read on its own.

use proptest::prelude::*;
use proptest::sample::select;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use takopi_bridge::present::Limit;
use takopi_bridge::present::chat::split;
use unicode_segmentation::UnicodeSegmentation;

/// The words of a text by whether they stand in fenced code, as a reader of Markdown sees it.
fn words(markdown: &str) -> Vec<(bool, String)> {
    let mut words = Vec::new();
    let mut fenced = false;
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => fenced = true,
            Event::End(TagEnd::CodeBlock) => fenced = false,
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                words.extend(text.split_whitespace().map(|word| (fenced, word.to_owned())));
            }
            _ => {}
        }
    }
    words
}

/// Whether what is written behind a text would be taken for code of its last fence.
fn has_an_open_fence(markdown: &str) -> bool {
    words(&format!("{markdown}\n\nbehind")).last() == Some(&(true, "behind".to_owned()))
}

/// Whether all of `inner` is in `outer`, in order.
fn is_within<T: PartialEq>(inner: &[T], outer: &[T]) -> bool {
    let mut outer = outer.iter();
    inner.iter().all(|item| outer.any(|other| other == item))
}

/// What a person sees of a text, but for the marks that are written anew around a cut.
fn seen(text: &str) -> Vec<&str> {
    let is_seen = |it: &&str| !it.trim().is_empty() && !["`", "~", "\\", ">"].contains(it);
    text.graphemes(true).filter(is_seen).collect()
}

fn any_limit(most: std::ops::Range<usize>) -> impl Strategy<Value = Limit> {
    (any::<bool>(), most).prop_map(
        |(utf16, most)| {
            if utf16 { Limit::Utf16(most) } else { Limit::Chars(most) }
        },
    )
}

/// Text made of all that makes trouble.
fn any_markdown() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "a",
        "word ",
        " ",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        "```",
        "````",
        "```rust\n",
        "\n```\n",
        "~~~",
        "~~~~ sh\n",
        "`",
        "``",
        "~",
        "- ",
        "-",
        "1. ",
        "> ",
        "    ",
        "   ",
        "# ",
        "*",
        "_",
        "\\",
        "|",
        "<div>",
        "<!--",
        "-->",
        "<pre>",
        "日本",
        "e\u{301}",
        "x \u{301}",
        "🐙",
        "👩‍👩‍👧‍👧",
        "🇩🇪",
        "[a]: b\n",
        "---\n",
        "long-word-that-goes-on-and-on-without-an-end-in-sight",
    ];
    proptest::collection::vec(select(PIECES), 0..80).prop_map(|pieces| pieces.concat())
}

#[derive(Debug, Clone)]
struct Block {
    margin: &'static str,
    fence: Option<&'static str>,
    info: &'static str,
    lines: Vec<usize>,
}

/// A document whose words name their kind: `p0`, `p1`, … in prose, `c2`, `c3`, … in code.
fn document(blocks: &[Block]) -> String {
    let mut count = 0;
    let mut words = |kind: char, many: usize| {
        let words: Vec<String> = (count..count + many).map(|n| format!("{kind}{n}")).collect();
        count += many;
        words.join(" ")
    };
    let mut lines = Vec::new();
    for Block { margin, fence, info, lines: counts } in blocks {
        match *margin {
            "" => {}
            // A quote has its mark on every line, a list item on its first one.
            ">  " => lines.push(format!("{margin}{}", words('p', 1))),
            indent => lines
                .extend([format!("{:<1$}", "1.", indent.len()) + &words('p', 1), String::new()]),
        }
        let kind = if fence.is_some() { 'c' } else { 'p' };
        lines.extend(fence.map(|fence| format!("{margin}{fence}{info}")));
        lines.extend(counts.iter().map(|many| format!("{margin}{}", words(kind, *many))));
        lines.extend(fence.map(|fence| format!("{margin}{fence}")));
        lines.push(String::new());
    }
    lines.join("\n")
}

fn any_document() -> impl Strategy<Value = String> {
    let block = (
        select(&["", "", "   ", "    ", ">  "][..]),
        select(&[None, Some("```"), Some("````"), Some("~~~")][..]),
        select(&["", "rust", " sh x=1"][..]),
        proptest::collection::vec(1..9_usize, 1..9),
    );
    let block = block.prop_map(|(margin, fence, info, lines)| Block { margin, fence, info, lines });
    proptest::collection::vec(block, 1..6).prop_map(|blocks| document(&blocks))
}

#[test]
fn text_that_fits_into_a_part_is_not_split() {
    let text = "One short line.\n\nTwo lines\nof prose.\n\nAnother paragraph here.";
    assert_eq!(
        split(text, Limit::Chars(36)),
        ["One short line.\n\nTwo lines\nof prose.", "Another paragraph here."]
    );
    assert_eq!(
        split(text, Limit::Chars(24)),
        ["One short line.", "Two lines\nof prose.", "Another paragraph here."]
    );
    assert_eq!(
        split(text, Limit::Chars(15)),
        ["One short line.", "Two lines", "of prose.", "Another", "paragraph here."]
    );
}

#[test]
fn a_long_word_is_cut_between_characters_as_people_see_them() {
    let families = "👩‍👩‍👧‍👧".repeat(3);
    assert_eq!(split(&families, Limit::Chars(15)), ["👩‍👩‍👧‍👧👩‍👩‍👧‍👧", "👩‍👩‍👧‍👧"]);
    assert_eq!(split(&families, Limit::Utf16(15)), ["👩‍👩‍👧‍👧"; 3]);
    assert_eq!(split("a bcdefghij k", Limit::Chars(4)), ["a bc", "defg", "hij", "k"]);
}

#[test]
fn an_emoji_counts_as_the_chat_counts() {
    assert_eq!(split("🐙🐙🐙🐙", Limit::Chars(4)), ["🐙🐙🐙🐙"]);
    assert_eq!(split("🐙🐙🐙🐙", Limit::Utf16(4)), ["🐙🐙", "🐙🐙"]);
}

#[test]
fn split_code_in_a_list_or_a_quote_continues_outside_of_it() {
    let list =
        "1. First:\n\n    ```sh\n    cargo build\n      cargo test\n    ```\n\n2. Then rest.";
    let parts = split(list, Limit::Chars(32));
    assert_eq!(
        parts,
        ["1. First:\n\n```sh\ncargo build\n```", "```sh\n  cargo test\n```", "2. Then rest."]
    );
    let quote = "> ~~~ py\n> print(1)\n> print(2)\n> ~~~\n> so.";
    let parts = split(quote, Limit::Chars(24));
    assert_eq!(parts, [">\n\n~~~ py\nprint(1)\n~~~", "~~~ py\nprint(2)\n~~~", "> so."]);
}

#[test]
fn a_fence_holds_whatever_piece_of_the_code_it_gets() {
    let text = format!("~~~~md\n{}```\n~~~\n~~~~", "x".repeat(30));
    let parts = split(&text, Limit::Chars(34));
    assert_eq!(
        parts,
        [
            format!("~~~~md\n{}\n~~~~", "x".repeat(22)),
            format!("~~~~md\n{}```\n~~~\n~~~~", "x".repeat(8)),
        ]
    );
}

#[test]
fn a_fence_that_was_left_open_is_closed() {
    assert_eq!(split("```sh\nls", Limit::default()), ["```sh\nls\n```"]);
    assert_eq!(split("- ```\n  ls", Limit::default()), ["-\n\n```\nls\n```"]);
    assert_eq!(split("```", Limit::default()), ["```\n\n```"]);
}

#[test]
fn html_that_could_hide_what_follows_is_shown() {
    assert_eq!(split("a\n\n<!-- b", Limit::default()), ["a\n\n\\<!-- b"]);
    assert_eq!(split("<Script>\n\nb", Limit::default()), ["\\<Script>\n\nb"]);
    assert_eq!(split("[a]: b\n\n<?php", Limit::default()), ["[a]: b\n\n\\<?php"]);
    assert_eq!(split("    <!-- code", Limit::default()), ["    <!-- code"]);
    assert_eq!(split("<details>\n\nb", Limit::default()), ["<details>\n\nb"]);
}

#[test]
fn a_fence_that_would_fill_the_parts_gives_way() {
    let info = "i".repeat(20);
    let text = format!("```{info}\nsome code that does not fit\n```");
    let parts = split(&text, Limit::Chars(40));
    assert_eq!(parts, [format!("\\```{info}"), "some code that does not fit\n\\```".to_owned()]);
    let ticks = split(&"`".repeat(25), Limit::Chars(10));
    assert_eq!(ticks, ["\\`````````", "\\`````````", "\\```````"]);
}

#[test]
fn nothing_makes_no_part() {
    assert!(split("", Limit::default()).is_empty());
    assert!(split(" \r\n\t\n", Limit::default()).is_empty());
}

#[test]
fn a_very_long_line_is_split_too() {
    let line = "word ".repeat(100_000);
    let parts = split(&line, Limit::default());
    assert_eq!(parts.concat().matches("word").count(), 100_000);
    assert_eq!(parts.len(), 500_000_usize.div_ceil(4095));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_part_is_over_the_limit_nor_blank(text in any_markdown(), limit in any_limit(8..120)) {
        for part in split(&text, limit) {
            prop_assert!(limit.fits(&part), "{part:?}");
            prop_assert!(!part.trim().is_empty());
        }
    }

    #[test]
    fn no_part_has_an_open_fence(text in any_markdown(), limit in any_limit(8..120)) {
        for part in split(&text, limit) {
            prop_assert!(!has_an_open_fence(&part), "{part:?}");
        }
    }

    #[test]
    fn nothing_is_lost_and_no_character_is_cut(text in any_markdown(), limit in any_limit(40..120)) {
        let parts = split(&text, limit);
        let all = parts.join("\n");
        prop_assert!(is_within(&seen(&text), &seen(&all)), "{parts:#?}");
    }

    #[test]
    fn code_stays_code_and_prose_stays_prose(text in any_document(), limit in any_limit(40..160)) {
        let parts = split(&text, limit);
        let got: Vec<(bool, String)> = parts.iter().flat_map(|part| words(part)).collect();
        prop_assert_eq!(got, words(&text), "{:#?}", parts);
    }

    #[test]
    fn however_narrow_it_comes_to_an_end_and_loses_nothing(
        text in any_markdown(),
        limit in any_limit(0..12),
    ) {
        let bare = |text: &str| {
            let marks = ['`', '~', '\\', '>'];
            text.chars().filter(|it| !it.is_whitespace() && !marks.contains(it)).collect::<Vec<_>>()
        };
        let parts = split(&text, limit);
        prop_assert!(is_within(&bare(&text), &bare(&parts.concat())), "{parts:#?}");
        prop_assert!(parts.iter().all(|part| limit.fits(part)), "{parts:#?}");
    }

    #[test]
    fn a_text_that_fits_is_one_part(text in any_document()) {
        prop_assert_eq!(split(&text, Limit::default()), [text.trim_end()]);
    }
}
