//! Questions that are read, and answered late or never.

use std::collections::BTreeMap;

use takopi_core::demo::DEMO;
use takopi_core::runner::Question;
use tokio::time::{Instant, interval};

use super::*;
use crate::board::memory::MemoryBoard;
use crate::board::{NewJob, OnGone, OnLoss, SUBMITTER_LEASE, SessionRef, WorkerInfo};

const BEAT: Duration = Duration::from_secs(5);

/// A job that a worker runs, and the frames that it writes.
struct Asking {
    board: Arc<MemoryBoard>,
    remote: Remote,
    frames: mpsc::Receiver<Frame>,
}

impl Asking {
    async fn new() -> Self {
        let board = Arc::new(MemoryBoard::new());
        let worker = WorkerInfo {
            id: "m1/1".to_owned(),
            machine: "m1".to_owned(),
            instance: Uuid::nil(),
            offers: Vec::new(),
            versions: BTreeMap::new(),
            slots: 1,
        };
        let job = NewJob {
            id: "1".to_owned(),
            submitter: "s1".to_owned(),
            engine: "demo".to_owned(),
            session: SessionRef::New(Uuid::nil()),
            needs: Vec::new(),
            place: None,
            spec: serde_json::json!({}),
            blobs: Vec::new(),
            on_loss: OnLoss::Retry,
            on_gone: OnGone::Continue,
        };
        board.register(worker, BEAT * 3).await.unwrap();
        board.enqueue(vec![job]).await.unwrap();
        assert_eq!(board.claim("m1/1", "c1", 1).await.unwrap().len(), 1);
        let (sender, frames) = mpsc::channel(8);
        let remote = Remote {
            frames: sender,
            answers: Answers::default(),
            board: board.clone(),
            worker: "m1/1".to_owned(),
            job: "1".to_owned(),
        };
        Self { board, remote, frames }
    }

    fn ask(&self) -> BoxFuture<'static, Reply> {
        self.remote.reply(ApprovalRequest::new(DEMO, Question::command("ls"), "/".into()))
    }

    /// The name of the question that was written.
    async fn asked(&mut self) -> String {
        let Some(Frame::Ask { id, .. }) = self.frames.recv().await else { panic!("no question") };
        id
    }

    /// The worker beats, and the submitter if it is there.
    async fn beat(board: Arc<MemoryBoard>, submitter: bool) {
        let mut tick = interval(BEAT);
        loop {
            tick.tick().await;
            board.beat("m1/1", BEAT * 3, 1, false).await.unwrap().unwrap();
            if submitter {
                board.submitter_beat("s1", SUBMITTER_LEASE).await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_run_whose_submitter_is_gone_is_declined_and_withdrawn() {
    let mut asking = Asking::new().await;
    // It was there when it submitted.
    asking.board.submitter_beat("s1", SUBMITTER_LEASE).await.unwrap();
    let beating = tokio::spawn(Asking::beat(asking.board.clone(), false));
    let (begun, reply) = (Instant::now(), tokio::spawn(asking.ask()));
    let asked = asking.asked().await;
    let reply = tokio::time::timeout(Duration::from_hours(1), reply).await.unwrap().unwrap();
    assert_eq!(reply.decision, Decision::Decline);
    assert_eq!(reply.why.as_deref(), Some("the submitter does not answer"));
    assert_eq!(begun.elapsed(), PATIENCE);
    let withdrawn = asking.frames.try_recv().unwrap();
    assert!(matches!(withdrawn, Frame::Withdrawn { id } if id == asked));
    beating.abort();
}

#[tokio::test(start_paused = true)]
async fn a_submitter_that_lives_takes_as_long_as_it_wants_for_an_answer() {
    let mut asking = Asking::new().await;
    let beating = tokio::spawn(Asking::beat(asking.board.clone(), true));
    let reply = tokio::spawn(asking.ask());
    let asked = asking.asked().await;
    sleep(Duration::from_hours(2)).await;
    assert!(!reply.is_finished());
    let waiting = asking.remote.answers.lock().unwrap().remove(&asked).unwrap();
    waiting.send(Reply::from(Decision::Accept)).unwrap();
    assert_eq!(reply.await.unwrap().decision, Decision::Accept);
    beating.abort();
}
