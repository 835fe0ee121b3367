//! The pictures in the docs.

use takopi_tests::browser::page_or_skip;
use takopi_tests::dirs::workspace;
use takopi_tests::model::{Answer, Gate};

use super::server::{Server, answers, say};
use crate::real::lab::Lab;

/// How much of the docs a picture may be.
const MODEST: usize = 200 * 1024;

#[tokio::test]
async fn the_pictures_show_an_answer_a_question_and_a_queue() {
    let Some(lab) = Lab::asking() else { return };
    let Some(mut page) = page_or_skip().await else { return };
    let gate = Gate::new();
    let counted = "There are **3** source files with 41 lines in all:\n\n\
        | file | lines | tests |\n|---|--:|--:|\n| `src/lib.rs` | 9 | 2 |\n| `src/main.rs` | 3 | 0 |\n| `src/parse.rs` | 29 | 7 |\n\n\
        The parser is the longest. It begins so:\n\n```rust\n/// Splits a line at its tabs.\npub fn fields(line: &str) -> Vec<&str> {\n    \
        line.split('\\t').collect()\n}\n```";
    lab.model
        .when("source lines", [Answer::new().exec("find . -name '*.rs'"), Answer::text(counted)]);
    let patch = "*** Begin Patch\n*** Add File: tests/tabs.rs\n+#[test]\n+fn a_tab_separates_fields() {\n\
        +    assert_eq!(fields(\"a\\tb\"), [\"a\", \"b\"]);\n+}\n*** End Patch\n";
    lab.model.when(
        "tabs",
        [
            Answer::new().commentary("The parser takes a tab for a letter.").patch(patch),
            Answer::new().wait_for(&gate).message("Done."),
        ],
    );
    lab.model.when("changelog", "Done.");
    lab.model.when("octopus", "Three: two for the gills, one for the rest.");
    let server = Server::start(&lab, &[]).await;
    page.look((1120, 1360), "light").await;
    page.open(&server.address).await;
    say(&mut page, "How many hearts has an octopus?").await;
    answers(&mut page, 1).await;
    page.click("#new").await;
    say(&mut page, "Count the source lines.").await;
    page.wait_for("document.querySelector('.final table')").await;
    say(&mut page, "Add a test for tabs.").await;
    page.wait_for("document.querySelector('.question footer button')").await;
    page.wait_for("document.querySelector('.progress .steps')?.innerText.includes('asked')").await;
    say(&mut page, "Then write it into the changelog.").await;
    page.wait_for("document.querySelector('.queued')").await;
    for (name, size, scheme) in [
        ("serve.png", (1120, 1360), "light"),
        ("serve-dark.png", (1120, 1360), "dark"),
        ("serve-phone.png", (375, 812), "light"),
    ] {
        page.look(size, scheme).await;
        // Paths of this run do not belong into the docs; nor does a cursor that blinks.
        page.eval(
            "(() => {
                const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
                while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace(/\\S*\\/workspace/g, '/home/ada/parser');
                document.activeElement.blur();
                log.scrollTop = log.scrollHeight;
            })()",
        )
        .await;
        let picture = page.picture().await;
        assert!(picture.len() < MODEST, "{} bytes", picture.len());
        if std::env::var_os("TAKOPI_UPDATE_PICTURE").is_some_and(|it| it == "1") {
            std::fs::write(workspace().join("docs").join(name), &picture).unwrap();
        }
    }
    gate.open();
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}
