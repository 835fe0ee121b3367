//! Text for people: nothing lost, nothing over the limit, no control character.

use std::time::Duration;

use takopi_bridge::present::chat;
use takopi_bridge::present::terminal::{self, Feed, Viewport};
use takopi_bridge::present::{Chat, Limit, Line, Moment, Style, clean, one_line, wrap};
use takopi_bridge::progress::Progress;
use takopi_core::{
    Action, ActionEvent, ActionKind, Completed, Phase, ResumeToken, Started, TakopiEvent,
};

/// What a reader sees; marks and escapes may be added or go where a text is cut.
fn bare(text: &str) -> Vec<char> {
    let marks = ['`', '~', '\\', '>'];
    text.chars().filter(|it| !it.is_whitespace() && !marks.contains(it)).collect()
}

fn is_within(part: &[char], whole: &[char]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|wanted| whole.any(|found| found == wanted))
}

fn limit(number: usize) -> Limit {
    if number.is_multiple_of(2) { Limit::Chars(number) } else { Limit::Utf16(number) }
}

/// A Markdown text in parts: none over the limit, none blank, nothing lost.
pub(crate) fn split(input: &[u8]) {
    let (most, rest) = crate::number(input);
    let limit = limit(most);
    let text = String::from_utf8_lossy(rest);
    let parts = chat::split(&text, limit);
    for part in &parts {
        assert!(limit.fits(part), "over {limit:?}: {part:?}");
        assert!(!part.trim().is_empty(), "a blank part");
    }
    assert!(is_within(&bare(&text), &bare(&parts.concat())), "lost of {text:?}: {parts:#?}");
}

/// The action of an engine that wrote this text, and its kind and phase from a number.
fn action(number: usize, text: &str) -> ActionEvent {
    let kind = ActionKind::KNOWN[number % ActionKind::KNOWN.len()].clone();
    let phase = [Phase::Started, Phase::Updated, Phase::Completed][number % 3];
    let (title, message) = text.split_once('\n').unwrap_or((text, text));
    let mut event = ActionEvent::new("codex", Action::new("a", kind, title), phase);
    event.message = Some(message.to_owned());
    event.ok = (phase == Phase::Completed).then_some(number.is_multiple_of(2));
    event
}

fn progress(number: usize, text: &str) -> Progress {
    let mut progress = Progress::default();
    let started = Started::new(ResumeToken::new("codex", "0199")).title(text);
    progress.apply(&TakopiEvent::from(started), Duration::ZERO);
    progress.apply(&action(number, text).into(), Duration::from_secs(1));
    progress
}

fn no_control(text: &str, allowed: &[char]) {
    let found = text.chars().find(|it| it.is_control() && !allowed.contains(it));
    assert_eq!(found, None, "a control character in {text:?}");
}

fn check(lines: &[Line], width: usize) {
    for line in lines {
        no_control(&line.plain(), &[]);
        let code = line.spans().iter().any(|span| span.style == Style::Code);
        assert!(code || line.width() <= width, "wider than {width}: {:?}", line.plain());
    }
}

/// Lines for a terminal.
pub(crate) fn terminal(input: &[u8]) {
    let (number, rest) = crate::number(input);
    let width = 10 + number % 90;
    let text = String::from_utf8_lossy(rest);
    let event = action(number, &text);
    let frame = Viewport { elapsed: Duration::from_secs(3), width, height: 5 };
    let progress = progress(number, &text);
    check(&terminal::live(&progress, frame), width);
    check(&terminal::entry(&event, Feed::All, Some(width)), width);
    for line in terminal::entry(&event, Feed::All, None) {
        no_control(&line.plain(), &[]);
    }
    no_control(&terminal::summary(&progress, Duration::from_secs(3)).plain(), &[]);
    check(&terminal::answer(&text, width), width);
    no_control(&clean(&text), &['\n', '\t']);
    no_control(&one_line(&text, width), &[]);
    for line in wrap(&text, width) {
        no_control(&line, &[]);
    }
}

/// Messages for a chat.
pub(crate) fn chat(input: &[u8]) {
    let (number, rest) = crate::number(input);
    let limit = limit(24 + number * 4);
    let text = String::from_utf8_lossy(rest);
    let chat = Chat::new(limit);
    let moment = Moment::at(Duration::from_secs(9)).resume_line("`codex resume 0`").note(&*text);
    let mut progress = progress(number, &text);
    let message = chat.progress(&progress, &moment);
    assert!(limit.fits(&message) && !message.trim().is_empty(), "{message:?}");
    no_control(&message, &['\n', '\t']);
    assert!(message.ends_with("`codex resume 0`"), "{message:?}");
    let end = Completed::success("codex", &*text);
    progress.apply(&TakopiEvent::from(end), Duration::from_secs(9));
    let messages = chat.finished(&progress, &moment);
    for message in &messages {
        assert!(limit.fits(message) && !message.trim().is_empty(), "{message:?}");
        no_control(message, &['\n', '\t']);
    }
    let last = messages.last().expect("at least one message");
    assert!(last.ends_with("`codex resume 0`"), "{last:?}");
}
