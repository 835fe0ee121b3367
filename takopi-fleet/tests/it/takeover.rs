//! What a submitter sees of a worker that was lost with its run.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use takopi_core::demo::{Demo, Step};
use takopi_core::runner::Question;
use takopi_core::{ApprovalHandler, ApprovalRequest, Decision, RunRequest, Runner as _};
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{finish, is_started, until};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::contract::fleet_runner;
use crate::runs::Fleet;

/// Answers only its second question, once it may, and writes down what happened.
#[derive(Clone)]
struct Asked {
    log: Arc<Mutex<Vec<&'static str>>>,
    count: Arc<Semaphore>,
    open: CancellationToken,
}

impl Asked {
    fn log(&self, what: &'static str) {
        self.log.lock().unwrap().push(what);
    }
}

/// Writes down that nobody waits for an answer any more.
struct Waiting(Asked);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.log("withdrawn");
    }
}

impl ApprovalHandler for Asked {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        let (asked, first) = (self.clone(), self.log.lock().unwrap().is_empty());
        self.log("asked");
        self.count.add_permits(1);
        Box::pin(async move {
            if first {
                let _waiting = Waiting(asked);
                return std::future::pending().await;
            }
            asked.open.cancelled().await;
            asked.log("answered");
            Decision::Accept
        })
    }
}

#[tokio::test]
async fn a_question_of_a_lost_worker_is_withdrawn_before_the_next_one_is_answered() {
    let fleet = Fleet::new();
    let ask = Step::Ask { id: "ask".to_owned(), question: Question::command("ls") };
    let asks = Demo::scripted([ask, Step::Say("done".to_owned())]);
    let _first = fleet.worker(fleet.options("m1"), asks.clone());
    let (count, open) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
    let asked = Asked { log: Arc::default(), count, open };
    let runner = fleet_runner(&fleet.board, &fleet.host);
    let mut stream = runner.run(RunRequest::new("hello").approvals(Arc::new(asked.clone())));
    let seen = until(&mut stream, "Started", is_started).await;
    within(PATIENCE, "the first question", asked.count.acquire()).await.unwrap().forget();
    fleet.usurp("m1").await;
    assert_eq!(fleet.board.reap().await.unwrap().again, 1);
    let _second = fleet.worker(fleet.options("m2"), asks);
    within(PATIENCE, "the second question", asked.count.acquire()).await.unwrap().forget();
    asked.open.cancel();
    assert_eq!(finish(stream, seen).await.ok().answer, "done");
    let log = asked.log.lock().unwrap().clone();
    let place = |what| log.iter().position(|entry| *entry == what);
    assert!(place("withdrawn").is_some_and(|it| Some(it) < place("answered")), "{log:?}");
}
