//! Markdown as HTML that is safe to show, whoever wrote it.
//!
//! HTML in the text is escaped; only links to the web and to mail addresses are kept; images are replaced by
//! their descriptions. A single line break is kept, as in chats.

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd, html};

/// Renders a text.
pub(super) fn html(text: &str) -> String {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut events = Vec::new();
    // Whether each open link is kept. Links can be nested, inside of an image.
    let mut links = Vec::new();
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
            Event::SoftBreak => events.push(Event::HardBreak),
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => {}
            Event::Start(Tag::Link { link_type, ref dest_url, .. }) => {
                let kept = link_type == LinkType::Email || is_external(dest_url);
                links.push(kept);
                events.extend(kept.then_some(event));
            }
            Event::End(TagEnd::Link) => {
                events.extend(links.pop().unwrap_or(false).then_some(event));
            }
            event => events.push(event),
        }
    }
    let mut page = String::new();
    html::push_html(&mut page, events.into_iter());
    page
}

/// Whether an address is on the web or a mail address.
fn is_external(address: &str) -> bool {
    // Without the slashes `http:press` would be an address on this server.
    ["http://", "https://", "mailto:"].iter().any(|begin| {
        address.get(..begin.len()).is_some_and(|given| given.eq_ignore_ascii_case(begin))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_is_rendered() {
        let text =
            "**Done**: `a < b`\nand so on\n\n```rust\nlet a = 1 < 2;\n```\n\n| a |\n|---|\n| b |";
        insta::assert_snapshot!(html(text), @r#"
        <p><strong>Done</strong>: <code>a &lt; b</code><br />
        and so on</p>
        <pre><code class="language-rust">let a = 1 &lt; 2;
        </code></pre>
        <table><thead><tr><th>a</th></tr></thead><tbody>
        <tr><td>b</td></tr>
        </tbody></table>
        "#);
    }

    #[test]
    fn html_in_an_answer_is_escaped() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<svg/onload=alert(1)>",
            "<!-- <script> -->",
            "`<script>`",
            "    <script>",
            "```<script>\n<script>\n```",
        ] {
            let shown = html(text);
            assert!(!shown.contains("<s") && !shown.contains("<img"), "{text}: {shown}");
        }
    }

    #[test]
    fn only_links_to_the_web_and_to_mail_are_kept() {
        let good = html("[a](https://x.y) <http://x.y> <me@x.y> [m](MAILTO:me@x.y)");
        assert_eq!(good.matches("<a href").count(), 4, "{good}");
        for text in [
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt&colon;alert(1))",
            "[a](java\tscript:alert(1))",
            "[a](data:text/html,x)",
            "[a](file:///etc/passwd)",
            "[a](/press)",
            "[a](//x.y)",
            "[a](http:press)",
            "[a](https:/press)",
            "<javascript:alert(1)>",
            "[a]: javascript:alert(1)\n\n[a]",
            "![a](https://x.y/z.png)",
        ] {
            let shown = html(text);
            assert!(!shown.contains("<a ") && !shown.contains("<img"), "{text}: {shown}");
        }
        let nested = html("[![a [b](https://x.y) c](https://x.y)](javascript:x) [d](https://x.y)");
        assert_eq!(nested.matches("<a ").count(), nested.matches("</a>").count(), "{nested}");
    }

    proptest! {
        #[test]
        fn only_tags_of_markdown_are_emitted(
            text in r#"([<>/="' \n`*_#!()\[\]:&;-]|script|img|on[a-z]{3}|javascript|https|[a-z])*"#
        ) {
            const TAGS: [&str; 34] = [
                "p", "br", "em", "strong", "del", "code", "pre", "a", "ul", "ol", "li", "blockquote",
                "hr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
                "input", "/p", "/a", "/li", "/ul", "/ol", "/em", "/code", "/pre",
            ];
            let shown = html(&text);
            for tag in shown.split('<').skip(1) {
                let name = tag.split(|it: char| !(it.is_alphanumeric() || it == '/')).next().unwrap();
                let name = if TAGS.contains(&name) { name } else { name.trim_start_matches('/') };
                prop_assert!(TAGS.contains(&name), "{name:?} of {text:?}: {shown}");
                let attributes = tag.split('>').next().unwrap();
                prop_assert!(!attributes.contains(" on"), "{text:?}: {shown}");
                if let Some(address) = attributes.split("href=\"").nth(1) {
                    prop_assert!(is_external(address), "{text:?}: {shown}");
                }
            }
        }
    }
}
