//! The messages of the chat presenter, as they are sent.

use std::time::Duration;

use proptest::prelude::*;
use pulldown_cmark::{Event, Parser};
use takopi_bridge::present::markup::RichText;
use takopi_bridge::present::{Chat, Limit, Moment};
use takopi_bridge::progress::Progress;
use takopi_core::{
    Action, ActionEvent, ActionKind, Completed, Level, Phase, Reason, ResumeToken, Started,
    TakopiEvent,
};

const RESUME: &str = "`codex resume 0199`";

fn started() -> TakopiEvent {
    Started::new(ResumeToken::new("codex", "0199")).title("Codex").into()
}

fn act(id: &str, kind: ActionKind, title: &str, phase: Phase) -> ActionEvent {
    ActionEvent::new("codex", Action::new(id, kind, title), phase)
}

fn fold(events: impl IntoIterator<Item = TakopiEvent>) -> Progress {
    let mut progress = Progress::default();
    for (second, event) in (0..).zip(events) {
        progress.apply(&event, Duration::from_secs(second));
    }
    progress
}

fn moment() -> Moment<'static> {
    Moment::at(Duration::from_secs(75)).resume_line(RESUME)
}

/// The progress message, with its line ends in sight.
fn message(progress: &Progress) -> String {
    Chat::default().last_actions(20).progress(progress, &moment()).replace("  \n", "⏎\n")
}

fn header(progress: &Progress, moment: &Moment<'_>) -> String {
    let message = Chat::default().progress(progress, moment);
    message.lines().next().unwrap_or_default().trim_end().to_owned()
}

#[test]
fn every_kind_of_action_has_its_line() {
    let done = |id, kind, title| act(id, kind, title, Phase::Completed).ok(true);
    let failed = Action::new("b", ActionKind::Command, "cargo test").with("exit_code", 101);
    let change = |path: &str| serde_json::json!({ "path": path, "kind": "update" });
    let files = |id, paths: &[&str]| {
        let changes: Vec<_> = paths.iter().map(|path| change(path)).collect();
        let action = Action::new(id, ActionKind::FileChange, paths.join(", "));
        ActionEvent::new("codex", action.with("changes", changes), Phase::Completed).ok(true)
    };
    let plan = Action::new("plan", ActionKind::Note, "todo 1/3: write the parser");
    let plan = plan.with("done", 1).with("total", 3);
    let reconnect = Action::new("codex.reconnect", ActionKind::Note, "Reconnecting... 2/5");
    let reconnect = reconnect.with("reason", "stream disconnected");
    let events = [
        act("turn_0", ActionKind::Turn, "turn started", Phase::Started),
        done("0", ActionKind::Note, "I look at `src/lib.rs` first,\nthen at *the* rest."),
        ActionEvent::new("codex", plan, Phase::Updated),
        done("a", ActionKind::Command, "ls"),
        ActionEvent::new("codex", failed, Phase::Completed).ok(false),
        files("c", &["src/__init__.py", "a b.rs"]),
        files("c7", &["a", "b", "c", "d", "e", "f", "g"]),
        done("c0", ActionKind::FileChange, "src/no_details.rs"),
        done("d", ActionKind::Tool, "aquarium.feed"),
        act("e", ActionKind::Tool, "aquarium.clean", Phase::Completed).ok(false).message("no *"),
        done("f", ActionKind::WebSearch, "why three hearts"),
        done("g", ActionKind::Subagent, "review: the change"),
        act("h", ActionKind::Approval, "rm -rf build", Phase::Completed).ok(false).message("no"),
        ActionEvent::warning("codex", "i", "something is odd"),
        done("j", ActionKind::Telemetry, "rate limits: 12 % used"),
        done("k", ActionKind::Note, "for the log").level(Level::Debug),
        done("l", ActionKind::from("dance"), "tango"),
        ActionEvent::new("codex", reconnect, Phase::Updated).level(Level::Info),
        act("m", ActionKind::Command, "cargo build", Phase::Started),
        act("n", ActionKind::Command, "cargo doc", Phase::Updated),
    ];
    let events = events.map(TakopiEvent::from);
    let progress = fold(std::iter::once(started()).chain(events));
    insta::assert_snapshot!(message(&progress), @r"
    working · Codex · 1m 15s · step 18 · todo 1/3: write the parser

    • I look at \`src/lib.rs\` first, then at \*the\* rest.⏎
    ✓ `ls`⏎
    ✗ `cargo test` (exit 101)⏎
    ✓ files: update `src/__init__.py`, update `a b.rs`⏎
    ✓ files: update `a`, update `b`, update `c` …and 4 more⏎
    ✓ files: src/no\_details.rs⏎
    ✓ tool: aquarium.feed⏎
    ✗ tool: aquarium.clean: no \*⏎
    ✓ search: why three hearts⏎
    ✓ subagent: review: the change⏎
    ✗ asked: rm -rf build: no⏎
    ! something is odd⏎
    ✓ dance: tango⏎
    ↻ Reconnecting... 2/5 (stream disconnected)⏎
    ▸ `cargo build`⏎
    ↻ `cargo doc`

    `codex resume 0199`
    ");
}

#[test]
fn a_connection_that_came_back_is_no_attempt_any_more() {
    let action = Action::new("codex.reconnect", ActionKind::Note, "Reconnecting... 3/5");
    let action = action.with("attempt", 3).with("max", 5).with("reason", "stream closed");
    let again = ActionEvent::new("codex", action, Phase::Completed).ok(true).level(Level::Info);
    let shown = message(&fold([started(), again.into()]));
    assert!(shown.contains("✓ reconnected after 3 attempts"), "{shown}");
    assert!(!shown.contains("3/5"), "{shown}");
}

#[test]
fn the_header_shows_the_state_of_the_run() {
    let nothing = Progress::default();
    let at = |seconds| Moment::at(Duration::from_secs(seconds));
    assert_eq!(header(&nothing, &at(0)), "starting · 0s");
    assert_eq!(header(&nothing, &at(2).note("queued behind 2")), "waiting · 2s");
    assert_eq!(header(&fold([started()]), &at(65)), "working · Codex · 1m 05s");
    let wait = act("takopi.wait", ActionKind::Note, "held by process 4711", Phase::Started);
    assert_eq!(header(&fold([wait.into()]), &at(3)), "waiting · codex · 3s · step 1");
    let asked = act("ask", ActionKind::Approval, "rm -rf build", Phase::Started);
    let progress = fold([started(), asked.into()]);
    assert_eq!(header(&progress, &at(9)), "waiting · Codex · 9s · step 1");
    let end = Completed::failure("codex", Reason::UsageLimit, "no more");
    let progress = fold([started(), end.into()]);
    assert_eq!(header(&progress, &at(9)), "failed (usage limit) · Codex · 9s");
}

#[test]
fn a_note_of_the_bridge_stands_below_the_header() {
    let note = Chat::default().progress(&Progress::default(), &moment().note("queued behind 2"));
    assert_eq!(note, format!("waiting · 1m 15s  \nqueued behind 2\n\n{RESUME}"));
}

#[test]
fn only_the_last_actions_are_shown() {
    let command =
        |n: usize| act(&n.to_string(), ActionKind::Command, &n.to_string(), Phase::Started);
    let progress = fold((0..9).map(|n| command(n).into()));
    let message = Chat::default().last_actions(2).progress(&progress, &Moment::default());
    assert_eq!(message, "starting · codex · 0s · step 9\n\n▸ `7`  \n▸ `8`");
    let none = Chat::default().last_actions(0).progress(&progress, &Moment::default());
    assert_eq!(none, "starting · codex · 0s · step 9");
}

#[test]
fn the_text_of_an_action_cannot_break_the_message() {
    let command = |title: &str| {
        let event = act("a", ActionKind::Command, title, Phase::Started);
        let message = message(&fold([event.into()]));
        message.lines().nth(2).unwrap().trim_end_matches('⏎').to_owned()
    };
    assert_eq!(command("echo `date`"), "▸ `` echo `date` ``");
    assert_eq!(command("``a"), "▸ ``` ``a ```");
    assert_eq!(
        command("cat <<EOF\n```\nrm -rf /\n```\nEOF"),
        "▸ ````cat <<EOF ``` rm -rf / ``` EOF````"
    );
    assert_eq!(command("a\x1b[2J\u{202e}b"), "▸ `a�[2J�b`");
    assert_eq!(command(&"x".repeat(5000)), format!("▸ `{}…`", "x".repeat(119)));
    assert_eq!(command(" \n"), "▸ ");
}

#[test]
fn the_final_message_shows_the_outcome() {
    let end = |completed: Completed| {
        let command = act("a", ActionKind::Command, "ls", Phase::Completed).into();
        let messages =
            Chat::default().finished(&fold([started(), command, completed.into()]), &moment());
        messages.join("\n=====\n")
    };
    insta::assert_snapshot!(end(Completed::success("codex", "# Done\n\n- a\n- b\n")), @r"
    done · Codex · 1m 15s · 1 step

    # Done

    - a
    - b

    `codex resume 0199`
    ");
    insta::assert_snapshot!(end(Completed::success("codex", "")), @r"
    done · Codex · 1m 15s · 1 step

    `codex resume 0199`
    ");
    let failed =
        Completed::failure("codex", Reason::Auth, "401 <unauthorized>\n\nrun `codex login`");
    insta::assert_snapshot!(end(failed.answer("So far, so good.")), @r"
    failed (auth) · Codex · 1m 15s · 1 step

    So far, so good.

    401 \<unauthorized>  
    run \`codex login\`

    `codex resume 0199`
    ");
    let cancelled = Completed::failure("codex", Reason::Interrupted, "interrupted");
    insta::assert_snapshot!(end(cancelled.answer("```sh\ncargo te")), @r"
    cancelled · Codex · 1m 15s · 1 step

    ```sh
    cargo te
    ```

    `codex resume 0199`
    ");
}

#[test]
fn a_run_that_never_began_is_over_too() {
    let moment = Moment::default().note("it was third in line");
    let messages = Chat::default().finished(&Progress::default(), &moment);
    assert_eq!(messages, ["cancelled · 0s  \nit was third in line"]);
}

#[test]
fn a_long_answer_is_split_and_the_resume_line_is_in_the_last_part() {
    let lines: Vec<String> = (0..12).map(|n| format!("let number_{n} = {n};")).collect();
    let answer = format!("Here:\n\n```rust\n{}\n```\n\nThat is all.", lines.join("\n"));
    let progress = fold([started(), Completed::success("codex", answer).into()]);
    let messages = Chat::new(Limit::Chars(160)).finished(&progress, &moment());
    insta::assert_snapshot!(messages.join("\n=====\n"), @r"
    done · Codex · 1m 15s

    Here:

    ```rust
    let number_0 = 0;
    let number_1 = 1;
    let number_2 = 2;
    let number_3 = 3;
    let number_4 = 4;
    let number_5 = 5;
    ```
    =====
    ```rust
    let number_6 = 6;
    let number_7 = 7;
    let number_8 = 8;
    let number_9 = 9;
    let number_10 = 10;
    let number_11 = 11;
    ```

    That is all.

    `codex resume 0199`
    ");
}

#[test]
fn where_there_is_little_room_the_oldest_actions_go_first() {
    let command =
        |n: u8| act(&n.to_string(), ActionKind::Command, &format!("cmd {n}"), Phase::Started);
    let progress = fold((1..4).map(|n| command(n).into()));
    let moment = Moment::default().resume_line("`r 1`").note("a remark");
    let at = |most| Chat::new(Limit::Chars(most)).progress(&progress, &moment).replace("  \n", "⏎");
    let header = "waiting · codex · 0s · step 3";
    assert_eq!(at(75), format!("{header}⏎a remark\n\n▸ `cmd 2`⏎▸ `cmd 3`\n\n`r 1`"));
    assert_eq!(at(65), format!("{header}⏎a remark\n\n▸ `cmd 3`\n\n`r 1`"));
    assert_eq!(at(50), format!("{header}⏎a remark\n\n`r 1`"));
    assert_eq!(at(40), format!("{header}\n\n`r 1`"));
    assert_eq!(at(12), "wait…\n\n`r 1`");
    assert_eq!(at(6), "`r 1`");
    assert_eq!(at(0), "w…");
}

#[test]
fn a_resume_line_that_cannot_be_sent_is_left_out_rather_than_cut() {
    let line = format!("`codex resume {}`", "0".repeat(40));
    let moment = Moment::at(Duration::ZERO).resume_line(line.as_str());
    let progress = fold([started(), Completed::success("codex", "42").into()]);
    let narrow = Chat::new(Limit::Chars(40));
    assert_eq!(narrow.finished(&progress, &moment), ["done · Codex · 0s\n\n42"]);
    assert_eq!(narrow.progress(&progress, &moment), "done · Codex · 0s");
    // Where it fits by itself it stays, and the rest gives way.
    let fits = Chat::new(Limit::Chars(60));
    assert_eq!(fits.progress(&progress, &moment), format!("do…\n\n{line}"));
    assert_eq!(fits.finished(&progress, &moment), ["done · Codex · 0s\n\n42", line.as_str()]);
}

/// Each row of a wide table names the columns again where it is shown: it grows to many times its Markdown.
#[test]
fn nothing_of_a_table_is_cut_when_it_is_shown() {
    let head: Vec<String> = (0..8).map(|n| format!("a long name of column {n}")).collect();
    let mut lines = vec![head.join("|"), ["-"; 8].join("|")];
    lines.extend((0..60).map(|row| {
        let cells: Vec<String> = (0..8).map(|column| format!("r{row}c{column}")).collect();
        cells.join("|")
    }));
    let answer = lines.join("\n");
    let progress = fold([started(), Completed::success("codex", answer).into()]);
    let messages = Chat::default().finished(&progress, &moment());
    let shown: Vec<RichText> = messages.iter().map(|it| RichText::from_markdown(it)).collect();
    assert!(shown.iter().all(|it| Limit::default().fits(it.text())));
    for row in 0..60 {
        for column in 0..8 {
            let cell = format!("r{row}c{column}");
            assert!(shown.iter().any(|it| it.text().contains(&cell)), "{cell}");
        }
    }
    assert!(messages.last().unwrap().ends_with(RESUME));
}

fn any_limit() -> impl Strategy<Value = Limit> {
    (any::<bool>(), 20..300_usize)
        .prop_map(|(utf16, most)| if utf16 { Limit::Utf16(most) } else { Limit::Chars(most) })
}

/// The code of a message, as a reader of Markdown sees it.
fn code(markdown: &str) -> Vec<String> {
    let code = Parser::new(markdown).filter_map(|event| match event {
        Event::Code(code) => Some(code.to_string()),
        _ => None,
    });
    code.collect()
}

proptest! {
    #[test]
    fn progress_is_within_the_limit_and_keeps_the_resume_line(
        titles in proptest::collection::vec((any::<String>(), 0..ActionKind::KNOWN.len()), 0..8),
        note in any::<Option<String>>(),
        limit in any_limit(),
    ) {
        let events = titles.iter().enumerate().map(|(n, (title, kind))| {
            let kind = ActionKind::KNOWN[*kind].clone();
            act(&n.to_string(), kind, title, Phase::Started).into()
        });
        let moment = moment().note(note.as_deref());
        let message = Chat::new(limit).progress(&fold(events), &moment);
        prop_assert!(limit.fits(&message), "{message}");
        prop_assert!(message == RESUME || message.ends_with(&format!("\n\n{RESUME}")), "{message}");
        prop_assert!(!message.chars().any(|it| it.is_control() && it != '\n'));
    }

    #[test]
    fn a_command_is_the_only_code_in_its_message(
        command in "[a-z`~*_\\\\\\[<& \n\r\t👩\u{301}\u{202e}\u{1b}]{1,40}",
        said in "[a-z`~*_\\\\\\[<& \n]{0,40}",
    ) {
        let events = [
            act("a", ActionKind::Command, &format!("x{command}x"), Phase::Started).into(),
            act("b", ActionKind::Note, &said, Phase::Started).into(),
        ];
        let message = Chat::default().progress(&fold(events), &moment());
        let expected = takopi_bridge::present::one_line(&format!("x{command}x"), 120);
        prop_assert_eq!(code(&message), [expected.as_str(), "codex resume 0199"], "{}", message);
    }

    #[test]
    fn the_end_is_within_the_limit_and_its_resume_line_whole_and_once(
        answer in any::<String>(),
        fences in "([a`~\n >-]|<!--|<pre>){0,60}",
        error in any::<String>(),
        limit in any_limit(),
    ) {
        let end = Completed::failure("codex", Reason::EngineFailed, error);
        let end = end.answer(format!("{answer}\n{fences}"));
        let messages = Chat::new(limit).finished(&fold([started(), end.into()]), &moment());
        for message in &messages {
            prop_assert!(limit.fits(message), "{message:?}");
            prop_assert!(!message.trim().is_empty());
        }
        let (last, others) = messages.split_last().unwrap();
        prop_assert!(last == RESUME || last.ends_with(&format!("\n\n{RESUME}")), "{last:?}");
        prop_assert!(others.iter().all(|message| !message.contains(RESUME)));
        let code = code(last);
        prop_assert_eq!(code.last().map(String::as_str), Some("codex resume 0199"), "{}", last);
    }
}

#[test]
fn an_answer_that_takes_too_many_messages_is_a_file_for_chats_that_have_files() {
    let answer = (0..400).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n\n");
    let done = Completed::success("codex", answer.as_str());
    let progress = fold([started(), done.into()]);
    let chat = |max| Chat::new(Limit::Chars(400)).max_messages(max);
    let all = chat(3).finished(&progress, &moment());
    assert!(all.len() > 3, "without a file nothing is left out");
    let (messages, file) = chat(3).finished_with_file(&progress, &moment());
    assert_eq!((messages.len(), file.as_deref()), (3, Some(answer.as_str())));
    assert_eq!(messages[..2], all[..2], "it begins as without a file");
    assert_eq!(messages[2], format!("the answer is long: all of it is in the file\n\n{RESUME}"));
    let (messages, file) = chat(1).finished_with_file(&progress, &moment());
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("the answer is in the file") && messages[0].ends_with(RESUME));
    assert!(file.is_some() && Limit::Chars(400).fits(&messages[0]));
    let (messages, file) = chat(all.len()).finished_with_file(&progress, &moment());
    assert_eq!((messages, file), (all, None), "it fits");
}
