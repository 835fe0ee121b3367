use std::time::{Duration, SystemTime};

use serde_json::json;

use takopi_core::catalog::SessionStore;

use super::*;

const OLD: &str = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";
const NEW: &str = "01a1e24e-9471-4c92-a579-69c96b096128";
const EMPTY: &str = "01a1e24f-9471-4c92-a579-69c96b096129";

/// A file of small lines in the shape of release 2.1.325.
#[derive(Default)]
struct Writer {
    lines: Vec<Value>,
    cwd: String,
}

impl Writer {
    fn in_directory(cwd: &str) -> Self {
        let mut writer = Self { lines: Vec::new(), cwd: cwd.to_owned() };
        writer.plain(json!({ "type": "queue-operation", "operation": "enqueue", "content": "x" }));
        writer
    }

    /// A line that is not part of the tree.
    fn plain(&mut self, line: Value) -> &mut Self {
        self.lines.push(line);
        self
    }

    /// A line of the tree: its own id, that of the line before, and the rest.
    fn line(&mut self, uuid: &str, parent: &str, mut line: Value) -> &mut Self {
        let parent = (!parent.is_empty()).then_some(parent);
        let common = json!({
            "uuid": uuid, "parentUuid": parent, "cwd": self.cwd, "version": "2.1.325",
            "timestamp": "2026-11-16T17:27:47.426Z",
        });
        for (key, value) in common.as_object().unwrap() {
            line[key] = value.clone();
        }
        line["isSidechain"] = line.get("isSidechain").cloned().unwrap_or(false.into());
        self.plain(line)
    }

    fn user(&mut self, uuid: &str, parent: &str, content: impl Into<Value>) -> &mut Self {
        let message = json!({ "role": "user", "content": content.into() });
        self.line(uuid, parent, json!({ "type": "user", "message": message }))
    }

    fn agent(&mut self, uuid: &str, parent: &str, message: &str, block: &Value) -> &mut Self {
        let message = json!({
            "id": message, "role": "assistant", "model": "claude-opus-5-5", "content": [block],
        });
        self.line(uuid, parent, json!({ "type": "assistant", "message": message }))
    }

    fn says(&mut self, uuid: &str, parent: &str, message: &str, text: &str) -> &mut Self {
        self.agent(uuid, parent, message, &json!({ "type": "text", "text": text }))
    }

    fn runs(&mut self, uuid: &str, parent: &str, call: &str, command: &str) -> &mut Self {
        let input = json!({ "command": command, "description": "d" });
        let block = json!({ "type": "tool_use", "id": call, "name": "Bash", "input": input });
        self.agent(uuid, parent, "msg_tools", &block)
    }

    fn result(&mut self, uuid: &str, parent: &str, call: &str, error: Option<&str>) -> &mut Self {
        let result = json!([{
            "type": "tool_result", "tool_use_id": call, "content": error.unwrap_or("fine"),
            "is_error": error.is_some(),
        }]);
        self.user(uuid, parent, result)
    }

    fn write(&self, config: &Path, id: &str, age: u64) {
        let project = config.join("projects").join(self.cwd.replace(['/', '.'], "-"));
        std::fs::create_dir_all(&project).unwrap();
        let lines: Vec<String> = self.lines.iter().map(Value::to_string).collect();
        let path = project.join(format!("{id}.jsonl"));
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    fn transcript(&self) -> Vec<(Role, String, Option<i64>)> {
        let entries = self.entries();
        entries.into_iter().map(|it| (it.role, it.text, it.exit_code)).collect()
    }

    fn entries(&self) -> Vec<TranscriptEntry> {
        let config = tempfile::tempdir().unwrap();
        self.write(config.path(), OLD, 0);
        let token = resume_codec().token(OLD).unwrap();
        at(config.path()).transcript(&token).unwrap()
    }
}

fn said(entries: &[(Role, String, Option<i64>)]) -> Vec<&str> {
    entries.iter().map(|(_, text, _)| text.as_str()).collect()
}

fn config() -> tempfile::TempDir {
    let config = tempfile::tempdir().unwrap();
    Writer::in_directory("/").user("a", "", "the old one\n").write(config.path(), OLD, 100);
    Writer::in_directory("/tmp")
        .user("a", "", json!([{ "type": "text", "text": "new\none" }, { "type": "image" }]))
        .says("b", "a", "msg_1", "hello")
        .write(config.path(), NEW, 10);
    // A session of which only a title was written, a sub-agent of an older release, one of a newer.
    let mut empty = Writer { cwd: "/".to_owned(), ..Writer::default() };
    empty.plain(json!({ "type": "custom-title", "customTitle": "t" }));
    empty.write(config.path(), EMPTY, 1);
    let mut agent = Writer::in_directory("/");
    agent.line("a", "", json!({ "type": "user", "isSidechain": true, "message": {} }));
    agent.write(config.path(), "agent-4856306c", 1);
    let agents = config.path().join("projects/-").join(OLD).join("subagents");
    std::fs::create_dir_all(&agents).unwrap();
    std::fs::write(agents.join("agent-a3e97f32f6ead10e0.jsonl"), "{}").unwrap();
    config
}

fn ids(store: &dyn SessionStore, directory: Option<&str>) -> Vec<String> {
    store.list(directory.map(Path::new)).map(|session| session.token.value).collect()
}

#[test]
fn sessions_are_listed_newest_first_and_by_directory() {
    let config = config();
    let store = at(config.path());
    assert_eq!(ids(&store, None), [NEW, OLD]);
    assert_eq!(ids(&store, Some("/")), [OLD]);
    assert_eq!(ids(&store, Some("/usr/..")), [OLD]);
    let new = store.list(None).next().unwrap();
    assert_eq!(new.first_prompt.as_deref(), Some("new\none"));
    assert_eq!(new.cwd.as_deref(), Some(Path::new("/tmp")));
    assert_eq!(new.created.as_deref(), Some("2026-11-16T17:27:47.426Z"));
    assert_eq!(new.name, None);
    assert!(ids(&at(Path::new("/no/such")), None).is_empty());
}

#[test]
fn a_session_is_found_by_the_beginning_of_its_id() {
    let config = config();
    let store = at(config.path());
    assert_eq!(store.find(&NEW[..9].to_uppercase()).unwrap().token.value, NEW);
    assert!(store.find("01a1e2").unwrap_err().to_string().contains("3 sessions"));
    assert!(store.find("ffff").unwrap_err().to_string().contains("no session"));
    assert!(store.find("").is_err());
    assert!(store.find(EMPTY).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn of_two_files_of_one_session_the_newer_one_counts() {
    let config = config();
    Writer::in_directory("/srv").user("a", "", "moved").write(config.path(), OLD, 5);
    let found = at(config.path()).find(OLD).unwrap();
    assert_eq!(found.first_prompt.as_deref(), Some("moved"));
}

#[test]
fn the_name_is_the_last_title_before_a_generated_one_before_a_summary() {
    let name = |lines: &[Value]| {
        let config = tempfile::tempdir().unwrap();
        let mut writer = Writer::in_directory("/");
        writer.user("a", "", "hi").says("b", "a", "msg_1", &"long ".repeat(40_000));
        for line in lines {
            writer.plain(line.clone());
        }
        writer.says("c", "b", "msg_2", "hello").write(config.path(), OLD, 0);
        at(config.path()).find(OLD).unwrap().name
    };
    let custom = |title: &str| json!({ "type": "custom-title", "customTitle": title });
    let ai = json!({ "type": "ai-title", "aiTitle": "generated" });
    let summary = |leaf: &str| json!({ "type": "summary", "summary": "sum", "leafUuid": leaf });
    let named = Some("second".to_owned());
    assert_eq!(name(&[custom("first"), custom("second"), ai.clone(), summary("c")]), named);
    assert_eq!(name(&[summary("c"), ai]).as_deref(), Some("generated"));
    assert_eq!(name(&[summary("c")]).as_deref(), Some("sum"));
    assert_eq!(name(&[summary("of another session")]), None);
    assert_eq!(name(&[]), None);
}

#[test]
fn the_first_prompt_is_what_a_user_wrote() {
    let config = tempfile::tempdir().unwrap();
    let mut writer = Writer::in_directory("/");
    let meta = json!({ "type": "user", "isMeta": true, "message": { "content": "<caveat>" } });
    writer
        .line("a", "", meta)
        .user("b", "a", "<local-command-stdout>x</local-command-stdout>")
        .user("c", "b", json!([{ "type": "tool_result", "tool_use_id": "t", "content": "x" }]))
        .user("d", "c", "<command-name>/review</command-name><command-args>all</command-args>")
        .user("e", "d", "later")
        .write(config.path(), OLD, 0);
    let found = at(config.path()).find(OLD).unwrap();
    assert_eq!(found.first_prompt.as_deref(), Some("/review all"));
}

#[test]
fn a_transcript_has_messages_and_commands_with_their_exit_codes() {
    let mut writer = Writer::in_directory("/");
    writer
        .user("a", "", "count\n")
        .line("att", "a", json!({ "type": "attachment", "attachment": { "type": "environment" } }))
        .says("b", "att", "msg_tools", "I will look.")
        .runs("c", "b", "t1", "ls")
        .result("d", "c", "t1", None)
        .runs("e", "d", "t2", "exit 3")
        .result("f", "e", "t2", Some("Exit code 3\nnothing"))
        .runs("g", "f", "t3", "rm x")
        .result("h", "g", "t3", Some("The user doesn't want to proceed with this tool use."))
        .agent("i", "h", "msg_2", &json!({ "type": "thinking", "thinking": "hm", "signature": "" }))
        .says("j", "i", "msg_2", "Part one.")
        .plain(json!({ "type": "last-prompt", "lastPrompt": "count", "leafUuid": "k" }))
        .says("k", "j", "msg_2", "Part two.")
        .plain(json!("junk"));
    assert_eq!(
        writer.transcript(),
        [
            (Role::User, "count".to_owned(), None),
            (Role::Agent, "I will look.".to_owned(), None),
            (Role::Command, "ls".to_owned(), Some(0)),
            (Role::Command, "exit 3".to_owned(), Some(3)),
            (Role::Command, "rm x".to_owned(), None),
            (Role::Agent, "Part one.\n\nPart two.".to_owned(), None),
        ]
    );
}

#[test]
fn of_two_branches_the_newest_one_counts() {
    let mut writer = Writer::in_directory("/");
    writer
        .user("a", "", "first")
        .says("b", "a", "msg_1", "one")
        .user("lost", "b", "lost")
        .user("kept", "b", "kept")
        .says("lost answer", "lost", "msg_2", "lost too")
        .says("answer", "kept", "msg_3", "two")
        .line("late", "lost answer", json!({ "type": "attachment", "attachment": {} }));
    assert_eq!(said(&writer.transcript()), ["first", "one", "kept", "two"]);
}

#[test]
fn commands_of_one_message_are_all_shown_though_their_results_branch_off() {
    let mut writer = Writer::in_directory("/");
    writer
        .user("a", "", "both")
        .runs("b", "a", "t1", "slow")
        .runs("c", "b", "t2", "quick")
        .result("d", "c", "t2", Some("Exit code 1"))
        .result("e", "b", "t1", None)
        .says("f", "e", "msg_2", "done");
    let entries = writer.transcript();
    assert_eq!(said(&entries), ["both", "slow", "quick", "done"]);
    assert_eq!((entries[1].2, entries[2].2), (Some(0), Some(1)));
}

#[test]
fn compacting_does_not_lose_what_was_before() {
    let mut writer = Writer::in_directory("/");
    let boundary = json!({
        "type": "system", "subtype": "compact_boundary", "logicalParentUuid": "b",
        "content": "Conversation compacted", "isMeta": false,
    });
    let summary = json!({
        "type": "user", "isCompactSummary": true, "message": { "content": "This session is…" },
    });
    writer
        .user("a", "", "before")
        .says("b", "a", "msg_1", "one")
        .line("c", "", boundary)
        .line("d", "c", summary)
        .user("e", "d", "after")
        .says("f", "e", "msg_2", "two");
    let expected = ["before", "one", "the conversation was compacted", "after", "two"];
    assert_eq!(said(&writer.transcript()), expected);
}

#[test]
fn what_is_no_message_of_a_user_is_a_note_or_left_out() {
    let mut writer = Writer::in_directory("/");
    let queued = json!({
        "type": "queued_command", "prompt": "also this", "commandMode": "prompt",
    });
    let ended = json!({
        "type": "user", "origin": { "kind": "task-notification" },
        "message": { "content": "<task-notification>\n<summary>Agent \"look\" finished</summary>" },
    });
    let synthetic = |text: &str, is_error: bool| {
        let content = json!([{ "type": "text", "text": text }]);
        let message = json!({ "id": text, "model": "<synthetic>", "content": content });
        json!({ "type": "assistant", "isApiErrorMessage": is_error, "message": message })
    };
    let nested = json!({ "type": "user", "isSidechain": true, "message": { "content": "sub" } });
    writer
        .user("a", "", "go")
        .line("b", "a", json!({ "type": "attachment", "attachment": queued }))
        .line("c", "b", ended)
        .line("d", "c", synthetic("No response requested.", false))
        .line("e", "d", synthetic("Not logged in · Please run /login", true))
        .user("f", "e", json!([{ "type": "text", "text": "[Request interrupted by user]" }]))
        .line("g", "f", nested);
    let entries = writer.transcript();
    let expected = [
        (Role::User, "go"),
        (Role::User, "also this"),
        (Role::Note, "Agent \"look\" finished"),
        (Role::Note, "Not logged in · Please run /login"),
        (Role::Note, "the turn was interrupted"),
    ];
    let entries: Vec<_> = entries.iter().map(|(role, text, _)| (*role, text.as_str())).collect();
    assert_eq!(entries, expected);
}

#[test]
fn a_circle_of_lines_ends() {
    let mut writer = Writer::in_directory("/");
    writer.user("a", "b", "one").says("b", "a", "msg_1", "two");
    assert_eq!(said(&writer.transcript()), ["one", "two"]);
}

#[test]
fn a_command_has_the_end_of_its_output() {
    let mut writer = Writer::in_directory("/");
    writer.user("a", "", "go");
    let results = [
        ("b", None),
        ("c", Some("Exit code 3\none\ntwo")),
        ("d", Some("Exit code 1")),
        ("e", Some("The user doesn't want to proceed with this tool use.")),
    ];
    let mut last = "a".to_owned();
    for (call, error) in results {
        let result = format!("{call}2");
        writer.runs(call, &last, call, "ls").result(&result, call, call, error);
        last = result;
    }
    let shown = writer.entries().into_iter().skip(1).map(|it| (it.exit_code, it.output_tail));
    let shown: Vec<(Option<i64>, Option<String>)> = shown.collect();
    let output = |text: &str| Some(text.to_owned());
    assert_eq!(
        shown,
        [
            (Some(0), output("fine")),
            (Some(3), output("one\ntwo")),
            (Some(1), None),
            (None, output("The user doesn't want to proceed with this tool use.")),
        ]
    );
}
