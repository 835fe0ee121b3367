//! What every board promises about sessions and where their files are: a part of the suite.

use takopi_fleet::board::{Enqueued, Import, Opened, Piece, SessionRef};
use uuid::Uuid;

use crate::lab::{LEASE, Lab, completion, ids, job, worker};
use crate::suite::{enqueue, workers};

pub(crate) async fn a_session_is_found_by_every_name_it_had(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    assert_eq!(board.opened("a/1", held, "demo-one").await.unwrap(), Opened::Ok);
    lab.expire("a/1").await;
    board.reap().await.unwrap();
    let held = board.claim("b/1", "c1", 1).await.unwrap().remove(0).held;
    assert_eq!(board.opened("b/1", held.clone(), "demo-two").await.unwrap(), Opened::Ok);
    board.complete("b/1", completion(held, "b")).await.unwrap();
    for (id, name) in [("2", "demo-one"), ("3", "demo-two")] {
        let named = job(id, SessionRef::Known(name.to_owned()));
        assert_eq!(board.enqueue(vec![named]).await.unwrap(), [Enqueued::New], "{name}");
    }
    let next = board.claim("b/1", "c2", 9).await.unwrap();
    assert_eq!((ids(&next), next[0].value.as_deref()), (vec!["2"], Some("demo-two")));
    enqueue(lab, &[("4", 4)]).await;
    let other = board.claim("b/1", "c3", 9).await.unwrap().remove(0).held;
    assert_eq!(board.opened("b/1", other, "demo-one").await.unwrap(), Opened::Taken);
}

pub(crate) async fn a_session_never_reaches_an_older_engine(lab: &Lab) {
    let board = lab.board();
    for (id, version) in [("old/1", 125), ("new/1", 166)] {
        let mut info = worker(id);
        info.versions.insert("demo".to_owned(), version);
        board.register(info, LEASE).await.unwrap();
    }
    enqueue(lab, &[("1", 1), ("2", 1), ("3", 3)]).await;
    let held = board.claim("new/1", "c1", 1).await.unwrap().remove(0).held;
    let mut done = completion(held, "new");
    done.version = 166;
    board.complete("new/1", done).await.unwrap();
    assert_eq!(
        ids(&board.claim("old/1", "c1", 9).await.unwrap()),
        ["3"],
        "not the session of the newer"
    );
    lab.expire("new/1").await;
    board.reap().await.unwrap();
    assert!(board.claim("old/1", "c2", 9).await.unwrap().is_empty());
    let waiting = board.waiting("2").await.unwrap().unwrap();
    assert_eq!((waiting.offered, waiting.min_version), (false, 166));
}

pub(crate) async fn files_are_stored_with_the_result_and_only_for_who_holds_the_session(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 1), ("3", 1), ("4", 1)]).await;
    let piece = |start: i64, data: &str| Piece { path: "p".to_owned(), start, data: data.into() };
    let sid = Uuid::from_u64_pair(0, 1);
    for (claim, pieces) in [("c1", piece(0, "ab")), ("c2", piece(2, "cd")), ("c3", piece(0, "new"))]
    {
        let claimed = board.claim("a/1", claim, 1).await.unwrap().remove(0);
        let mut done = completion(claimed.held.clone(), "a");
        done.files = vec![pieces];
        board.complete("a/1", done).await.unwrap();
        assert!(board.files("a/1", sid).await.unwrap().is_empty(), "it does not hold it any more");
        if claim == "c2" {
            workers(lab, &["b/1"]).await;
        }
    }
    let claimed = board.claim("a/1", "c4", 1).await.unwrap().remove(0);
    assert_eq!((claimed.generation, claimed.home.as_deref()), (3, Some("a")));
    assert_eq!(board.files("a/1", sid).await.unwrap(), [piece(0, "new")]);
    assert!(board.files("b/1", sid).await.unwrap().is_empty());
}

pub(crate) async fn a_job_that_did_not_begin_leaves_its_session_where_it_is(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 1), ("3", 1)]).await;
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    let mut done = completion(held, "a");
    done.stays = Some("it is too large".to_owned());
    assert!(board.complete("a/1", done).await.unwrap());
    assert_eq!(ids(&board.claim("b/1", "c1", 1).await.unwrap()), [""; 0]);
    let second = board.claim("a/1", "c2", 1).await.unwrap().remove(0);
    let mut refused = completion(second.held, "a");
    refused.home = None;
    assert!(board.complete("a/1", refused).await.unwrap());
    assert_eq!(ids(&board.claim("b/1", "c2", 1).await.unwrap()), [""; 0], "it stays");
    let third = board.claim("a/1", "c3", 1).await.unwrap().remove(0);
    assert_eq!((third.home, third.generation), (second.home, second.generation));
}

pub(crate) async fn a_session_that_stays_is_stranded_without_its_machine_until_released(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 1)]).await;
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    board.opened("a/1", held.clone(), "demo-one").await.unwrap();
    let mut done = completion(held, "a");
    done.stays = Some("it is too large".to_owned());
    board.complete("a/1", done).await.unwrap();
    lab.expire("a/1").await;
    board.reap().await.unwrap();
    assert!(board.claim("b/1", "c1", 9).await.unwrap().is_empty());
    assert_eq!(board.waiting("2").await.unwrap().unwrap().stranded.as_deref(), Some("a"));
    assert_eq!(board.status().await.unwrap().stranded, 1);
    assert!(!board.release("demo", "demo-none").await.unwrap());
    assert!(board.release("demo", "demo-one").await.unwrap());
    assert_eq!(ids(&board.claim("b/1", "c2", 9).await.unwrap()), ["2"]);
}

pub(crate) async fn a_worker_prefers_the_sessions_whose_files_it_has(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 2)]).await;
    for (worker, claim) in [("a/1", "c1"), ("b/1", "c1")] {
        let held = board.claim(worker, claim, 1).await.unwrap().remove(0).held;
        let home = worker.split('/').next().unwrap();
        board.complete(worker, completion(held, home)).await.unwrap();
    }
    enqueue(lab, &[("3", 1), ("4", 2)]).await;
    lab.have_just_come().await;
    assert_eq!(
        ids(&board.claim("b/1", "c2", 9).await.unwrap()),
        ["4"],
        "the other one is at home elsewhere"
    );
    lab.expire("a/1").await;
    assert_eq!(ids(&board.claim("b/1", "c3", 9).await.unwrap()), ["3"], "its home is gone");
}

pub(crate) async fn an_imported_session_can_be_resumed(lab: &Lab) {
    let board = lab.board();
    let import = Import {
        sid: Uuid::from_u64_pair(0, 9),
        engine: "demo".to_owned(),
        value: "demo-mine".to_owned(),
        place: None,
        machine: "a".to_owned(),
        version: 7,
        stays: None,
        files: vec![Piece { path: "p".to_owned(), start: 0, data: b"x".to_vec() }],
    };
    assert!(board.import(import.clone()).await.unwrap());
    assert!(!board.import(import).await.unwrap(), "it is there");
    board.enqueue(vec![job("1", SessionRef::Known("demo-mine".to_owned()))]).await.unwrap();
    let mut info = worker("a/1");
    info.versions.insert("demo".to_owned(), 7);
    board.register(info, LEASE).await.unwrap();
    let claimed = board.claim("a/1", "c1", 1).await.unwrap().remove(0);
    assert_eq!(claimed.value.as_deref(), Some("demo-mine"));
    assert_eq!(board.files("a/1", claimed.sid).await.unwrap().len(), 1);
}
