//! Commands, conversations, forwarded messages.

use std::sync::Arc;

use serde_json::json;
use takopi_bridge::Settings;
use takopi_core::approvals::from_fn;
use takopi_core::runner::Decision;
use takopi_tests::telegram::{Room, Shown};
use tokio::sync::Notify;

use crate::lab::{ALICE, BOB, GROUP, Lab, MALLORY};

const CHAT: Room = Room { chat: ALICE, topic: None };

#[tokio::test]
async fn progress_is_one_silent_message_and_the_answer_a_new_one_that_notifies() {
    let lab = Lab::new();
    // A run that is over before its progress was sent has none: this one waits for a decision.
    let shown = Arc::new(Notify::new());
    let waits = shown.clone();
    let settings = Settings::default().approvals(move |_| {
        let waits = waits.clone();
        Arc::new(from_fn(move |_| {
            let waits = waits.clone();
            async move {
                waits.notified().await;
                Decision::Decline
            }
        }))
    });
    let bot = lab.run(lab.parts(lab.demo(), settings)).await;
    lab.fake.write(CHAT, ALICE, "hello");
    lab.fake.until("progress", |fake| fake.messages(ALICE).into_iter().find(|it| it.by_bot)).await;
    shown.notify_one();
    let answer = lab.fake.shows(CHAT, "You said: hello").await;
    assert!(answer.notified && answer.buttons.is_empty());
    assert!(answer.text.lines().last().unwrap().contains("--resume demo-"), "{}", answer.text);
    bot.stop().await;
    let sent: Vec<_> =
        lab.fake.calls().into_iter().filter(|call| call.method == "sendMessage").collect();
    assert_eq!(sent.len(), 2, "progress and answer");
    assert_eq!(sent[0].params["disable_notification"], true);
    let commands =
        lab.fake.calls().into_iter().find(|call| call.method == "setMyCommands").unwrap();
    assert_eq!(commands.params["commands"][0]["command"], "cancel");
    assert_eq!(lab.fake.refusals(), Vec::<String>::new());
}

#[tokio::test]
async fn commands_answer_and_what_is_chosen_is_kept() {
    let lab = Lab::new();
    let web = lab.work();
    let lab = lab.project("web", &web);
    let bot = lab.bot().await;
    for (text, answer) in [
        ("/projects", "/web"),
        ("/ctx", "no project; name one with /NAME"),
        ("/agent nope", "there is no engine nope; known engines: demo"),
        ("/agent demo", "use engine demo"),
        ("/model big", "use model big"),
        ("/effort high", "use effort high"),
        ("/cancel", "there is nothing to cancel"),
        ("/start", "Before a message"),
        ("/wbe fix it", "/wbe is no engine, project or command; did you mean /web?"),
        ("/web @x fix it", "is not a git repository"),
    ] {
        lab.fake.write(CHAT, ALICE, text);
        lab.fake.shows(CHAT, answer).await;
    }
    lab.fake.write(CHAT, ALICE, "/ctx");
    lab.fake.shows(CHAT, "engine demo · model big · effort high").await;
    lab.fake.write(CHAT, ALICE, "/web hello");
    let answer = lab.fake.shows(CHAT, "You said: hello").await;
    assert!(answer.text.contains("ctx: web"), "{}", answer.text);
    bot.stop().await;
}

#[tokio::test]
async fn a_place_is_one_conversation_if_it_is_set_so_also_after_a_restart() {
    let lab = Lab::new().with("mode", "chat");
    let session = |text: &str| {
        text.lines()
            .find_map(|line| line.split_once("--resume "))
            .map(|it| it.1.to_owned())
            .unwrap()
    };
    let bot = lab.bot().await;
    let mut sessions = Vec::new();
    for text in ["one", "two"] {
        lab.fake.write(CHAT, ALICE, text);
        sessions.push(session(&lab.fake.shows(CHAT, &format!("You said: {text}")).await.text));
    }
    assert_eq!(sessions[0], sessions[1]);
    lab.fake.write(Room::topic(GROUP, 3), ALICE, "/demo elsewhere");
    let other = session(&lab.fake.shows(Room::topic(GROUP, 3), "You said: elsewhere").await.text);
    assert_ne!(other, sessions[0], "a topic is a conversation of its own");
    bot.stop().await;

    let bot = lab.bot().await;
    lab.fake.write(CHAT, ALICE, "three");
    assert_eq!(session(&lab.fake.shows(CHAT, "You said: three").await.text), sessions[0]);
    lab.fake.write(CHAT, ALICE, "/new");
    lab.fake.shows(CHAT, "begins a new conversation").await;
    lab.fake.write(CHAT, ALICE, "four");
    assert_ne!(session(&lab.fake.shows(CHAT, "You said: four").await.text), sessions[0]);
    bot.stop().await;
}

#[tokio::test]
async fn a_message_and_what_is_forwarded_behind_it_are_one_prompt() {
    let lab = Lab::new().with("forward_window", "50ms");
    lab.fake.write(CHAT, ALICE, "what do they want?");
    let forwarded = json!({ "text": "a cup of tea", "forward_origin": { "type": "user" } });
    lab.fake.receive(CHAT, ALICE, forwarded);
    let bot = lab.bot().await;
    let answer = lab.fake.shows(CHAT, "You said: what do they want?").await;
    assert!(answer.text.contains("a cup of tea"), "{}", answer.text);
    bot.stop().await;
    let answers = lab.fake.messages(ALICE).into_iter().filter(|it| it.text.contains("You said"));
    assert_eq!(answers.count(), 1);
}

#[tokio::test]
async fn a_message_of_another_chat_does_not_part_a_message_from_what_is_forwarded_behind_it() {
    let lab = Lab::new().with("forward_window", "50ms");
    let forwarded = |text: &str| json!({ "text": text, "forward_origin": { "type": "user" } });
    lab.fake.write(CHAT, ALICE, "what do they want?");
    lab.fake.write(Room::chat(BOB), BOB, "and these?");
    lab.fake.receive(CHAT, ALICE, forwarded("a cup of tea"));
    lab.fake.receive(Room::chat(BOB), BOB, forwarded("a biscuit"));
    lab.fake.press_data(BOB, 1000, "cancel", BOB);
    let bot = lab.bot().await;
    for (chat, text, more) in
        [(ALICE, "what do they want?", "a cup of tea"), (BOB, "and these?", "a biscuit")]
    {
        let answer = lab.fake.shows(Room::chat(chat), &format!("You said: {text}")).await;
        assert!(answer.text.contains(more), "{}", answer.text);
    }
    bot.crash().await;
}

/// The last line of an answer, which resumes its session.
fn resume_line(text: &str) -> &str {
    text.lines().last().filter(|line| line.contains(" --resume demo-")).unwrap()
}

/// Two answers of the bot, of two sessions.
async fn two_answers(lab: &Lab) -> [Shown; 2] {
    let bot = lab.bot().await;
    let mut answers = Vec::new();
    for text in ["one", "two"] {
        lab.fake.write(CHAT, ALICE, text);
        answers.push(lab.fake.shows(CHAT, &format!("You said: {text}")).await);
    }
    bot.stop().await;
    assert_ne!(resume_line(&answers[0].text), resume_line(&answers[1].text));
    answers.try_into().unwrap()
}

#[tokio::test]
async fn a_reply_resumes_what_it_replies_to_whatever_is_forwarded_behind_it() {
    let lab = Lab::new().with("forward_window", "50ms");
    let [one, two] = two_answers(&lab).await;
    // Both are there before the bot is, so that they come at once.
    lab.fake.reply(CHAT, ALICE, one.id, "compare with this");
    let forwarded = json!({ "text": two.text, "forward_origin": { "type": "user" } });
    lab.fake.receive(CHAT, ALICE, forwarded);
    let bot = lab.bot().await;
    let answer = lab.fake.shows(CHAT, "You said: compare with this").await;
    assert_eq!(resume_line(&answer.text), resume_line(&one.text));
    assert!(answer.text.contains("You said: two"), "{}", answer.text);
    assert!(answer.text.contains(resume_line(&two.text)), "{}", answer.text);
    bot.stop().await;
}

#[tokio::test]
async fn what_is_forwarded_names_no_session_and_no_command() {
    let lab = Lab::new().with("forward_window", "50ms");
    let [one, two] = two_answers(&lab).await;
    let forward = |text: &str| {
        let forwarded = json!({ "text": text, "forward_origin": { "type": "user" } });
        lab.fake.receive(CHAT, ALICE, forwarded);
    };
    lab.fake.write(CHAT, ALICE, "summarise this");
    forward(&two.text);
    let bot = lab.bot().await;
    let answer = lab.fake.shows(CHAT, "You said: summarise this").await;
    assert!(![&one, &two].iter().any(|it| resume_line(&it.text) == resume_line(&answer.text)));
    // Alone, as when it comes after the window.
    forward(&format!("/cancel this\n{}", resume_line(&two.text)));
    let alone = lab.fake.shows(CHAT, "You said: Forwarded message:").await;
    assert!(alone.text.contains("/cancel this"), "{}", alone.text);
    assert!(
        ![&one, &two, &answer].iter().any(|it| resume_line(&it.text) == resume_line(&alone.text))
    );
    bot.stop().await;
}

#[tokio::test]
async fn a_resume_line_counts_in_a_persons_own_words_and_not_in_a_strangers() {
    let lab = Lab::new();
    let [one, _] = two_answers(&lab).await;
    let room = Room::topic(GROUP, 7);
    let line = resume_line(&one.text);
    let bot = lab.bot().await;
    let bait = lab.fake.write(room, MALLORY, line);
    lab.fake.reply(room, ALICE, bait, "@takopi_test_bot what is this?");
    let answer = lab.fake.shows(room, "You said: what is this?").await;
    assert_ne!(resume_line(&answer.text), line);
    lab.fake.write(room, ALICE, &format!("@takopi_test_bot go on\n{line}"));
    let answer = lab.fake.shows(room, "You said: go on").await;
    assert_eq!(resume_line(&answer.text), line);
    bot.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_is_not_removed_while_an_agent_runs_in_it() {
    let (lab, branch) = Lab::with_branch();
    let bot = lab.run(lab.parts(lab.demo(), Settings::default())).await;
    lab.fake.write(CHAT, ALICE, "/web @topic hello");
    let question = lab.fake.offers(CHAT, "Accept").await;
    let prune = || {
        let repository = takopi_projects::Repository::open(lab.projects.get("web").unwrap());
        repository.unwrap().prune().unwrap().remove(0).result
    };
    assert_eq!(prune(), Err(takopi_projects::Kept::InUse));
    assert!(branch.is_dir());
    lab.fake.press(ALICE, question.id, "Accept", ALICE);
    lab.fake.shows(CHAT, "You said: hello").await;
    bot.stop().await;
    assert!(prune().is_ok());
    assert!(!branch.exists());
}

#[tokio::test]
async fn a_message_of_names_alone_starts_nothing() {
    let mut lab = Lab::new();
    let mut project = takopi_projects::Project::new("web", lab.work());
    project.engine = Some("demo".to_owned());
    lab.projects.add(project);
    let bot = lab.bot().await;
    for text in ["/web", "/demo", "/web /demo"] {
        let asked = lab.fake.write(CHAT, ALICE, text);
        let refusal = lab.fake.until("a refusal", |fake| {
            fake.messages(ALICE).into_iter().find(|it| it.by_bot && it.reply_to == Some(asked))
        });
        assert!(refusal.await.text.contains("says nothing"), "{text}");
    }
    bot.stop().await;
    assert!(lab.fake.messages(ALICE).iter().all(|it| !it.text.contains("You said")));
}

#[tokio::test]
async fn a_conversation_goes_on_though_its_worktree_was_pruned() {
    for mode in ["replies", "chat"] {
        let (lab, branch) = Lab::with_branch();
        let lab = lab.with("mode", mode);
        let bot = lab.bot().await;
        lab.fake.write(CHAT, ALICE, "/web @topic one");
        let answer = lab.fake.shows(CHAT, "You said: one").await;
        // As prune does, which waits for no run.
        lab.git(&["worktree", "remove", branch.to_str().unwrap()]);
        match mode {
            "replies" => lab.fake.reply(CHAT, ALICE, answer.id, "two"),
            _ => lab.fake.write(CHAT, ALICE, "two"),
        };
        lab.fake.shows(CHAT, "You said: two").await;
        assert!(branch.is_dir());
        bot.stop().await;
    }
}
