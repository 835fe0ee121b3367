use std::path::Path;

use super::*;

fn request(question: Question) -> ApprovalRequest {
    ApprovalRequest::new("lab".into(), question, "/w".into())
}

#[test]
fn a_request_is_whole_only_if_all_that_a_yes_grants_can_be_read() {
    let cwd = Path::new("/w");
    let cut = || Excerpt::new("too long", 3);
    let call = |input| Question::ToolCall(ToolCall::default().input(input));
    let patch = || Patch::new([FileChange::new(ChangeKind::Add, "a.rs", cwd)]);
    let root = || Some(Location::new("/w", cwd));
    for (question, whole) in [
        (Question::command("ls"), true),
        (Question::Patch(patch()), true),
        (Question::Patch(Patch::default()), false),
        (Question::Patch(Patch::default().grant_root(root())), true),
        (Question::Patch(patch().grant_root(root())), true),
        (call(None), true),
        (call(Some("{}".into())), true),
        (call(Some(cut())), false),
        (Question::Plan("all of it".into()), true),
        (Question::Plan(cut()), false),
        (Question::Unknown(Unknown::new("m", "{}".into())), true),
        (Question::Unknown(Unknown::new("m", cut())), false),
    ] {
        let mut asked = request(question);
        assert_eq!(asked.is_whole(), whole, "{asked:?}");
        asked.unrecognized.push(Unrecognized::new("known", "1".into()));
        assert_eq!(asked.is_whole(), whole, "{asked:?}");
        asked.unrecognized.push(Unrecognized::new("long", cut()));
        assert!(!asked.is_whole(), "{asked:?}");
    }
}

#[test]
fn a_no_is_always_an_answer_and_a_yes_only_if_it_is_offered() {
    let mut asked = request(Question::command("ls"));
    asked.decisions = vec![Decision::Accept];
    let offered = Decision::ALL.map(|decision| asked.offers(decision));
    assert_eq!(offered, [true, false, true, true]);
}

#[tokio::test]
async fn the_places_of_a_patch_are_looked_up_before_anybody_decides() {
    let directory = tempfile::tempdir().unwrap();
    let cwd = directory.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", cwd.join("link")).unwrap();
    let change = || {
        let change = FileChange::new(ChangeKind::Update, "link", &cwd);
        change.moved_to(Some(Location::new("link/deeper", &cwd)))
    };
    let patch = Patch::new([change()]).grant_root(Some(Location::new("link", &cwd)));
    let asked = ApprovalRequest::new("lab".into(), Question::Patch(patch), cwd);
    let Question::Patch(patch) = asked.resolved().await.question else { panic!("no patch") };
    let leads_to: Vec<_> = patch.locations().map(|location| location.leads_to.clone()).collect();
    let nowhere = |path: &str| Some(Path::new("/nowhere/at/all").join(path));
    assert_eq!(leads_to, [nowhere(""), nowhere("deeper"), nowhere("")]);
}

#[test]
fn an_excerpt_is_whole_only_if_nothing_was_left_out() {
    let whole = Excerpt::from("text");
    assert_eq!((whole.text.as_str(), whole.is_whole()), ("text", true));
    let cut = Excerpt::new("ää", 3);
    assert_eq!((cut.text.as_str(), cut.omitted, cut.is_whole()), ("ä", 2, false));
    for bytes in [0, 1, 7] {
        let nothing = Excerpt::left_out(bytes);
        assert_eq!((nothing.omitted, nothing.is_whole()), (bytes.max(1), false));
    }
}
