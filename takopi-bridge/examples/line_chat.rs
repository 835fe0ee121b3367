//! A complete bridge: a chat of lines, between standard input and output and the demo engine.
//!
//! `cargo run -p takopi-bridge --example line_chat`, and see `docs/write-a-bridge.md`, which
//! builds it step by step.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use takopi_bridge::{
    Bridge, Content, Incoming, Limits, MessageId, MessageRef, Outgoing, Place, Press, Router,
    Settings, Transport, TransportError,
};
use takopi_core::approvals::Rules;
use takopi_core::demo::Demo;
use tokio::sync::mpsc;

/// The chat's API: here, lines to print.
pub struct LineChat {
    lines: mpsc::Sender<String>,
    sent: AtomicUsize,
}

impl Transport for LineChat {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        let id = format!("m{}", self.sent.fetch_add(1, Ordering::Relaxed) + 1);
        self.print(&id, &message.content).await?;
        Ok(MessageId::from(id))
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        self.print(message.message.as_str(), &content).await
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        let line = format!("[{}] deleted", message.message);
        self.lines.send(line).await.map_err(TransportError::failed)
    }
}

impl LineChat {
    /// A chat that sends its lines to this channel.
    pub fn new(lines: mpsc::Sender<String>) -> Self {
        Self { lines, sent: AtomicUsize::new(0) }
    }

    /// Prints a message with its buttons below.
    async fn print(&self, id: &str, content: &Content) -> Result<(), TransportError> {
        let mut lines = vec![format!("[{id}] {}", content.text)];
        for press in &content.buttons {
            lines.push(format!("  !{id} {press}  {}", press.label()));
        }
        self.lines.send(lines.join("\n")).await.map_err(TransportError::failed)
    }
}

/// Handles an input line: `hello` is a message, `@m1 hello` replies to a message, `!m1 stop` presses a
/// button on it. Returns a text for the person who typed it, if there is one.
pub fn handle_line(bridge: &Bridge<LineChat>, number: usize, line: &str) -> Option<String> {
    if let Some(pressed) = line.strip_prefix('!') {
        return Some(press(bridge, pressed));
    }
    let id = format!("u{number}");
    let message = match line.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
        Some((to, text)) => Incoming::new(place(), id, text).replying_to(to),
        None => Incoming::new(place(), id, line),
    };
    // The chat shows the answer, or why the message was not accepted.
    let _ = bridge.receive(message.by("you"));
    None
}

/// There is one chat, and it has no threads.
fn place() -> Place {
    Place::new("terminal")
}

/// A button was pressed: `m1 stop`.
fn press(bridge: &Bridge<LineChat>, pressed: &str) -> String {
    let Some((message, button)) = pressed.split_once(' ') else {
        return "press a button like this: !m1 stop".to_owned();
    };
    let message = MessageId::from(message).at(place().chat);
    match button.trim().parse::<Press>() {
        Ok(press) => bridge.press(&message, press, "you").to_string(),
        Err(error) => error.to_string(),
    }
}

/// Two runs at once, an hour at most, and `cargo test` needs no approval.
pub fn settings() -> Settings {
    Settings::default()
        .limits(Limits::new(2, 20))
        .patience(Duration::from_mins(2))
        .requests(|_message, request| request.wall_timeout(Duration::from_hours(1)))
        .approvals(|people| Arc::new(Rules::new().command("cargo test").otherwise(people)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (lines, shown) = mpsc::channel(64);
    let printer = tokio::spawn(print_all(shown));
    let router = Router::new(Arc::new(Demo::new().pace(Duration::from_millis(400)).runner()));
    let bridge = Bridge::new(LineChat::new(lines.clone()), router, settings());

    let mut typed = typed();
    let mut number = 0;
    while let Some(line) = typed.recv().await {
        number += 1;
        if let Some(text) = handle_line(&bridge, number, &line) {
            lines.send(text).await?;
        }
    }

    // The input ended: give running jobs a minute, then cancel them.
    let _ = tokio::time::timeout(Duration::from_mins(1), bridge.drain()).await;
    for cancelled in bridge.shutdown().await {
        lines.send(cancelled.to_string()).await?;
    }

    drop((bridge, lines));
    Ok(printer.await??)
}

/// Prints the lines of the chat until the channel or standard output is closed.
async fn print_all(mut shown: mpsc::Receiver<String>) -> io::Result<()> {
    while let Some(lines) = shown.recv().await {
        writeln!(io::stdout(), "{lines}\n")?;
    }
    Ok(())
}

/// The lines of standard input, read on a thread of its own.
fn typed() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}
