//! Records `takopi demo` and `takopi chat` on an emulated terminal, as animations: `docs/record.sh`.
//!
//! The animation is one SVG file: a strip of frames, moved by a style sheet. It needs no script, and does
//! not move if the reader prefers reduced motion.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for the docs")]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, open};

const COLUMNS: u16 = 92;
const LINES: u16 = 32;
/// How often a frame is taken.
const TICK: Duration = Duration::from_millis(250);
/// How long a person looks before they type.
const THOUGHT: Duration = Duration::from_millis(1500);
/// How long a session may take.
const LONGEST: Duration = Duration::from_mins(1);
/// How long the last frame stays.
const PAUSE: Duration = Duration::from_secs(5);

/// The size of a character, and the margin around them all, in pixels.
const CHARACTER: (f32, f32) = (8.4, 18.0);
const MARGIN: f32 = 16.0;

/// A session that is recorded.
struct Scene {
    /// Its title, and the name of its file.
    name: &'static str,
    args: &'static [&'static str],
    /// What is typed, in order, each when a text has been on the screen for a while.
    cues: &'static [(&'static str, &'static str)],
}

const SCENES: [Scene; 2] = [
    Scene { name: "demo", args: &["demo"], cues: &[("no, and stop", "y")] },
    Scene {
        name: "chat",
        args: &["chat", "--engine", "demo", "-c", "pace=350ms"],
        cues: &[
            ("/help lists", "add a test for tabs\r"),
            ("then Enter", "y\r"),
            ("✓ files: update", "and one for spa"),
            ("done · Demo", "ces"),
            ("and one for spaces", "\x15/quit\r"),
        ],
    },
];

fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (binary, directory) = (args.next().unwrap(), args.next().unwrap());
    for scene in SCENES {
        let file = directory.join(scene.name).with_extension("svg");
        let frames = record(&binary, &scene);
        std::fs::write(&file, film(scene.name, &frames)).unwrap();
        println!("{}: {} frames", file.display(), frames.len());
    }
}

/// A frame: when it was taken, and the lines of it.
struct Frame {
    at: Duration,
    lines: Vec<Vec<Run>>,
}

/// Characters in a row that look the same.
#[derive(Clone, PartialEq)]
struct Run {
    column: u16,
    text: String,
    style: String,
}

fn record(binary: &std::path::Path, scene: &Scene) -> Vec<Frame> {
    let (pty, pts) = open().unwrap();
    pty.resize(pty_process::Size::new(LINES, COLUMNS)).unwrap();
    let state = std::env::temp_dir().join(format!("takopi-record-{}", std::process::id()));
    let command = Command::new(binary)
        .args(scene.args)
        .env("TERM", "xterm-256color")
        .env("TAKOPI_STATE_DIR", &state)
        .env_remove("NO_COLOR");
    let mut child = command.spawn(pts).unwrap();
    let pty = Arc::new(pty);
    let emulator = vt100::Parser::new(LINES.try_into().unwrap(), COLUMNS.try_into().unwrap(), 0);
    let emulator = Arc::new(Mutex::new(emulator));
    std::thread::spawn({
        let (pty, emulator) = (pty.clone(), emulator.clone());
        move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = (&*pty).read(&mut bytes) {
                emulator.lock().unwrap().process(&bytes[..count]);
            }
        }
    });

    let begun = Instant::now();
    let mut frames: Vec<Frame> = Vec::new();
    let mut cues = scene.cues.iter().peekable();
    let mut shown = None;
    loop {
        let over = child.try_wait().unwrap().is_some();
        std::thread::sleep(TICK);
        let (contents, lines) = {
            let emulator = emulator.lock().unwrap();
            (emulator.screen().contents(), picture(emulator.screen()))
        };
        if frames.last().is_none_or(|last| last.lines != lines) {
            frames.push(Frame { at: begun.elapsed(), lines });
        }
        if let Some((text, keys)) = cues.peek()
            && contents.contains(text)
        {
            let since = *shown.get_or_insert_with(Instant::now);
            if since.elapsed() > THOUGHT {
                (&*pty).write_all(keys.as_bytes()).unwrap();
                cues.next();
                shown = None;
            }
        }
        assert!(begun.elapsed() < LONGEST, "{} waits at:\n{contents}", scene.name);
        if over {
            let _ = std::fs::remove_dir_all(state);
            return frames;
        }
    }
}

fn picture(screen: &vt100::Screen) -> Vec<Vec<Run>> {
    (0..LINES)
        .map(|line| {
            let mut runs: Vec<Run> = Vec::new();
            for column in 0..COLUMNS {
                let Some(cell) = screen.cell(line, column) else { continue };
                if cell.is_wide_continuation() {
                    continue;
                }
                let text = if cell.has_contents() { cell.contents() } else { " " };
                let style = style(cell);
                match runs.last_mut() {
                    Some(run) if run.style == style => run.text.push_str(text),
                    _ => runs.push(Run { column, text: text.to_owned(), style }),
                }
            }
            for run in &mut runs {
                let text = run.text.trim_start();
                run.column += u16::try_from(run.text.len() - text.len()).unwrap();
                run.text = text.trim_end().to_owned();
            }
            runs.retain(|run| !run.text.is_empty());
            runs
        })
        .collect()
}

fn style(cell: &vt100::Cell) -> String {
    let mut classes = String::new();
    if let vt100::Color::Idx(color) = cell.fgcolor() {
        let _ = write!(classes, "c{color} ");
    }
    for (on, class) in [(cell.bold(), "b "), (cell.dim(), "d "), (cell.underline(), "u ")] {
        classes.push_str(if on { class } else { "" });
    }
    classes.trim_end().to_owned()
}

/// The frames as a strip, and a style sheet that moves it.
fn film(name: &str, frames: &[Frame]) -> String {
    let (wide, high) = CHARACTER;
    // Whole pixels, so that the strip does not drift.
    let width = (f32::from(COLUMNS) * wide + 2.0 * MARGIN).ceil();
    let height = (f32::from(LINES) * high + 2.0 * MARGIN).ceil();
    let length = frames.last().map_or(PAUSE, |last| last.at + PAUSE).as_secs_f32();
    let mut strip = String::new();
    let mut moves = String::new();
    let mut left = 0.0;
    for frame in frames {
        let percent = 100.0 * frame.at.as_secs_f32() / length;
        let percent = if left == 0.0 { 0.0 } else { percent };
        let _ = writeln!(moves, "{percent:.2}% {{ transform: translateX({:.0}px) }}", -left);
        let _ = writeln!(strip, "<g transform=\"translate({left:.0})\">");
        for (line, runs) in frame.lines.iter().enumerate().filter(|(_, runs)| !runs.is_empty()) {
            let y = MARGIN + high * (u16::try_from(line).map_or(0.0, f32::from) + 0.75);
            let _ = write!(strip, "<text y=\"{y:.1}\">");
            for run in runs {
                let x = MARGIN + wide * f32::from(run.column);
                let text = run.text.replace('&', "&amp;").replace('<', "&lt;");
                let class = if run.style.is_empty() {
                    String::new()
                } else {
                    format!(" class=\"{}\"", run.style)
                };
                let _ = write!(strip, "<tspan x=\"{x:.1}\"{class}>{text}</tspan>");
            }
            strip.push_str("</text>\n");
        }
        strip.push_str("</g>\n");
        left += width;
    }
    let last = -(left - width).max(0.0);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}">
<title>takopi {name}</title>
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d4d4d8; white-space: pre }}
.b {{ font-weight: bold }} .d {{ opacity: 0.6 }} .u {{ text-decoration: underline }}
.c1 {{ fill: #f87171 }} .c2 {{ fill: #4ade80 }} .c3 {{ fill: #facc15 }} .c5 {{ fill: #c084fc }} .c6 {{ fill: #22d3ee }}
#film {{ animation: film {length:.2}s infinite step-end }}
@keyframes film {{
{moves}}}
@media (prefers-reduced-motion: reduce) {{ #film {{ animation: none; transform: translateX({last:.0}px) }} }}
</style>
<rect width="100%" height="100%" rx="8" fill="#18181b"/>
<g id="film">
{strip}</g>
</svg>
"##
    )
}
