//! Agents of the configuration file, and the list of engines.

use serde_json::Value;

use super::lab::{Lab, Ran, Running, ran};

/// An agent that no preset knows. It keeps a session in a file, and loses prompts if two processes write to it at once.
const AGENT: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "my-agent 4.5.6"; exit 0; }
part() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  session=$(part sessionId)
  case $line in
    *'"initialize"'*)
      say "\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{\"sessionCapabilities\":{\"resume\":{}}}}" ;;
    *'"session/new"'*)
      : > "$HOME/own-$$"
      say "\"id\":$id,\"result\":{\"sessionId\":\"own-$$\"}" ;;
    *'"session/resume"'*)
      if [ -f "$HOME/$session" ]; then say "\"id\":$id,\"result\":{}"
      else say "\"id\":$id,\"error\":{\"code\":-32603,\"message\":\"never heard of it\"}"; fi ;;
    *'"session/prompt"'*)
      before=$(cat "$HOME/$session")
      text=$(part text)
      sleep 0.1
      printf '%s\n%s\n' "$before" "$text" > "$HOME/$session"
      say "\"method\":\"session/update\",\"params\":{\"sessionId\":\"$session\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"heard $text\"}}}"
      say "\"id\":$id,\"result\":{\"stopReason\":\"end_turn\"}" ;;
  esac
done
"#;

/// A place with the agent and a configuration that names it.
fn lab() -> Lab {
    let lab = Lab::new();
    let agent = lab.write_executable("bin/my-agent", AGENT);
    let config = format!(
        "[engines.mine]\nkind = 'acp'\ncommand = ['{}', '--acp']\nsessions = 'my-agent'\n\
         resume = 'my-agent --session'\ntitle = 'My Agent'\n",
        agent.display()
    );
    lab.write("home/.config/takopi/config.toml", &config);
    lab
}

fn line(ran: &Ran) -> String {
    let lines = ran.stderr.lines().map(str::trim);
    let line =
        lines.filter_map(|line| line.find("my-agent --session").map(|at| &line[at..])).next_back();
    line.unwrap_or_else(|| panic!("no resume line: {}", ran.stderr)).trim_matches('`').to_owned()
}

#[test]
fn an_id_alone_never_chooses_an_agent_that_takes_any_word_for_an_id() {
    let lab = lab();
    let typo = lab.run(&["run", "--resume", "5f1f3a1x", "hello"]);
    assert_eq!((typo.code, typo.stdout.as_str()), (Some(2), ""), "{}", typo.stderr);
    assert!(typo.stderr.contains("\"5f1f3a1x\" is not a session id of codex"), "{}", typo.stderr);
    // The prefix of a stored session is found all the same.
    let id = "0123abcd-26e5-7eb0-9d27-459e98f10b74";
    let record = format!(
        r#"{{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{{"id":"{id}","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w","cli_version":"0.166.0"}}}}"#
    );
    let name = format!("codex/sessions/2026/01/02/rollout-2026-01-02T03-04-05-{id}.jsonl");
    lab.write(&name, &(record + "\n"));
    let mut command = lab.takopi(&["run", "--resume", "0123abcd", "--codex-bin", "/nowhere", "x"]);
    let ran = ran(command.env("CODEX_HOME", lab.path("codex")));
    assert!(ran.stderr.contains("/nowhere"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("is not a session id"), "{}", ran.stderr);
}

#[test]
fn what_an_agent_wrote_before_it_died_is_shown() {
    let lab = Lab::new();
    let config = lab.write(
        "c.toml",
        "[engines.bad]\nkind = 'acp'\ncommand = ['sh', '-c', 'echo oops >&2; exit 3']\nsessions = 'bad'\n",
    );
    let ran = lab.run(&["--config", config.to_str().unwrap(), "run", "--engine", "bad", "hello"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("error: bad exited before it opened a session\n  oops\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_agent_of_the_configuration_runs_and_goes_on_in_another_process() {
    let lab = lab();
    let first = lab.run(&["run", "--engine", "mine", "hello"]);
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "heard hello\n"), "{}", first.stderr);
    let line = line(&first);
    // The line alone chooses the engine.
    let second = lab.run(&["run", "--resume", &line, "again"]);
    assert_eq!(
        (second.code, second.stdout.as_str()),
        (Some(0), "heard again\n"),
        "{}",
        second.stderr
    );
    let session = line.rsplit(' ').next().unwrap();
    let history = std::fs::read_to_string(lab.path("home").join(session)).unwrap();
    assert_eq!(history.split_whitespace().collect::<Vec<_>>(), ["hello", "again"]);
    let unknown = lab.run(&["run", "--engine", "mine", "--resume", "own-0", "x"]);
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("mine has no session own-0 here: never heard of it"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn four_prompts_at_once_from_four_processes_are_all_answered_and_kept() {
    let lab = lab();
    let line = line(&lab.run(&["run", "--engine", "mine", "begin"]));
    let words = ["red", "green", "blue", "black"];
    let running = words.map(|word| Running::start(lab.takopi(&["run", "--resume", &line, word])));
    for (word, running) in words.iter().zip(running) {
        let ran = running.end();
        assert_eq!((ran.code, ran.stdout), (Some(0), format!("heard {word}\n")), "{}", ran.stderr);
    }
    let session = line.rsplit(' ').next().unwrap();
    let history = std::fs::read_to_string(lab.path("home").join(session)).unwrap();
    let mut history: Vec<&str> = history.split_whitespace().collect();
    history.sort_unstable();
    assert_eq!(history, ["begin", "black", "blue", "green", "red"]);
}

#[test]
fn the_list_of_engines_has_what_is_configured_and_found() {
    let lab = lab();
    let listed = lab.run(&["engines"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let mine = listed.stdout.lines().find(|line| line.contains("mine")).unwrap();
    assert!(
        mine.contains("✓ mine") && mine.contains("My Agent") && mine.contains("4.5.6"),
        "{mine}"
    );
    assert!(listed.stdout.contains("– opencode"), "{}", listed.stdout);
    let json: Value = serde_json::from_str(&lab.run(&["engines", "--json"]).stdout).unwrap();
    let engines = json.as_array().unwrap();
    let names: Vec<&str> =
        engines.iter().map(|engine| engine["engine"].as_str().unwrap()).collect();
    assert_eq!(names[0], "codex");
    assert!(names.contains(&"mine") && names.last() == Some(&"demo"), "{names:?}");
    let mine = engines.iter().find(|engine| engine["engine"] == "mine").unwrap();
    assert_eq!((&mine["installed"], &mine["version"]), (&Value::Bool(true), &"4.5.6".into()));
    let supports = mine["transports"][0]["supports"].as_array().unwrap();
    assert!(supports.contains(&"approvals".into()) && supports.contains(&"deltas".into()));
}

#[test]
fn sessions_that_cannot_be_listed_are_named() {
    let lab = lab();
    let all = lab.run(&["sessions"]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    assert!(
        all.stderr.contains("note: takopi cannot list the sessions of mine\n"),
        "{}",
        all.stderr
    );
    assert_eq!(lab.run(&["sessions", "--json"]).stderr, "");
    for (args, says) in [
        (
            &["sessions", "--engine", "mine"][..],
            "error: takopi cannot list the sessions of mine: find the id",
        ),
        (&["sessions", "--engine", "codex-acp"], "are those of codex: use --engine codex"),
        (&["sessions", "show", "--engine", "mine", "own-1"], "takopi cannot list the sessions of"),
        (&["run", "--engine", "mine", "--last", "x"], "--last: takopi cannot list the sessions of"),
    ] {
        let ran = lab.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
}

#[test]
fn doctor_checks_an_agent_of_the_configuration() {
    let lab = lab();
    let good = lab.run(&["doctor", "--engine", "mine"]);
    assert!(good.stdout.contains("✓ version  4.5.6"), "{}", good.stdout);
    assert!(good.stdout.contains("login    not known before a run"), "{}", good.stdout);
    std::fs::remove_file(lab.path("bin/my-agent")).unwrap();
    let missing = lab.run(&["doctor", "--engine", "mine"]);
    assert_eq!(missing.code, Some(1), "{}", missing.stdout);
    assert!(missing.stdout.contains("correct `command` of [engines.mine]"), "{}", missing.stdout);
    let run = lab.run(&["run", "--engine", "mine", "x"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
}

#[test]
fn a_wrong_definition_is_one_line_and_a_usage_error() {
    let lab = lab();
    let config = lab.write("c.toml", "wait = 1\n[engines.mine]\nkind = 'acp'\ncommand = ['x']\n");
    let ran = ran(&mut lab.takopi(&["--config", config.to_str().unwrap(), "run", "x"]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("c.toml:2: engines.mine: `sessions` is missing"), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    let refused = lab.run(&["run", "--engine", "mine", "--sandbox", "read-only", "x"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--sandbox is not an option of mine"), "{}", refused.stderr);
}
