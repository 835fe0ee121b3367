//! `takopi sessions`, on files as codex writes them.

use futures::FutureExt as _;
use serde_json::{Value, json};
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionKey, SessionLocks as _};
use takopi_core::{EngineId, ResumeToken};

use super::lab::{Lab, SESSION};

const OTHER: &str = "01a1e24e-9471-7c92-a579-69c96b096128";

fn write(lab: &Lab, id: &str, cwd: &str, said: &[(&str, &str)]) {
    let meta = json!({ "type": "session_meta", "payload": {
        "id": id, "cwd": cwd, "source": "exec", "timestamp": "2026-11-16T02:45:30.449Z",
    }});
    let said = said.iter().map(
        |(kind, text)| json!({ "type": "event_msg", "payload": { "type": kind, "message": text } }),
    );
    let lines: Vec<String> = std::iter::once(meta).chain(said).map(|it| it.to_string()).collect();
    let name = format!("codex/sessions/2026/11/16/rollout-2026-11-16T02-45-30-{id}.jsonl");
    let path = lab.write(&name, &lines.join("\n"));
    // Both were last written in the same minute, the first before the second.
    let seconds = if id == SESSION { 1_794_796_000 } else { 1_794_796_010 };
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    std::fs::File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

fn lab() -> Lab {
    let lab = Lab::new();
    let here = lab.path("work");
    let talk = [("user_message", "count the files\nhere"), ("agent_message", "There are **3**.")];
    write(&lab, SESSION, here.to_str().unwrap(), &talk);
    write(&lab, OTHER, "/srv/project", &[("user_message", "hi")]);
    let name = json!({ "id": OTHER, "thread_name": "the greeting" });
    lab.write("codex/session_index.jsonl", &name.to_string());
    lab
}

#[test]
fn sessions_are_listed_newest_first() {
    let lab = lab();
    let ran = lab.run(&["sessions"]);
    let here = lab.path("work");
    let expected = format!(
        "{OTHER}\tcodex\t2026-11-16 02:26\t/srv/project\tthe greeting\n\
         {SESSION}\tcodex\t2026-11-16 02:26\t{}\tcount the files here\n",
        here.display()
    );
    assert_eq!((ran.code, ran.stdout, ran.stderr.as_str()), (Some(0), expected, ""));
    assert_eq!(lab.run(&["sessions", "-n", "1"]).stdout.lines().count(), 1);
}

#[test]
fn a_directory_limits_the_list() {
    let lab = lab();
    let ran = lab.run(&["sessions", "--cd", "."]);
    assert!(ran.stdout.starts_with(SESSION) && ran.stdout.lines().count() == 1, "{}", ran.stdout);
    assert_eq!(lab.run(&["sessions", "--cd", "/no/such"]).code, Some(2));
    let none = lab.run(&["sessions", "--cd", "/usr"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(none.stderr.starts_with("note: no sessions"), "{}", none.stderr);
}

#[test]
fn json_has_every_field_and_the_holder() {
    let lab = lab();
    let locks = FileLocks::new(LocalLocks::new(), lab.path("state/locks"));
    let engine = EngineId::from_static("codex");
    let key = SessionKey::new(&ResumeToken::new(engine.clone(), OTHER));
    let _guard = locks
        .try_lock(&key, &Holder::here(engine), &NoLeases)
        .now_or_never()
        .unwrap()
        .unwrap()
        .unwrap();
    let ran = lab.run(&["sessions", "--json", "-n", "1"]);
    let listed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&listed["engine"], &listed["id"]), (&"codex".into(), &OTHER.into()));
    assert_eq!(listed["updated"], "2026-11-16T02:26:50Z");
    assert_eq!(listed["cwd"], "/srv/project");
    assert_eq!(listed["name"], "the greeting");
    assert_eq!(listed["first_prompt"], "hi");
    assert_eq!(listed["holder"]["pid"], std::process::id());
    let plain = lab.run(&["sessions", "-n", "1"]).stdout;
    assert!(plain.contains(&format!("\theld by pid {} since ", std::process::id())), "{plain}");
}

#[test]
fn show_prints_the_messages() {
    let lab = lab();
    let ran = lab.run(&["sessions", "show", &SESSION[..12]]);
    assert_eq!(ran.stdout, "> count the files\n> here\n\nThere are **3**.\n\n");
    let ran = lab.run(&["sessions", "show", SESSION, "--json"]);
    let first: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first, json!({ "role": "user", "text": "count the files\nhere" }));
}

#[test]
fn an_unknown_session_is_an_error() {
    let ran = lab().run(&["sessions", "show", "ffff"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("no session \"ffff\" was found"), "{}", ran.stderr);
}

#[test]
fn last_without_a_session_of_this_directory_is_an_error() {
    let lab = Lab::new();
    write(&lab, OTHER, "/srv/project", &[]);
    let ran = lab.run(&["run", "--last", "x"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("start one without --last"), "{}", ran.stderr);
}

#[test]
fn a_search_finds_words_of_the_messages_in_any_order() {
    let lab = lab();
    let found = |words: &str| {
        let ran = lab.run(&["sessions", "--search", words]);
        ran.stdout.lines().map(|line| line[..SESSION.len()].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("there are"), [SESSION]);
    assert_eq!(found("ARE files"), [SESSION]);
    assert_eq!(found("greeting /srv"), [OTHER]);
    assert_eq!(found("codex"), [OTHER, SESSION]);
    let none = lab.run(&["sessions", "--search", "squid"]);
    let note = "note: no session has \"squid\" in its messages, directory or id\n";
    assert_eq!((none.code, none.stderr.as_str()), (Some(0), note));
}

#[test]
fn a_search_does_not_read_the_messages_of_a_huge_session_and_says_so() {
    let lab = lab();
    let day = lab.path("codex/sessions/2026/11/16");
    let huge = day.join(format!("rollout-2026-11-16T02-45-30-{OTHER}.jsonl"));
    std::fs::OpenOptions::new().write(true).open(huge).unwrap().set_len(300 << 20).unwrap();
    let ran = lab.run(&["sessions", "--search", "there are"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 1), "{}", ran.stderr);
    let note = "note: the messages of 1 session are larger than 256 MiB and were not searched";
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);
    // It is still found by what a list shows of it.
    let listed = lab.run(&["sessions", "--search", "greeting"]);
    assert!(listed.stdout.starts_with(OTHER), "{}", listed.stdout);
    assert_eq!(listed.stderr, "");
}
