use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;

fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(code, modifiers))
}

fn ctrl(letter: char) -> Event {
    key(KeyCode::Char(letter), KeyModifiers::CONTROL)
}

fn plain(code: KeyCode) -> Event {
    key(code, KeyModifiers::NONE)
}

fn typed(editor: &mut Editor, text: &str) {
    for letter in text.chars() {
        assert_eq!(editor.handle(plain(KeyCode::Char(letter))), Typed::Edit);
    }
}

fn enter(editor: &mut Editor) -> Typed {
    editor.handle(plain(KeyCode::Enter))
}

/// Finishes the text and keeps it in the history.
fn kept(editor: &mut Editor) -> String {
    let Typed::Line(line) = enter(editor) else { panic!("the text is not finished") };
    editor.keep(&line);
    line
}

fn editor() -> Editor {
    Editor::new(History::default())
}

#[test]
fn the_keys_of_shells_edit_the_text() {
    let mut editor = editor();
    typed(&mut editor, "two three");
    editor.handle(ctrl('a'));
    typed(&mut editor, "one ");
    editor.handle(ctrl('e'));
    editor.handle(key(KeyCode::Left, KeyModifiers::ALT));
    editor.handle(ctrl('k'));
    editor.handle(plain(KeyCode::Backspace));
    assert_eq!(enter(&mut editor), Typed::Line("one two".to_owned()));
    typed(&mut editor, "a👩‍🚀e\u{301}");
    editor.handle(plain(KeyCode::Backspace));
    editor.handle(plain(KeyCode::Backspace));
    assert_eq!(enter(&mut editor), Typed::Line("a".to_owned()), "whole characters are deleted");
    assert_eq!(editor.handle(ctrl('d')), Typed::End);
}

#[test]
fn alt_enter_and_a_backslash_continue_on_another_line() {
    let mut editor = editor();
    typed(&mut editor, "one\\");
    assert_eq!(enter(&mut editor), Typed::Edit);
    typed(&mut editor, "two");
    editor.handle(key(KeyCode::Enter, KeyModifiers::ALT));
    typed(&mut editor, "three");
    editor.handle(plain(KeyCode::Up));
    typed(&mut editor, "!");
    assert_eq!(enter(&mut editor), Typed::Line("one\ntwo!\nthree".to_owned()));
}

#[test]
fn pasted_text_keeps_its_tabs_and_lines() {
    let mut editor = editor();
    editor.handle(Event::Paste("a\tb\r\nc".to_owned()));
    assert_eq!(enter(&mut editor), Typed::Line("a\tb\nc".to_owned()));
    let long = "line\tof many\n".repeat(10_000);
    typed(&mut editor, "see ");
    editor.handle(Event::Paste(long.clone()));
    let drawn = editor.drawn("› ", 40, 5);
    assert_eq!(drawn.lines[0].plain(), "› see [pasted text 1: 10000 lines]");
    assert_eq!(enter(&mut editor), Typed::Line(format!("see {long}")));
}

#[test]
fn the_history_is_there_after_a_restart_and_can_be_searched() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Editor::new(History::open(directory.path().join("history")));
    let mut first = open();
    for text in ["alpha one", "beta\ntwo", "alpha three"] {
        first.handle(Event::Paste(text.to_owned()));
        kept(&mut first);
    }
    let mut editor = open();
    typed(&mut editor, "draft");
    editor.handle(plain(KeyCode::Up));
    assert_eq!(editor.text(), "alpha three");
    editor.handle(plain(KeyCode::Down));
    assert_eq!(editor.text(), "draft");
    editor.clear();
    editor.handle(ctrl('r'));
    typed(&mut editor, "alpha");
    editor.handle(ctrl('r'));
    assert!(editor.drawn("› ", 60, 5).lines[0].plain().ends_with("alpha one"));
    assert_eq!(kept(&mut editor), "alpha one");
    editor.handle(plain(KeyCode::Up));
    editor.handle(plain(KeyCode::Up));
    editor.handle(plain(KeyCode::Up));
    assert_eq!(editor.text(), "beta\ntwo");
}

#[test]
fn the_cursor_is_where_the_next_character_goes() {
    let mut editor = editor();
    typed(&mut editor, "日本e\u{301}x");
    assert_eq!(editor.drawn("› ", 40, 5).cursor, (0, 8));
    editor.handle(plain(KeyCode::Left));
    assert_eq!(editor.drawn("› ", 40, 5).cursor, (0, 7));
    let drawn = editor.drawn("› ", 5, 5);
    let lines: Vec<String> = drawn.lines.iter().map(Line::plain).collect();
    assert_eq!(lines, ["› 日", "  本e\u{301}", "  x"]);
}

#[test]
fn of_a_long_text_the_lines_around_the_cursor_are_drawn() {
    let mut editor = editor();
    editor.handle(Event::Paste("1\n2\n3\n4\n5\n6".to_owned()));
    let shown = |editor: &Editor| {
        let drawn = editor.drawn("", 20, 3);
        drawn.lines.iter().map(Line::plain).collect::<String>()
    };
    assert_eq!(shown(&editor), "456");
    for _ in 0..5 {
        editor.handle(plain(KeyCode::Up));
    }
    assert_eq!(shown(&editor), "123");
}
