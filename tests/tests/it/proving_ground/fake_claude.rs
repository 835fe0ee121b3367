//! The fake Claude Code, run directly, follows its scripts: every other test that uses it can rely on that.

use nix::sys::signal::Signal as Sent;
use serde_json::{Value, json};
use takopi_tests::claude::duplex::{ARGS, Duplex};
use takopi_tests::claude::fake::{
    self, Control, Grandchild, Place, Process, Script, Signal, Step, turn,
};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::lab::{Lab, SESSION};
use takopi_tests::claude::real;
use takopi_tests::model::messages::{Answer, MessagesServer};

fn start(lab: &Lab, args: &[&str]) -> Duplex {
    let mut command = lab.home.command(lab.binary());
    command.envs(lab.env()).args(ARGS).args(args);
    Duplex::spawn(&mut command)
}

fn lab(process: Process) -> Lab {
    Lab::new(process)
}

/// What lines are about, without ids: type, subtype, state, kinds of blocks.
fn kinds(lines: &[String]) -> Vec<String> {
    let kind = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        let blocks = line["message"]["content"].as_array().into_iter().flatten();
        let parts = [&line["type"], &line["subtype"], &line["state"], &line["response"]["subtype"]];
        let parts = parts.into_iter().chain([&line["request"]["subtype"]]);
        let words = parts.chain(blocks.map(|block| &block["type"])).filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(kind).collect()
}

/// Has the same conversation with a claude: two turns, one with an approval that an interrupt withdraws.
async fn converse(mut claude: Duplex) -> (Vec<String>, Option<i32>) {
    claude.control(json!({"subtype": "initialize"})).await;
    claude.user("say [[hello]]").await;
    claude.result().await;
    claude.user("now [[ask]]").await;
    claude.asked("can_use_tool").await;
    claude.control(json!({"subtype": "interrupt"})).await;
    claude.result().await;
    claude.control(json!({"subtype": "interrupt"})).await;
    claude.control(json!({"subtype": "no_such_thing"})).await;
    let id = claude.request(json!({"subtype": "end_session"})).await;
    claude.response(&id).await;
    let ended = claude.end().await;
    (kinds(&ended.lines), ended.code)
}

#[tokio::test]
async fn it_prints_the_same_kinds_of_lines_as_the_real_one() {
    let Some(claude) = real::claude_or_skip() else { return };
    let model = MessagesServer::start();
    model.when("[[hello]]", "Hello.");
    model.when("[[ask]]", Answer::new().bash("touch x"));
    let home = TestHome::new(&model);
    let args = ["--permission-prompt-tool", "stdio"];
    let real = converse(Duplex::start(&claude, &home, &args)).await;

    let asks = [
        turn::bash("t", "touch x"),
        turn::requires_action(),
        turn::ask_bash("ask", "t", "touch x"),
    ];
    let lab = lab(Process::new().turns_when("[[ask]]", asks));
    let fake = converse(start(&lab, &args)).await;
    assert_eq!(fake, real);
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_healthy_process_answers_echoes_and_ends_with_its_input() {
    let lab = Lab::new(fake::echo());
    let mut command = lab.home.command(lab.binary());
    let args = ["--print", "--input-format=stream-json", &format!("--resume={SESSION}")];
    let mut claude = Duplex::spawn(command.envs(lab.env()).args(args));
    for prompt in ["one \"quoted\"", "two"] {
        let uuid = claude.user(prompt).await;
        let result = claude.result().await;
        assert_eq!((&result["result"], &result["session_id"]), (&json!(prompt), &json!(SESSION)));
        assert_eq!(result["user_message_uuids"], json!([uuid]));
    }
    let hello = claude.control(json!({"subtype": "initialize"})).await;
    assert_eq!(hello["response"]["session_state"], "idle");
    assert_eq!(claude.end().await.code, Some(0));
    assert_eq!(lab.control.calls("user").len(), 2);
    assert_eq!(lab.control.call("initialize").await.start, 0);
    assert!(lab.control.overlaps().is_empty());
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn version_and_auth_count_as_no_start() {
    let control = Control::new();
    let script = fake::answering("x").version("2.0.45");
    let run = async |args: &[&str]| {
        let mut command = tokio::process::Command::new(fake::binary());
        let output = command.args(args).envs(control.env(&script)).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["--version"]).await, "2.0.45 (Claude Code)\n");
    assert!(run(&["auth", "status"]).await.contains("\"loggedIn\":true"));
    assert_eq!((control.version_calls(), control.starts().len()), (1, 0));
}

#[tokio::test]
async fn an_interrupt_stops_a_turn_at_its_gate_and_withdraws_its_asks() {
    let asks = turn::ask_bash("later", "t", "ls").without_waiting();
    let steps = [asks, Step::reached("asked"), Step::gate("never"), turn::text("no")];
    let lab = lab(Process::new().turn(steps));
    let mut claude = start(&lab, &[]);
    let uuid = claude.user("go").await;
    lab.control.reached("asked").await;
    let asked = claude.asked("can_use_tool").await;
    let interrupt = claude.request(json!({"subtype": "interrupt"})).await;
    let withdrawn = claude.line("control_cancel_request", "").await;
    assert_eq!(withdrawn["request_id"], asked["request_id"]);
    claude.response(&interrupt).await;
    let result = claude.result().await;
    assert_eq!(result["terminal_reason"], "aborted_tools");
    assert_eq!(result["user_message_uuids"], json!([uuid]));
    lab.control.open("never");
    claude.user("again").await;
    assert_eq!(claude.result().await["result_index"], 1);
    let ended = claude.end().await;
    assert_eq!(ended.code, Some(0));
    assert!(!ended.lines.iter().any(|line| line.contains("\"no\"")));
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn answers_to_asks_reach_the_steps_and_the_test() {
    let call = turn::call_host("call", "host", "t", "greet", &json!({"name": "Ada"}));
    let steps = turn::connect_host("tools", "host")
        .into_iter()
        .chain([turn::ask_question("which", "q", "Red?"), call])
        .chain(turn::answer("$REPLY"));
    let lab = lab(Process::new().turn(steps));
    let mut claude = start(&lab, &[]);
    claude.user("go").await;
    for step in 0..5 {
        let asked = claude.line("control_request", "").await;
        claude.answer(&asked, json!({ "step": step })).await;
    }
    assert_eq!(claude.result().await["result"], r#"{"step":4}"#);
    let answers = [("tools", 2), ("which", 3), ("call", 4)];
    for (name, step) in answers {
        assert_eq!(lab.control.answer(name).await["response"], json!({ "step": step }));
    }
    assert_eq!(claude.end().await.code, Some(0));
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn messages_are_folded_and_turns_come_unasked() {
    let late = [Step::gate("go")].into_iter().chain(turn::answer("Both."));
    let lab = lab(Process::new().turn(late.chain(turn::unasked("woken", "It ended."))));
    let mut claude = start(&lab, &[]);
    let first = claude.user("one").await;
    let second = claude.user("two").await;
    claude.until(|line| line["command_uuid"] == second.as_str()).await;
    lab.control.open("go");
    assert_eq!(claude.result().await["user_message_uuids"], json!([first, second]));
    lab.control.open("woken");
    let unasked = claude.result().await;
    assert_eq!((&unasked["result"], &unasked["result_index"]), (&json!("It ended."), &json!(1)));
    assert_eq!(unasked["origin"]["kind"], "task-notification");
    assert!(unasked.get("user_message_uuids").is_none());
    assert_eq!(claude.end().await.code, Some(0));
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn the_end_of_the_input_lets_the_turn_end_and_an_error_is_the_exit_code() {
    let steps = [Step::reached("begun"), Step::gate("go")];
    let steps = steps.into_iter().chain(turn::api_error(500, "server_error", "API Error: 500"));
    let lab = lab(Process::new().turn(steps));
    let mut claude = start(&lab, &[]);
    claude.user("go").await;
    lab.control.reached("begun").await;
    let control = &lab.control;
    let (ended, ()) = tokio::join!(claude.end(), async { control.open("go") });
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.events().last().unwrap()["state"], "idle");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn results_may_name_nobody_or_somebody_else_and_requests_may_fail() {
    let other = turn::result_with("theirs", &json!({"user_message_uuids": ["other"]}));
    let nobody = turn::result_with("nobody's", &json!({"user_message_uuids": null}));
    let steps = [other, nobody].into_iter().chain(turn::over("ours"));
    let refused = Step::Fail { code: 0, message: "no".into(), data: Some(json!("refused")) };
    let process = Process::new().turn(steps).once("set_model", [refused]).always("interrupt", []);
    let lab = lab(process);
    let mut claude = start(&lab, &[]);
    let uuid = claude.user("go").await;
    assert_eq!(claude.line("result", "").await["user_message_uuids"], json!(["other"]));
    assert!(claude.line("result", "").await.get("user_message_uuids").is_none());
    assert_eq!(claude.result().await["user_message_uuids"], json!([uuid]));
    claude.request(json!({"subtype": "interrupt"})).await;
    let refused = claude.control(json!({"subtype": "set_model", "model": "x"})).await;
    let expected = json!({"subtype": "error", "error": "no", "error_code": "refused", "request_id": "request-2"});
    assert_eq!(refused, expected);
    let ended = claude.end().await;
    assert!(!ended.lines.iter().any(|line| line.contains("request-1")));
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn it_dies_and_exits_as_told() {
    let dies = Process::new().turn([turn::text("half"), Step::Die(Signal::Kill)]);
    let huge = Process::new().turn([turn::huge_text(100_000), Step::Exit(0)]);
    let ends = Process::new().first([Step::stderr("no"), Step::Exit(7)]);
    let lab = Lab::new(Script::nth([dies, huge, ends]));
    for (code, last) in [(None, "half"), (Some(0), "xxx")] {
        let mut claude = start(&lab, &[]);
        claude.user("go").await;
        let ended = claude.end().await;
        assert_eq!(ended.code, code);
        let line = ended.lines.last().unwrap();
        assert!(line.contains(last) && (last == "half" || line.len() == 100_000));
    }
    let ended = start(&lab, &[]).end().await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(7), "no\n"));
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn it_floods_prints_junk_and_closes_its_output_within_a_turn() {
    let steps = [turn::flood(100), Step::line("junk"), Step::CloseStdout, Step::reached("closed")];
    let lab = lab(Process::new().turn(steps));
    let mut claude = start(&lab, &[]);
    claude.user("go").await;
    lab.control.reached("closed").await;
    // The turn never ends, and so the end of the input would not end it.
    claude.signal(Sent::SIGTERM);
    let ended = claude.end().await;
    assert_eq!(ended.code, None);
    assert!(ended.lines.len() > 100);
    assert_eq!(ended.lines.last().unwrap(), "junk");
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_stubborn_one_ends_only_by_force_and_its_commands_live_on() {
    let command = Grandchild::new("command").at(Place::OwnSession).spawn();
    let process = Process::new().turn([command, Step::reached("begun"), Step::SleepForever]);
    let lab = lab(process.stubborn());
    let mut claude = start(&lab, &[]);
    claude.user("go").await;
    let command = lab.control.reached("command").await.pid;
    lab.control.reached("begun").await;
    for subtype in ["interrupt", "end_session"] {
        claude.request(json!({ "subtype": subtype })).await;
        lab.control.call(subtype).await;
    }
    for signal in [Sent::SIGHUP, Sent::SIGINT, Sent::SIGTERM] {
        claude.signal(signal);
    }
    let alive = claude.control(json!({"subtype": "mcp_status"})).await;
    assert_eq!(alive["subtype"], "success");
    claude.signal(Sent::SIGKILL);
    assert_eq!(claude.end().await.code, None);
    assert_eq!(lab.control.alive(), [command]);
}

#[tokio::test]
async fn a_session_that_two_processes_have_open_is_noticed() {
    let lab = Lab::new(fake::answering("x"));
    let mut claudes = Vec::new();
    for _ in 0..2 {
        let mut claude = start(&lab, &["--session-id", SESSION]);
        claude.control(json!({"subtype": "initialize"})).await;
        claudes.push(claude);
    }
    assert_eq!(lab.control.overlaps().len(), 1);
    for claude in claudes {
        claude.end().await;
    }
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn lines_that_are_no_json_end_it_and_unknown_types_do_not() {
    let lab = Lab::new(fake::unknown_session());
    let claude = start(&lab, &[&format!("--resume={SESSION}")]);
    let ended = claude.end().await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.events()[0]["errors"][0].as_str().unwrap().ends_with(SESSION));

    let lab = Lab::new(fake::answering("x"));
    let mut claude = start(&lab, &[]);
    claude.send(&json!({"type": "unknown"})).await;
    claude.send(&json!("not an object")).await;
    claude.control(json!({"subtype": "initialize"})).await;
    claude.send_line("{").await;
    assert_eq!(claude.end().await.code, Some(1));
    lab.assert_nothing_left().await;
}
