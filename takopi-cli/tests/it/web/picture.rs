//! The picture in the docs.

use takopi_tests::browser::page_or_skip;
use takopi_tests::dirs::workspace;
use takopi_tests::model::{Answer, Gate};

use super::server::{Server, answers, say};
use crate::real::lab::Lab;

/// How much of the docs a picture may be.
const MODEST: usize = 200 * 1024;

#[tokio::test]
async fn the_picture_shows_an_answer_a_question_and_a_queue() {
    let Some(lab) = Lab::asking() else { return };
    let Some(mut page) = page_or_skip().await else { return };
    let gate = Gate::new();
    let counted = "There are **3** source files with 41 lines in all:\n\n\
        | file | lines |\n|---|---|\n| `src/lib.rs` | 9 |\n| `src/main.rs` | 3 |\n| `src/parse.rs` | 29 |";
    lab.model.when("source lines", [Answer::new().exec("wc -l src/*.rs"), Answer::text(counted)]);
    lab.model.when(
        "tabs",
        [
            Answer::new().exec("ls"),
            Answer::new()
                .commentary("The parser takes a tab for a letter.")
                .add_file("tabs.rs", "//"),
            Answer::new().wait_for(&gate).message("Done."),
        ],
    );
    lab.model.when("changelog", "Done.");
    lab.model.when("octopus", "Three: two for the gills, one for the rest.");
    let server = Server::start(&lab, &[]).await;
    page.look((1120, 1080), "light").await;
    page.open(&server.address).await;
    say(&mut page, "How many hearts has an octopus?").await;
    answers(&mut page, 1).await;
    page.click("#new").await;
    say(&mut page, "Count the source lines.").await;
    page.wait_for("document.querySelector('.final table')").await;
    say(&mut page, "Add a test for tabs.").await;
    page.wait_for("document.querySelector('.question button')").await;
    page.wait_for("document.querySelector('.progress')?.innerText.includes('asked')").await;
    say(&mut page, "Then write it into the changelog.").await;
    page.wait_for("document.querySelector('.queued')").await;
    // Paths and times of this run do not belong into the docs.
    page.eval(
        "for (const element of document.querySelectorAll('article code')) {
            element.textContent = element.textContent.replace(/\\S*\\/workspace/, '/home/ada/parser');
            if (/takopi-homes/.test(element.textContent)) element.textContent = '/home/ada/parser/tabs.rs';
        }
        document.activeElement.blur();
        0",
    )
    .await;
    let picture = page.picture().await;
    assert!(picture.len() < MODEST, "{} bytes", picture.len());
    if std::env::var_os("TAKOPI_UPDATE_PICTURE").is_some_and(|it| it == "1") {
        std::fs::write(workspace().join("docs/serve.png"), &picture).unwrap();
    }
    gate.open();
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}
