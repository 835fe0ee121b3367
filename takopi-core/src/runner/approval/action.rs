//! A request for approval as an action of the stream: the same for every engine, and bounded.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ApprovalRequest, Decision, Excerpt, FileChange, Patch, Question, Reply, UserQuestion};
use crate::model::{Action, ActionEvent, ActionKind, Phase};

/// How many bytes of a title are kept: enough for nearly every command.
const TITLE_BYTES: usize = 64 * 1024;
/// How many entries of a list, and how many bytes of them, an action carries.
const LIST_ENTRIES: usize = 200;
const LIST_BYTES: usize = 8 * 1024;
/// How many bytes of the diffs of a patch an action carries.
const DIFF_BYTES: usize = 16 * 1024;
/// How many files a title names.
const FILES_NAMED: usize = 10;

impl ApprovalRequest {
    /// What is asked, in a line or, for a command of many lines, in as many: the command, the files,
    /// the message.
    pub fn title(&self) -> String {
        match &self.question {
            Question::Command(command) => command.command.clone(),
            Question::Patch(patch) => summary(patch),
            Question::Permissions(permissions) => match permissions.lines() {
                lines if lines.is_empty() => "permissions".to_owned(),
                lines => lines.join(", "),
            },
            Question::ToolCall(call) => {
                let server = call.server.as_deref();
                let asks = call.message.as_deref().or(call.tool.as_deref()).unwrap_or("a tool");
                server.map_or_else(|| asks.to_owned(), |server| format!("{server}: {asks}"))
            }
            Question::Form(form) => format!("{}: {}", form.server, form.message),
            Question::Questions(questions) => asked(questions),
            Question::Plan(plan) => {
                let first = plan.text.lines().find(|line| !line.trim().is_empty());
                format!("plan: {}", first.unwrap_or_default().trim())
            }
            Question::Unknown(unknown) => unknown.method.clone(),
        }
    }

    /// The event that the request waits for a decision, with the diffs of a patch. The id is that of the
    /// action.
    pub fn waiting(&self, id: &str) -> ActionEvent {
        let mut action = self.action(id);
        if let (Question::Patch(patch), Some(Value::Array(changes))) =
            (&self.question, action.detail.get("changes").cloned())
        {
            action.detail.insert("changes", with_diffs(changes, &patch.files));
        }
        let event = ActionEvent::new(self.engine.clone(), action, Phase::Started);
        event.message("waiting for a decision")
    }

    /// The event that the request was decided; `None` if there was no handler to decide it.
    pub fn decided(&self, id: &str, reply: Option<&Reply>) -> ActionEvent {
        let none = Reply::from(Decision::Decline).because("no approval handler");
        let reply = reply.unwrap_or(&none);
        let mut action = self.action(id).with("decision", reply.decision.as_str());
        if let Some(by) = &reply.by {
            action = action.with("by", by.as_str());
        }
        ActionEvent::new(self.engine.clone(), action, Phase::Completed)
            .ok(reply.decision.is_yes())
            .message(reply.to_string())
    }

    /// The event that the request was withdrawn.
    pub fn withdrawn(&self, id: &str) -> ActionEvent {
        let event = ActionEvent::new(self.engine.clone(), self.action(id), Phase::Completed);
        event.ok(false).message("withdrawn")
    }

    fn action(&self, id: &str) -> Action {
        let mut action = Action::new(id, ActionKind::Approval, cut(self.title(), TITLE_BYTES))
            .with("asks_for", self.kind().as_str())
            .with("cwd", self.cwd.display().to_string());
        let mut add = |name: &'static str, value: Option<Value>| {
            if let Some(value) = value {
                action.detail.insert(name, value);
            }
        };
        let text = |text: &Option<String>| text.clone().map(|text| cut(text, LIST_BYTES).into());
        add("reason", text(&self.reason));
        add("subagent", text(&self.subagent));
        match &self.question {
            Question::Command(command) => {
                add("is_input", command.is_input.then_some(true.into()));
                add("permissions", list(command.extra.lines().into_iter().map(Value::from)));
            }
            Question::Patch(patch) => {
                let changes = list(patch.files.iter().map(change));
                let listed = changes.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
                add("changes", changes);
                let more = patch.files.len() - listed;
                add("changes_omitted", (more > 0).then(|| more.into()));
                let root = patch.grant_root.as_ref();
                add("grant_root", root.map(|root| root.path.display().to_string().into()));
            }
            Question::Permissions(permissions) => {
                add("permissions", list(permissions.lines().into_iter().map(Value::from)));
            }
            Question::ToolCall(call) => {
                add("server", text(&call.server));
                add("tool", text(&call.tool));
            }
            Question::Form(form) => {
                add("server", Some(cut(form.server.clone(), LIST_BYTES).into()));
                add("url", text(&form.url));
                add("fields", list(form.fields.iter().map(|field| field.name.clone().into())));
            }
            Question::Questions(questions) => {
                add("questions", list(questions.iter().map(|it| it.question.clone().into())));
            }
            Question::Plan(_) | Question::Unknown(_) => {}
        }
        let unrecognized = self.unrecognized.iter().map(|part| part.field.clone().into());
        add("unrecognized", list(unrecognized));
        action
    }
}

/// As many entries as an action may carry; nothing for no entries.
fn list(entries: impl Iterator<Item = Value>) -> Option<Value> {
    let mut left = LIST_BYTES;
    let kept = entries.take(LIST_ENTRIES).take_while(|entry| {
        let size = entry.to_string().len();
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    let kept: Vec<Value> = kept.collect();
    (!kept.is_empty()).then_some(Value::Array(kept))
}

/// The files that are listed with their diffs, as much as an action may carry.
fn with_diffs(mut changes: Vec<Value>, files: &[FileChange]) -> Value {
    let mut left = DIFF_BYTES;
    for (change, diff) in changes.iter_mut().zip(files.iter().map(|file| file.diff.as_ref())) {
        let Some(diff) = diff else { continue };
        let shown = Excerpt::new(&diff.text, left);
        left -= shown.text.len();
        let omitted = shown.omitted + diff.omitted;
        if omitted > 0 {
            change["diff_omitted"] = omitted.into();
        }
        change["diff"] = shown.text.into();
    }
    changes.into()
}

fn change(file: &FileChange) -> Value {
    let shown = |location: &super::Location| location.path.display().to_string();
    let mut change = json!({ "path": shown(&file.path), "kind": file.kind.as_str() });
    if let Some(moved) = &file.moved_to {
        change["moved_to"] = shown(moved).into();
    }
    if file.path.is_outside() || file.moved_to.as_ref().is_some_and(super::Location::is_outside) {
        change["outside"] = true.into();
    }
    change
}

/// `1 add, 1 update: src/a.rs, b.rs`
fn summary(patch: &Patch) -> String {
    if patch.files.is_empty() {
        return "changes to files that are not known".to_owned();
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &patch.files {
        *kinds.entry(file.kind.as_str()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let mut names: Vec<String> = patch
        .files
        .iter()
        .take(FILES_NAMED)
        .map(|file| match &file.moved_to {
            Some(moved) => format!("{} → {moved}", file.path),
            None => file.path.to_string(),
        })
        .collect();
    let more = patch.files.len().saturating_sub(FILES_NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    format!("{}: {}", kinds.join(", "), names.join(", "))
}

fn asked(questions: &[UserQuestion]) -> String {
    let texts: Vec<&str> = questions.iter().map(|question| question.question.as_str()).collect();
    if texts.is_empty() { "a question".to_owned() } else { texts.join("; ") }
}

/// At most so many bytes, with a mark where something is missing.
fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max - '…'.len_utf8()));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{
        Access, ChangeKind, Command, FileAccess, FileScope, Form, Location, Network, Permissions,
        ToolCall, Unknown, Unrecognized,
    };
    use super::*;

    fn request(question: Question) -> ApprovalRequest {
        ApprovalRequest::new("lab".into(), question, "/w".into())
    }

    fn patch() -> Patch {
        let cwd = Path::new("/w");
        let moved = FileChange::new(ChangeKind::Update, "b.rs", cwd);
        Patch::new([
            FileChange::new(ChangeKind::Add, "/w/src/a.rs", cwd),
            moved.moved_to(Some(Location::new("/etc/b.rs", cwd))),
        ])
    }

    #[test]
    fn the_action_shows_what_is_asked_and_what_became_of_it() {
        let asked = request(Question::Patch(patch()));
        let outside = "/etc/b.rs (outside the working directory)";
        assert_eq!(asked.title(), format!("1 add, 1 update: src/a.rs, b.rs → {outside}"));
        let waiting = asked.waiting("a");
        assert_eq!((waiting.phase, waiting.ok), (Phase::Started, None));
        assert_eq!(
            waiting.action.detail["changes"],
            json!([
                { "path": "/w/src/a.rs", "kind": "add" },
                { "path": "/w/b.rs", "kind": "update", "moved_to": "/etc/b.rs", "outside": true },
            ])
        );
        let decided = asked.decided("a", Some(&Reply::from(Decision::Accept).by("alice")));
        assert_eq!(decided.message.as_deref(), Some("accepted by alice"));
        assert_eq!(decided.action.detail["by"], "alice");
        let nobody = asked.decided("a", None);
        assert_eq!(nobody.message.as_deref(), Some("declined: no approval handler"));
        assert_eq!(nobody.action.detail["decision"], "decline");
    }

    #[test]
    fn the_diffs_of_a_patch_are_in_the_event_that_it_waits_within_a_bound() {
        let cwd = Path::new("/w");
        let file = |name: &str, diff: &str| FileChange::new(ChangeKind::Add, name, cwd).diff(diff);
        let long = "+x\n".repeat(DIFF_BYTES);
        let patch = Patch::new([file("a", "+a\n"), file("b", &long), file("c", "+c\n")]);
        let asked = request(Question::Patch(patch));
        let waiting = asked.waiting("a");
        let changes = &waiting.action.detail["changes"];
        assert_eq!((&changes[0]["diff"], changes[0].get("diff_omitted")), (&json!("+a\n"), None));
        let kept = changes[1]["diff"].as_str().unwrap().len();
        assert_eq!(
            (kept, &changes[1]["diff_omitted"]),
            (DIFF_BYTES - 3, &json!(long.len() - kept))
        );
        assert_eq!((&changes[2]["diff"], &changes[2]["diff_omitted"]), (&json!(""), &json!(3)));
        let decided = asked.decided("a", None);
        assert!(decided.action.detail["changes"][0].get("diff").is_none(), "once is enough");
    }

    #[test]
    fn what_a_diff_had_lost_before_counts_as_omitted() {
        let mut file = FileChange::new(ChangeKind::Add, "a", Path::new("/w"));
        file.diff = Some(Excerpt { text: "+a\n".to_owned(), omitted: 7 });
        let waiting = request(Question::Patch(Patch::new([file]))).waiting("a");
        assert_eq!(waiting.action.detail["changes"][0]["diff_omitted"], 7);
    }

    #[test]
    fn what_a_command_asks_for_besides_is_in_its_action() {
        let extra = Permissions::default().network(Some(Network::All));
        let mut asked = request(Question::Command(Command::new("ls").extra(extra)));
        asked.subagent = Some("reviewer".to_owned());
        asked.unrecognized.push(Unrecognized::new("wider", "true".into()));
        let detail = asked.waiting("a").action.detail;
        assert_eq!(detail["permissions"], json!(["network access"]));
        assert_eq!(detail["subagent"], "reviewer");
        assert_eq!(detail["unrecognized"], json!(["wider"]));
    }

    #[test]
    fn every_kind_of_question_has_a_name_and_a_title() {
        let write = FileAccess::new(Access::Write, FileScope::Path("/srv".into()));
        let read = FileAccess::new(Access::Read, FileScope::Glob("*.pem".to_owned()));
        let deny = FileAccess::new(Access::Deny, FileScope::Special("the home".to_owned()));
        let host = Network::Host { host: "a.b".to_owned(), protocol: "https".to_owned() };
        let wide = Permissions::default().files(vec![write, read, deny]).network(Some(host));
        let call = ToolCall::default().server(Some("lab".to_owned()));
        let form = Form::default().server("lab".to_owned()).message("Who?".to_owned());
        let question = |text: &str| UserQuestion::default().question(text.to_owned());
        for (question, kind, title) in [
            (Question::command("ls"), "command", "ls"),
            (
                Question::Patch(Patch::default()),
                "file_change",
                "changes to files that are not known",
            ),
            (Question::Permissions(Permissions::default()), "permissions", "permissions"),
            (
                Question::Permissions(wide),
                "permissions",
                "write /srv, read everything that matches *.pem, no access to the home, \
                 network access to a.b (https)",
            ),
            (Question::ToolCall(call), "tool_call", "lab: a tool"),
            (Question::Form(form), "form", "lab: Who?"),
            (Question::Questions(vec![question("a?"), question("b?")]), "user_input", "a?; b?"),
            (Question::Questions(Vec::new()), "user_input", "a question"),
            (Question::Plan("\n \n first\nsecond".into()), "plan", "plan: first"),
            (Question::Unknown(Unknown::new("odd", "{}".into())), "unknown", "odd"),
        ] {
            let action = request(question).waiting("a").action;
            assert_eq!((&action.detail["asks_for"], action.title.as_str()), (&json!(kind), title));
        }
    }

    #[test]
    fn files_that_are_not_listed_or_named_are_counted() {
        let cwd = Path::new("/w");
        let patch = |count| {
            let files = (0..count).map(|n| FileChange::new(ChangeKind::Add, format!("{n}"), cwd));
            request(Question::Patch(Patch::new(files))).waiting("a").action
        };
        let few = patch(FILES_NAMED);
        assert!(few.detail.get("changes_omitted").is_none() && !few.title.contains("more"));
        let more = patch(FILES_NAMED + 1);
        assert!(more.detail.get("changes_omitted").is_none());
        assert!(more.title.ends_with("9, 1 more"), "{}", more.title);
        let many = patch(1000);
        let listed = many.detail["changes"].as_array().unwrap().len();
        assert!((100..=LIST_ENTRIES).contains(&listed), "{listed}");
        assert_eq!(many.detail["changes_omitted"], 1000 - listed);
    }

    #[test]
    fn a_text_is_cut_only_beyond_its_limit_and_to_that_limit() {
        let text = "x".repeat(10);
        assert_eq!(cut(text.clone(), 10), text);
        assert_eq!(cut(text.clone(), 9), format!("{}…", "x".repeat(6)));
        assert_eq!(cut("äääää".to_owned(), 8), "ää…", "never inside a character");
    }

    #[test]
    fn an_action_is_bounded_however_much_is_asked() {
        let long = "x".repeat(1_000_000);
        let cwd = Path::new("/w");
        let many = (0..10_000).map(|n| FileChange::new(ChangeKind::Add, format!("{n}.rs"), cwd));
        let mut questions = vec![
            Question::command(long.clone()),
            Question::Patch(Patch::new(many)),
            Question::ToolCall(ToolCall::default().server(Some(long.clone())).tool(Some(long))),
            Question::Plan(Excerpt::new(&"step\n".repeat(1000), 100)),
        ];
        for question in questions.drain(..) {
            let mut asked = request(question);
            asked.reason = Some("y".repeat(1_000_000));
            asked.unrecognized =
                (0..10_000).map(|n| Unrecognized::new(format!("f{n}"), "1".into())).collect();
            let size = serde_json::to_string(&asked.waiting("a")).unwrap().len();
            assert!(size < 128 * 1024, "{size}");
        }
    }
}
