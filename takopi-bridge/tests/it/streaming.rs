//! How a chat shows an answer while it is written.

use std::sync::{Arc, Mutex};

use crate::support::{Run, lab, message, settle};
use takopi_bridge::testing::Room;
use takopi_bridge::transport::{Kind, Streaming};
use takopi_bridge::{
    Bridge, Content, FinalBy, JobId, MessageId, MessageRef, Outgoing, Place, Router, Settings,
    Transport, TransportError,
};
use takopi_core::{Action, ActionEvent, ActionKind, EngineId, Phase, TakopiEvent};

fn write(run: &Run, text: &str) {
    let action = Action::new("m", ActionKind::Answer, "");
    run.emit(ActionEvent::new("lab", action, Phase::Updated).message(text));
}

fn settings() -> Settings {
    Settings::default().final_by(FinalBy::Edit)
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_streams_by_edits_shows_the_answer_in_its_progress_message() {
    let (lab, mut runs) = lab();
    let room = Room::new();
    room.set_streaming(Streaming::Edits);
    let bridge = Bridge::new(room.clone(), Router::new(lab), settings());
    let job = bridge.receive(message("u1", "hello")).unwrap();
    let run = runs.next().await;
    assert!(run.request.deltas);
    run.started("s1");
    write(&run, "The **answer");
    room.shows(Kind::Progress, "The **answer").await;
    let calls = room.calls().len();
    for _ in 0..1000 {
        write(&run, " is");
    }
    write(&run, "** 42.");
    let shown = room.shows(Kind::Progress, "is is** 42.").await;
    assert!(shown.text().contains("resume s1"), "{}", shown.text());
    assert!(room.calls().len() - calls <= 2, "edits are at the chat's pace");
    // Of an answer that is too long the end is shown.
    write(&run, &format!("\n\n```\n{}last line\n", "a line of code\n".repeat(400)));
    let shown = room.shows(Kind::Progress, "last line").await;
    assert!(shown.text().encode_utf16().count() <= 4096);
    assert_eq!(shown.text().matches("```").count() % 2, 0, "{}", shown.text());
    run.done("done");
    job.report().await;
    assert_eq!(room.texts().len(), 1);
    bridge.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_streaming_no_pieces_are_asked_for() {
    let (lab, mut runs) = lab();
    let bridge = Bridge::new(Room::new(), Router::new(lab), settings());
    let _job = bridge.receive(message("u1", "hello")).unwrap();
    assert!(!runs.next().await.request.deltas);
    bridge.shutdown().await;
}

/// An event, by its chat, its job and its name.
type Seen = (String, u64, &'static str);

/// A room that records the events it gets, and panics at the first.
#[derive(Clone, Default)]
struct Watching {
    room: Room,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Transport for Watching {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        self.room.send(message).await
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        self.room.edit(message, content).await
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        self.room.delete(message).await
    }

    fn streaming(&self) -> Streaming {
        Streaming::Events
    }

    fn event(&self, place: &Place, job: JobId, event: &TakopiEvent) {
        let name = match event {
            TakopiEvent::Started(_) => "started",
            TakopiEvent::Action(_) => "action",
            _ => "completed",
        };
        self.seen.lock().unwrap().push((place.chat.clone(), job.number(), name));
        assert_ne!(name, "started", "a panic of the transport ends nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transport_gets_every_event_in_order_and_its_messages_are_without_the_answer() {
    let (lab, mut runs) = lab();
    let chat = Watching::default();
    let bridge = Bridge::new(chat.clone(), Router::new(lab), settings());
    let job = bridge.receive(message("u1", "hello")).unwrap();
    let number = job.id.number();
    let run = runs.next().await;
    run.started("s1");
    write(&run, "pieces");
    settle().await;
    assert!(chat.room.texts().iter().all(|text| !text.contains("pieces")));
    run.done("42");
    job.report().await;
    let seen = ["started", "action", "completed"].map(|name| ("general".to_owned(), number, name));
    assert_eq!(*chat.seen.lock().unwrap(), seen);
    bridge.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_chooses_the_engine_of_its_new_session() {
    let (lab, _runs) = lab();
    let (other, mut others) = crate::support::engine(EngineId::from("other"));
    let bridge = Bridge::new(Room::new(), Router::new(lab).with(other), settings());
    let _job = bridge.receive(message("u1", "hello").engine("other")).unwrap();
    assert_eq!(others.next().await.request.prompt, "hello");
    assert!(bridge.receive(message("u2", "hello").engine("nobody")).is_err());
    bridge.shutdown().await;
}
