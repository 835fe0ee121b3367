//! Answers of the real codex that appear while they are written.

use pty_process::blocking::Command;
use takopi_tests::model::{Answer, Gate};

use super::lab::Lab;
use crate::screen::Screen;

fn command(lab: &Lab, args: &[&str]) -> Command {
    let own = lab.takopi(args);
    let own = own.as_std();
    let vars = own.get_envs().filter_map(|(name, value)| Some((name, value?)));
    Command::new(own.get_program())
        .args(own.get_args())
        .current_dir(own.get_current_dir().unwrap())
        .env_clear()
        .envs(vars)
        .env("TERM", "xterm-256color")
}

#[tokio::test]
async fn an_answer_appears_while_it_is_written_on_a_terminal_that_changes_its_size() {
    let Some(lab) = Lab::new() else { return };
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let answer = Answer::new()
        .deltas(["# Ti", "tle\n\nSome **bold** text that ", "is"])
        .wait_for(&gates[0])
        .deltas([
            " long enough to be wrapped, 日本 and e",
            "\u{301}.\n\n| a | b |\n|---|--:|\n| 1 ",
        ])
        .wait_for(&gates[1])
        .deltas(["| 2 |\n\n- one\n", "- two\n"])
        .wait_for(&gates[2])
        .deltas(["- three"]);
    lab.model.otherwise(answer);
    let command = command(&lab, &["run", "go"]);
    let seen = tokio::task::spawn_blocking(move || {
        let screen = Screen::start(command, (24, 60));
        screen.wait_for("Title\n\nSome bold text that is");
        screen.resize((24, 30));
        gates[0].open();
        screen.wait_for("日本\nand e\u{301}.");
        screen.resize((24, 60));
        gates[1].open();
        screen.wait_for("a  b\n1  2\n\n• one\n• two");
        gates[2].open();
        screen.end()
    });
    let (code, over, raw) = seen.await.unwrap();
    assert_eq!(code, Some(0), "{over}");
    assert!(over.contains("• one\n• two\n• three\n\n✓ Codex · "), "{over}");
    for once in ["Title", "日本", "• three"] {
        assert_eq!(over.matches(once).count(), 1, "{once} in {over}");
    }
    assert!(!over.contains("step"), "what is streamed is no step: {over}");
    assert!(raw.contains("\x1b[1mbold"), "{raw:?}");
}

#[tokio::test]
async fn drawing_takes_at_most_three_times_the_bytes_of_the_answer() {
    let Some(lab) = Lab::new() else { return };
    let block = "## A heading\n\nSome prose with **bold** words and `code`, long enough to take a few lines \
                 of the screen, 日本語 as well, and so on until the end of the paragraph.\n\n\
                 - an item with some text in it\n- another item of the list\n\n\
                 ```rust\nfn main() {\n    println!(\"hello, world\");\n}\n```\n\n";
    for blocks in [20, 200] {
        let answer = block.repeat(blocks);
        let letters: Vec<char> = answer.chars().collect();
        let pieces = letters.chunks(4).map(|piece| piece.iter().collect::<String>());
        lab.model.when(&format!("blocks {blocks}."), Answer::new().deltas(pieces));
        let command = command(&lab, &["run", &format!("blocks {blocks}.")]);
        let seen = tokio::task::spawn_blocking(move || Screen::start(command, (40, 100)).end());
        let (code, over, raw) = seen.await.unwrap();
        assert_eq!(code, Some(0), "{over}");
        // A line that only grew is not written again: what was written is read on a terminal as high as the answer.
        let mut whole = vt100::Parser::new(
            u16::try_from(blocks * 16 + 40).unwrap().try_into().unwrap(),
            100.try_into().unwrap(),
            0,
        );
        whole.process(raw.as_bytes());
        let whole = whole.screen().contents();
        assert_eq!(whole.matches("    println!(\"hello, world\");").count(), blocks, "{whole}");
        // How many frames there are is up to the machine. Each has the line below the answer, with its clock.
        let frames = raw.matches("\x1b[J").count();
        let most = 3 * answer.len() + 80 * frames;
        assert!(raw.len() < most, "{} for {} in {frames} frames", raw.len(), answer.len());
    }
}

#[tokio::test]
async fn a_chat_shows_the_answer_while_it_is_written_and_keeps_what_is_typed() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.otherwise(Answer::new().deltas(["One.\n\nTwo"]).wait_for(&gate).delta(" three."));
    let command = command(&lab, &["chat"]);
    let seen = tokio::task::spawn_blocking(move || {
        let screen = Screen::start(command, (24, 60));
        screen.wait_for("[1] ›");
        screen.press("go\r");
        screen.wait_for("[1] ↳ go\nOne.\n\nTwo");
        screen.press("a draft");
        screen.wait_for("[1] › a draft");
        gate.open();
        screen.wait_for("Two three.\n\n[1] done");
        screen.wait_for("[1] › a draft");
        screen.press("\x15/quit\r");
        screen.end()
    });
    let (code, over, _) = seen.await.unwrap();
    assert_eq!(code, Some(0), "{over}");
    assert_eq!(over.matches("Two three.").count(), 1, "{over}");
}

#[tokio::test]
async fn deltas_are_pieces_in_the_json_and_a_pipe_gets_the_answer_as_a_whole() {
    let Some(lab) = Lab::new() else { return };
    for prompt in ["go 1", "go 2", "go 3"] {
        lab.model.when(prompt, Answer::new().deltas(["one ", "**two** ", "three"]));
    }
    let ran = lab.run(&["run", "go 1", "--json", "--deltas"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let events =
        ran.stdout.lines().map(|it| serde_json::from_str::<serde_json::Value>(it).unwrap());
    let answers: Vec<_> = events.filter(|it| it["action"]["kind"] == "answer").collect();
    let text: String = answers.iter().filter_map(|it| it["message"].as_str()).collect();
    assert_eq!(text, "one **two** three");
    assert_eq!(answers.last().unwrap()["phase"], "completed");

    let ran = lab.run(&["run", "go 2", "--json"]).await;
    assert!(
        !ran.stdout.contains("\"answer\",\"title\"") && !ran.stdout.contains("updated"),
        "{}",
        ran.stdout
    );
    let ran = lab.run(&["run", "go 3"]).await;
    assert_eq!(ran.stdout, "one **two** three\n");
    assert!(!ran.stderr.contains("two"), "{}", ran.stderr);
    let ran = lab.run(&["run", "go", "--deltas"]).await;
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[tokio::test]
async fn a_unique_prefix_of_an_id_resumes_its_session() {
    let Some(lab) = Lab::new() else { return };
    lab.model.when("first", Answer::text("one"));
    lab.model.when("second", Answer::text("two"));
    let ran = lab.run(&["run", "first"]).await;
    let line = ran.resume_line();
    let id = line.split_whitespace().last().unwrap().trim_matches('`');
    let ran = lab.run(&["run", "--resume", &id[..13], "second"]).await;
    assert_eq!(ran.stdout, "two\n", "{}", ran.stderr);
    assert!(ran.stderr.contains(id), "{}", ran.stderr);
    let listed = lab.run(&["sessions", "--search", "FIRST"]).await;
    assert!(listed.stdout.starts_with(id), "{}", listed.stdout);
    let listed = lab.run(&["sessions", "--search", "nowhere"]).await;
    assert_eq!((listed.stdout.as_str(), listed.code), ("", Some(0)), "{}", listed.stderr);
}
