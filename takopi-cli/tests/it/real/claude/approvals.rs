//! Who answers what Claude Code asks: a person on the terminal, in a chat, or nobody.

use serde_json::{Value, json};
use takopi_tests::model::Gate;
use takopi_tests::model::messages::Answer;

use super::lab::Lab;
use crate::screen::Screen;

/// Texts to wait for on a screen, each with the keys that are pressed then.
type Keys = &'static [(&'static str, &'static str)];

/// The input of a tool that asks a question with choices.
pub(crate) fn question() -> Value {
    json!({ "questions": [{
        "question": "Which color?", "header": "Color", "multiSelect": false,
        "options": [
            { "label": "Red", "description": "warm" },
            { "label": "Blue", "description": "cold" },
        ],
    }] })
}

/// What the agent was told last.
pub(crate) fn told(lab: &Lab) -> String {
    lab.model.requests().pop().unwrap().tool_outputs().pop().unwrap().text
}

/// Runs takopi on a terminal. Returns the exit code and the screens that were waited for, and the last one.
async fn on_terminal(lab: &Lab, args: &[&str], keys: Keys) -> (Option<i32>, Vec<String>) {
    let command = lab.on_terminal(args);
    let over = tokio::task::spawn_blocking(move || {
        let screen = Screen::start(command, (60, 150));
        let mut seen = Vec::new();
        for (text, keys) in keys {
            seen.push(screen.wait_for(text));
            screen.press(keys);
        }
        let (code, last, _) = screen.end();
        seen.push(last);
        (code, seen)
    });
    over.await.unwrap()
}

#[tokio::test]
async fn approval_requests_are_declined_or_accepted_without_a_person() {
    for (approve, said, written) in
        [("deny", "declined: --approve deny", false), ("accept", "accepted", true)]
    {
        let Some(lab) = Lab::new() else { return };
        let write = Answer::new().write_file(lab.path("new.txt"), "new\n");
        lab.model.otherwise([write, Answer::text("done")]);
        let ran = lab.run(&["run", "--approve", approve, "add a file"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(lab.home.workspace().join("new.txt").exists(), written, "{approve}");
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn a_command_is_decided_by_a_person_on_the_terminal() {
    const ASKED: &str = "no, and stop";
    let cases: [(Keys, &str, bool, i32); 4] = [
        (&[(ASKED, "y")], "✓ asked: touch ", true, 0),
        // The same command again is not asked about.
        (&[(ASKED, "a")], "✓ asked: touch ", true, 0),
        (&[(ASKED, "n")], "✗ asked: touch ", false, 0),
        (&[(ASKED, "c")], "✗ asked: touch ", false, 130),
    ];
    for (keys, said, written, code) in cases {
        let Some(lab) = Lab::new() else { return };
        let touch = Answer::new().bash("touch asked");
        let twice = keys[0].1 == "a";
        let script = [touch.clone(), touch, Answer::text("done")];
        lab.model.otherwise(script.into_iter().skip(usize::from(!twice)).collect::<Vec<_>>());
        let (ended, seen) = on_terminal(&lab, &["run", "--approve", "ask", "touch it"], keys).await;
        let over = seen.last().unwrap();
        assert_eq!(ended, Some(code), "{keys:?} {over}");
        let asked = "? claude wants to run a command\n    touch asked\n";
        assert!(seen[0].contains(asked), "{}", seen[0]);
        assert!(over.contains(said), "{over}");
        assert_eq!(lab.home.workspace().join("asked").exists(), written, "{keys:?}");
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn a_question_with_choices_is_answered_on_the_terminal() {
    const TYPE: &str = "then Enter;";
    let cases: [(Keys, &str); 3] = [
        (&[(TYPE, "2\r")], "Blue"),
        (&[(TYPE, "gre"), ("› gre", "en\r")], "green"),
        (&[(TYPE, "n\r")], "declined"),
    ];
    for (keys, answer) in cases {
        let Some(lab) = Lab::new() else { return };
        lab.model.otherwise([Answer::call("AskUserQuestion", question()), Answer::text("Thanks.")]);
        let (code, seen) = on_terminal(&lab, &["run", "paint it"], keys).await;
        assert_eq!(code, Some(0), "{seen:?}");
        for line in [
            "? claude has a question",
            "    Color: Which color?\n    (1) Red: warm\n    (2) Blue: cold\n",
            "type the answer, or its number, then Enter;  n no  c no, and stop",
        ] {
            assert!(seen[0].contains(line), "{line}: {}", seen[0]);
        }
        assert!(told(&lab).contains(answer), "{}", told(&lab));
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn an_option_with_the_letter_of_a_decision_is_chosen_by_its_name() {
    let options = ["A", "B", "C"].map(|label| json!({ "label": label, "description": "" }));
    let question = json!({ "questions": [{
        "question": "Which one?", "header": "Letter", "multiSelect": false, "options": options,
    }] });
    let cases: [(&[&str], Keys); 2] = [
        (&["run", "choose"], &[("then Enter;", "c\r")]),
        (
            &["chat"],
            &[
                ("[1] ›", "choose\r"),
                ("answer with your next message: A, B, C", "c\r"),
                ("Thanks.", "/quit\r"),
            ],
        ),
    ];
    for (args, keys) in cases {
        let Some(lab) = Lab::new() else { return };
        let ask = Answer::call("AskUserQuestion", question.clone());
        lab.model.otherwise([ask, Answer::text("Thanks.")]);
        let (code, seen) = on_terminal(&lab, args, keys).await;
        assert_eq!(code, Some(0), "{seen:?}");
        assert!(told(&lab).contains("\"Which one?\"=\"C\""), "{}", told(&lab));
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn a_plan_is_shown_and_approved_on_the_terminal() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.otherwise(Answer::new().wait_for(&gate).bash("ls"));
    let args = ["run", "--permission-mode", "plan", "plan it"];
    let ran = on_terminal(&lab, &args, &[("no, and stop", "y")]);
    let script = async {
        gate.reached().await;
        // The agent writes its plan into a file that Claude Code names.
        let request = lab.model.requests()[0].body.to_string();
        let file = request.split(['"', '\\', ' ', '`']).find(|word| word.contains("/plans/"));
        let plan = "1. Read the parser.\n2. Change it.\n";
        lab.model.otherwise([
            Answer::new().write_file(file.unwrap(), plan),
            Answer::call("ExitPlanMode", json!({})),
            Answer::text("Planned."),
        ]);
        gate.open();
    };
    let ((code, seen), ()) = tokio::join!(ran, script);
    assert_eq!(code, Some(0), "{seen:?}");
    let shown =
        "? claude wants to carry out a plan\n      1. Read the parser.\n      2. Change it.\n";
    assert!(seen[0].contains(shown), "{}", seen[0]);
    assert!(seen.last().unwrap().contains("Planned."), "{seen:?}");
}

#[tokio::test]
async fn approvals_and_questions_are_answered_in_a_chat() {
    let Some(lab) = Lab::new() else { return };
    let touch = Answer::new().bash("touch asked");
    lab.model.when("touch it", [touch.clone(), Answer::text("Touched.")]);
    lab.model.when("touch again", [touch, Answer::text("Again.")]);
    let ask = Answer::call("AskUserQuestion", question());
    lab.model.when("paint it", [ask, Answer::text("Thanks.")]);
    let keys: Keys = &[
        ("[1] ›", "touch it\r"),
        ("y yes, a yes for this session, n no, c no and stop; then Enter", "a\r"),
        ("Touched.", "touch again\r"),
        ("Again.", "paint it\r"),
        ("answer with your next message: Red, Blue, or your own text", "2\r"),
        ("Thanks.", "/quit\r"),
    ];
    let (code, seen) = on_terminal(&lab, &["chat"], keys).await;
    assert_eq!(code, Some(0), "{seen:?}");
    let shown = seen.join("\n");
    assert!(shown.contains("accepted for the session by you"), "{shown}");
    assert!(shown.contains("claude has a question"), "{shown}");
    assert!(lab.home.workspace().join("asked").exists());
    assert!(told(&lab).contains("Blue"), "{}", told(&lab));
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn hints_about_what_was_declined_fit_who_declined_it() {
    let Some(lab) = Lab::new() else { return };
    let write = Answer::new().write_file(lab.path("new.txt"), "new\n");
    lab.model.otherwise([write, Answer::text("done")]);
    let by_default = lab.run(&["run", "add a file"]).await;
    let hint = "; --approve accept accepts every request, --permission-mode acceptEdits allows ";
    assert!(by_default.stderr.contains(hint), "{}", by_default.stderr);
    let by_mode = lab.run(&["run", "--permission-mode", "dontAsk", "add a file"]).await;
    assert_eq!(by_mode.code, Some(0), "{}", by_mode.stderr);
    assert!(by_mode.stderr.contains("running in don't ask mode.\n"), "{}", by_mode.stderr);
    assert!(!by_mode.stderr.contains("hint:"), "it would not help: {}", by_mode.stderr);
    let edits = lab.run(&["run", "--permission-mode", "acceptEdits", "add a file"]).await;
    assert!(edits.code == Some(0) && lab.home.workspace().join("new.txt").exists(), "{edits:?}");
}
