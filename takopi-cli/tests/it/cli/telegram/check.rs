//! What `takopi doctor` says about the bot.

use serde_json::json;
use takopi_tests::telegram::{FakeTelegram, Fault};

use super::super::lab::Lab;
use super::lab;

fn telegram_lines(lab: &Lab) -> (Option<i32>, String) {
    let ran = lab.run(&["doctor", "--engine", "demo"]);
    let lines = ran.stdout.lines().skip_while(|line| !line.contains(" telegram "));
    let lines: Vec<&str> = lines.take_while(|line| !line.contains(" state ")).collect();
    (ran.code, lines.join("\n"))
}

#[test]
fn doctor_checks_the_token_the_chats_and_the_rights() {
    let fake = FakeTelegram::start();
    let groups = "chats = [-1, -2, -3, -4, -5]\ntrigger = 'all'\n\
                  [projects.web]\npath = '/srv/web'\nchats = [-6, '-1:7', 11]\n";
    let lab = lab(&fake, groups);
    fake.member(-2, json!({ "status": "left" }));
    fake.member(-3, json!(null));
    fake.member(
        -4,
        json!({ "status": "restricted", "is_member": true, "can_send_messages": false }),
    );
    fake.member(-5, json!({ "status": "member" }));
    let (code, shown) = telegram_lines(&lab);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(shown, @r#"
    ✓ telegram @takopi_test_bot answers 1 user
    ✓ telegram chat -6: administrator
    ! telegram chat -5: the bot sees only mentions, replies and commands
               → for trigger = "all", write /setprivacy to @BotFather and add the bot to the group again, or make it an administrator
    ✗ telegram chat -4: the bot may not send messages
               → allow it in the permissions of the group
    ✗ telegram chat -3: getChatMember: Bad Request: chat not found (400)
               → check the id with /ctx in the group, and add the bot to it
    ✗ telegram chat -2: the bot is not a member
               → add it to the group
    ✓ telegram chat -1: administrator
    "#);
}

#[test]
fn doctor_reports_a_token_that_is_refused_without_it() {
    let fake = FakeTelegram::start();
    let lab = lab(&fake, "");
    assert_eq!(
        telegram_lines(&lab),
        (Some(0), "✓ telegram @takopi_test_bot answers 1 user".to_owned())
    );
    fake.fail(|_| Some(Fault::Unauthorized));
    let (code, shown) = telegram_lines(&lab);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(shown, @r"
    ✗ telegram Telegram refuses the token; get the current one from @BotFather
               → run `takopi telegram setup`, or see docs/telegram.md
    ");
    let text = "[telegram]\nallowed_users = ['SECRET']\n";
    lab.write("home/.config/takopi/config.toml", text);
    let (_, shown) = telegram_lines(&lab);
    assert!(shown.contains("`allowed_users`: expected a list of user ids"), "{shown}");
}
