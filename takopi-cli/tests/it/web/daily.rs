//! The page in daily use: what stays where it is while it changes, and what a person finds their way with.

use serde_json::json;
use takopi_tests::model::{Answer, Gate};

use super::server::{Server, answers, post, say, text_of, visit};
use crate::real::lab::Lab;

/// An answer in many pieces, one for each gate.
fn in_pieces(pieces: &[&str], gates: &[Gate]) -> Answer {
    let wait = |answer: Answer, (piece, gate): (&&str, &Gate)| answer.wait_for(gate).delta(*piece);
    pieces.iter().zip(gates).fold(Answer::new(), wait)
}

#[tokio::test]
async fn the_answer_appears_as_it_is_written_and_nothing_jumps_meanwhile() {
    let Some(lab) = Lab::new() else { return };
    let gates: Vec<Gate> = (0..4).map(|_| Gate::new()).collect();
    let pieces = [
        "First **words",
        "**.\n\n| a | b |\n|---|--:|\n| x | 1 |\n\n",
        "```rust\nfn a() {}\n",
        "```\n\nThe end of it.",
    ];
    lab.model.when("write", in_pieces(&pieces, &gates));
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "write it").await;
    gates[0].open();
    page.wait_for("document.querySelector('.progress .answer')?.innerText === 'First **words'")
        .await;
    gates[1].open();
    page.wait_for("document.querySelector('.progress .answer td.right')?.innerText === '1'").await;
    assert_eq!(text_of(&mut page, ".progress .answer strong").await, "words");

    // A selection in what was written, and the focus on a button, stay while more is written.
    page.eval(
        "getSelection().selectAllChildren(document.querySelector('.answer strong'));
         document.querySelector('.progress [data-press=stop]').focus();
         window.changes = 0;
         new MutationObserver(all => { window.changes += all.length; })
             .observe(document.querySelector('#log'), { subtree: true, childList: true, characterData: true }); 0",
    )
    .await;
    gates[2].open();
    page.wait_for("document.querySelector('.answer pre')?.innerText.includes('fn a')").await;
    // As many updates as ten seconds have: the clock of the page is its own function.
    page.eval("for (let second = 0; second < 10; second++) for (const it of document.querySelectorAll('.progress')) { it.message.turn.began -= 1000; fillHead(it, it.message); drawList(); } 0").await;
    assert_eq!(page.eval("getSelection().toString()").await, "words");
    assert_eq!(page.eval("document.activeElement.dataset.press").await, "stop");
    assert!(page.eval("window.changes").await.as_u64().unwrap() >= 10);

    gates[3].open();
    answers(&mut page, 1).await;
    assert_eq!(page.eval("getSelection().toString()").await, "words");
    page.wait_for("document.querySelector('.final pre .k')?.innerText === 'fn'").await;
    page.wait_for_text("The end of it.").await;
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_click_on_cancel_counts_however_long_it_is_held() {
    let Some(lab) = Lab::new() else { return };
    let server =
        Server::start(&lab, &["--engine", "demo", "--approve", "accept", "-c", "pace=1h"]).await;
    let Some(mut page) = visit(&server).await else { return };
    for count in 1..=5 {
        say(&mut page, "work for long").await;
        let held = page.press_mouse(".progress [data-press=stop]").await;
        // Everything about it changes while the button is down.
        held.page.eval("new Promise(done => setTimeout(done, 200))").await;
        held.page.eval("for (const it of document.querySelectorAll('.progress')) { fill(it, it.message); drawList(); } 0").await;
        held.release().await;
        answers(&mut page, count).await;
        let word =
            page.eval("[...document.querySelectorAll('.final .head')].at(-1).innerText").await;
        assert!(word.as_str().unwrap().contains("Cancelled"), "{word}");
    }
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn tables_break_between_words_and_what_is_too_wide_can_be_scrolled() {
    let Some(lab) = Lab::new() else { return };
    let wide = "configuration_of_the_very_long_name.rs ".repeat(3);
    let table = format!(
        "| name | count | note |\n|:--|--:|:-:|\n| interoperability | 1234567 | {wide} |\n| b | 2 | see https://example.org/a_b |\n| c | 3 | `{}` |",
        "one_word_of_code".repeat(8)
    );
    lab.model.when("table", table.as_str());
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    page.look((375, 740), "light").await;
    say(&mut page, "a table").await;
    answers(&mut page, 1).await;
    let lines = "[...document.querySelectorAll('.final td')].slice(0, 2).map(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map(it => Math.round(it.top))).size;
    })";
    assert_eq!(page.eval(lines).await, json!([1, 1]), "no word and no number is broken");
    let inside = "[...document.querySelectorAll('.final td')].every(cell => cell.scrollWidth <= cell.clientWidth)";
    assert_eq!(page.eval(inside).await, true, "no cell covers the next one");
    let right = "getComputedStyle(document.querySelector('.final td:nth-child(2)')).textAlign";
    assert_eq!(page.eval(right).await, "right");
    assert_eq!(page.eval("document.documentElement.scrollWidth <= innerWidth").await, true);
    assert_eq!(
        page.eval("document.querySelector('.final td a').href").await,
        "https://example.org/a_b"
    );
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn the_steps_of_a_turn_fold_to_one_line_and_a_failed_command_shows_its_output() {
    let Some(lab) = Lab::new() else { return };
    let work = Answer::new()
        .reasoning("**Looking**\n\nI look at it.")
        .exec("echo what went wrong; exit 3");
    lab.model.when(
        "do it",
        [
            work,
            Answer::new().exec("echo fine"),
            Answer::new().add_file("new.txt", "a new line"),
            Answer::text("It failed."),
        ],
    );
    lab.model.when("go well", [Answer::new().exec("echo fine"), Answer::text("It is done.")]);
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "do it").await;
    answers(&mut page, 1).await;
    assert_eq!(page.eval("document.querySelector('.final .steps').open").await, true);
    let line = text_of(&mut page, ".final .steps summary").await;
    assert!(line.contains("steps") && line.contains("1 failed"), "{line}");
    let failed = text_of(&mut page, ".final [data-state=failed]").await;
    assert!(failed.contains("exit 3") && failed.contains("what went wrong"), "{failed}");
    let fine =
        "[...document.querySelectorAll('.final [data-state=done] details')].map(it => it.open)";
    assert_eq!(page.eval(fine).await, json!([false, false]));
    let added = "document.querySelector('.final .steps pre .add').textContent";
    assert_eq!(page.eval(added).await, "+a new line");
    assert!(text_of(&mut page, ".final .tools").await.contains("tokens in"));
    // The answer is copied as it was written.
    page.click(".final .tools button").await;
    page.wait_for("document.querySelector('.final .tools button').innerText.startsWith('Copied')")
        .await;
    assert_eq!(page.eval("navigator.clipboard.readText()").await, "It failed.");
    // Of many steps the last ones are kept, and the others counted.
    let steps = "[...document.querySelectorAll('.final .steps li')].map(it => it.dataset.step)";
    let mut ids = page.eval(steps).await.as_array().unwrap().clone();
    page.eval(
        "(() => { const message = document.querySelector('.final').message;
            const step = { ...message.turn.steps.at(-1), id: 'one more' };
            handlers.step({ chat: current, message: message.id, step, omitted: 1 }); })()",
    )
    .await;
    ids.remove(0);
    ids.push("one more".into());
    assert_eq!(page.eval(steps).await, json!(ids));
    let line = text_of(&mut page, ".final .steps summary").await;
    assert!(line.contains(&format!("{} steps", ids.len() + 1)), "{line}");
    // Nothing failed here: its steps are one line.
    say(&mut page, "go well").await;
    answers(&mut page, 2).await;
    let open = "[...document.querySelectorAll('.final .steps')].map(it => it.open)";
    assert_eq!(page.eval(open).await, json!([true, false]));
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn fifty_conversations_leave_room_and_those_that_ask_come_first() {
    let Some(lab) = Lab::new() else { return };
    // The demo asks before it changes anything, so each of them waits for a person.
    let server = Server::start(&lab, &["--engine", "demo", "-c", "pace=1ms"]).await;
    let Some(mut page) = visit(&server).await else { return };
    // The demo repeats what it is told: its answers have tables and code.
    let rich = "| a | b |\n|:--|--:|\n| x | 1 |\n\n```rust\nfn a() {}\n```";
    for number in 0..50 {
        let text = format!("change file {number}\n\n{rich}");
        let sent = post(&server, "/send", &json!({ "text": text }));
        assert_eq!(sent.0, 200, "{}", sent.1);
    }
    // More of them ask than there are workers: those that ask hold none.
    page.wait_for("document.querySelectorAll('#now [data-state=asking]').length === 32").await;
    say(&mut page, "one more").await;
    page.wait_for("document.querySelector('#title').innerText === 'one more'").await;
    page.wait_for("document.querySelectorAll('#now li').length === 51").await;
    let states = "[...document.querySelectorAll('#now li')].map(it => it.dataset.state).join(' ')";
    let states = page.eval(states).await;
    let asks = states.as_str().unwrap().rfind("asking").unwrap();
    let others = states.as_str().unwrap().find("queued").unwrap();
    assert!(asks < others, "{states}");
    assert!(page.eval("document.title").await.as_str().unwrap().starts_with("? "));
    // The shortcut leads to a request, and the keyboard decides it.
    page.press_key("a", 65, true).await;
    page.wait_for("document.activeElement.closest('.question')").await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('.question:not(:has(footer button))')").await;
    answers(&mut page, 1).await;
    page.wait_for("document.querySelector('.final td.right')?.innerText === '1'").await;
    page.wait_for("document.querySelector('.final pre .k')?.innerText === 'fn'").await;
    page.assert_content();
    assert_eq!(server.stop().await.code, Some(0));
}

#[tokio::test]
async fn conversations_are_renamed_closed_and_found_again_and_drafts_are_kept() {
    let Some(lab) = Lab::new() else { return };
    lab.model.when("octopus", "Three hearts.");
    lab.model.when("squid", "Three as well.");
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "hearts of an octopus").await;
    answers(&mut page, 1).await;
    page.click("textarea").await;
    page.type_text("not sent yet").await;
    page.click("#new").await;
    assert_eq!(page.eval("document.querySelector('textarea').value").await, "");
    say(&mut page, "hearts of a squid").await;
    answers(&mut page, 1).await;
    page.click("#rename").await;
    page.type_text("Squids").await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('#now .name').innerText === 'Squids'").await;
    page.press_key("ArrowDown", 40, true).await;
    page.wait_for("document.querySelector('#title').innerText.includes('octopus')").await;
    assert_eq!(page.eval("document.querySelector('textarea').value").await, "not sent yet");
    page.eval("window.isOld = true; location.reload()").await;
    page.wait_for("!window.isOld && document.querySelector('textarea')?.value === 'not sent yet'")
        .await;

    page.click("#close").await;
    page.wait_for("document.querySelectorAll('#now li').length === 1").await;
    page.click("#open input").await;
    page.type_text("OCTOPUS").await;
    page.wait_for("document.querySelectorAll('#earlier li').length === 1").await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('.agent')?.innerText.includes('Three hearts.')").await;
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_new_conversation_runs_as_it_was_chosen_and_messages_are_sent_again() {
    let Some(lab) = Lab::new() else { return };
    lab.model.when("where", [Answer::new().exec("pwd"), Answer::text("Here.")]);
    lab.model.when("again", [Answer::text("Once."), Answer::text("Twice.")]);
    let other = lab.home.workspace().join("other place");
    std::fs::create_dir(&other).unwrap();
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    page.wait_for("document.querySelector('#choice [name=engine]').value === 'codex'").await;
    page.eval(&format!("document.querySelector('#choice [name=cwd]').value = {}", json!(other)))
        .await;
    page.eval("document.querySelector('#choice [name=model]').value = 'gpt-chosen'; 0").await;
    say(&mut page, "where are you").await;
    answers(&mut page, 1).await;
    assert_eq!(lab.model.requests_about("where")[0].model(), "gpt-chosen");
    let about = text_of(&mut page, "#about").await;
    assert!(about.contains("gpt-chosen") && about.contains("other place"), "{about}");
    page.click(".final .steps > summary").await;
    page.click(".final .steps li summary").await;
    assert!(text_of(&mut page, ".final .steps").await.contains("other place"));

    say(&mut page, "again").await;
    answers(&mut page, 2).await;
    page.eval("[...document.querySelectorAll('.user')].at(-1).querySelectorAll('.tools button')[1].id = 'retry'").await;
    page.click("#retry").await;
    answers(&mut page, 3).await;
    assert_eq!(lab.model.requests_about("again").len(), 2);
    // The last message comes back to be edited.
    page.click("textarea").await;
    page.press_key("ArrowUp", 38, false).await;
    page.wait_for("document.querySelector('textarea').value === 'again'").await;

    // A directory that is not there is refused, and the text is not lost.
    page.click("#new").await;
    page.eval("document.querySelector('#choice [name=cwd]').value = '/nowhere'; 0").await;
    page.click("textarea").await;
    page.type_text("hello").await;
    page.press_enter(false).await;
    page.wait_for("document.querySelector('#state.bad')?.innerText === 'the directory /nowhere does not exist'").await;
    assert_eq!(page.eval("document.querySelector('textarea').value").await, "hello");
    page.assert_content();
    server.stop().await;
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn a_long_answer_opens_at_its_beginning() {
    let Some(lab) = Lab::new() else { return };
    let long: Vec<String> = (0..200).map(|number| format!("Paragraph {number}.\n\n")).collect();
    lab.model.when("long", Answer::new().deltas(long));
    let server = Server::start(&lab, &[]).await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "a long one").await;
    answers(&mut page, 1).await;
    let top = "(() => { const log = document.querySelector('#log').getBoundingClientRect();
        const begin = document.querySelector('.answer').getBoundingClientRect().top;
        return begin >= log.top && begin < log.bottom; })()";
    assert_eq!(page.eval(top).await, true);
    page.eval("show(null)").await;
    page.click("#now button").await;
    page.wait_for("document.querySelector('.answer')").await;
    assert_eq!(page.eval(top).await, true);
    page.assert_content();
    server.stop().await;
}

#[tokio::test]
async fn a_missing_agent_is_reported_with_a_hint() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--codex-bin", "/nowhere/codex"]).await;
    let Some(mut page) = visit(&server).await else { return };
    say(&mut page, "hello").await;
    answers(&mut page, 1).await;
    assert!(text_of(&mut page, ".final .error").await.contains("/nowhere/codex"));
    assert!(text_of(&mut page, ".final .hint").await.starts_with("Hint: "));
    page.wait_for("document.querySelector('#now .about')?.innerText.startsWith('failed')").await;
    page.assert_content();
    server.stop().await;
}
