//! The browser that pages are tested with.
use takopi_tests::browser::{Page, page_or_skip};

/// A page with a field, and a button that shows its content after a moment.
const PAGE: &str = "data:text/html,<meta charset=utf-8><textarea></textarea><button>say</button><p></p><script>
    document.querySelector('button').onclick = () => setTimeout(() => {
        document.querySelector('p').textContent = 'said ' + document.querySelector('textarea').value;
    });
</script>";

async fn page() -> Option<Page> {
    let mut page = page_or_skip().await?;
    page.open(PAGE).await;
    Some(page)
}

#[tokio::test]
async fn a_page_is_typed_and_clicked_into_and_waited_for() {
    let Some(mut page) = page().await else { return };
    page.click("textarea").await;
    page.type_text("häl").await;
    page.press_enter(true).await;
    page.type_text("lo").await;
    page.click("button").await;
    page.wait_for_text("said häl lo").await;
    page.assert_content();
}

#[tokio::test]
async fn a_picture_has_the_size_that_was_asked_for() {
    let Some(mut page) = page().await else { return };
    page.look((320, 200), "dark").await;
    assert_eq!(page.eval("matchMedia('(prefers-color-scheme: dark)').matches").await, true);
    let picture = page.picture().await;
    assert_eq!(picture[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(picture[16..24], [0, 0, 1, 64, 0, 0, 0, 200]);
}

#[tokio::test]
async fn what_a_page_complains_about_is_kept() {
    let Some(mut page) = page().await else { return };
    page.eval(
        "setTimeout(() => { document.title = 'thrown'; throw new Error('a wrong turn') }); 0",
    )
    .await;
    page.wait_for("document.title === 'thrown'").await;
    // Its complaint is on the way before the next answer is.
    page.eval("new Promise(done => setTimeout(done))").await;
    let complained =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| page.assert_content()));
    assert!(complained.unwrap_err().downcast_ref::<String>().unwrap().contains("a wrong turn"));
}

#[tokio::test]
async fn nothing_is_left_of_a_browser_that_was_dropped() {
    let Some(page) = page().await else { return };
    let profile = page.profile().to_owned();
    drop(page);
    let mine = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|it| std::fs::read(it.path().join("cmdline")).ok())
            .any(|line| String::from_utf8_lossy(&line).contains(profile.to_str().unwrap()))
    };
    // What was killed takes a moment to go.
    let deadline = std::time::Instant::now() + takopi_tests::model::PATIENCE;
    while mine() {
        assert!(std::time::Instant::now() < deadline, "the browser lives on");
        tokio::task::yield_now().await;
    }
    assert!(!profile.exists());
}
