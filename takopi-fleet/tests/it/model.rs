//! Random steps on a board beside a plain model of it: enqueue, claim, beat, die, pause, complete, reap, cancel, and replies that
//! are lost. After every step: one inside a session, tokens grow, order is kept, one result for each job, and no session with
//! work is without a head or a worker.
//!
//! `TAKOPI_MODEL_STEPS` and `TAKOPI_MODEL_SEED` choose how many and which.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use takopi_fleet::board::{
    Claimed, ControlKind, ControlRequest, ControlState, Enqueued, Held, MAX_ATTEMPTS,
};
use takopi_tests::dice::Dice;
use uuid::Uuid;

use crate::lab::{LEASE, Lab, completion, job, session, worker};

const SESSIONS: u64 = 40;
const MACHINES: u64 = 4;

#[derive(Default)]
struct Model {
    /// The jobs of a session that have no result, in order.
    open: BTreeMap<Uuid, VecDeque<String>>,
    sessions: HashMap<String, Uuid>,
    tokens: HashMap<Uuid, i64>,
    inside: BTreeMap<Uuid, (String, Held)>,
    homes: HashMap<Uuid, String>,
    attempts: HashMap<String, u32>,
    done: BTreeSet<String>,
    /// By machine: the worker, and whether its lease holds.
    workers: BTreeMap<u64, (String, bool)>,
    /// What workers that were lost still think they hold.
    stale: Vec<(String, Held)>,
    next: u64,
}

impl Model {
    fn finish(&mut self, job: &str) {
        assert!(self.done.insert(job.to_owned()), "{job} has two results");
        let sid = self.sessions[job];
        let queue = self.open.get_mut(&sid).unwrap();
        queue.retain(|open| open != job);
    }

    /// Whatever is held by nobody who lives goes back or is lost.
    fn free(&mut self, is_dead: impl Fn(&str) -> bool) {
        let dead: Vec<_> = self
            .inside
            .iter()
            .filter(|(_, (worker, _))| is_dead(worker))
            .map(|(sid, _)| *sid)
            .collect();
        for sid in dead {
            let (worker, held) = self.inside.remove(&sid).unwrap();
            if self.attempts[&held.job] >= MAX_ATTEMPTS {
                self.finish(&held.job);
            }
            self.stale.push((worker, held));
        }
    }

    fn claimed(&mut self, worker: &str, machine: &str, asked: usize, claimed: &[Claimed]) {
        for one in claimed {
            let (sid, held) = (one.sid, &one.held);
            assert!(!self.inside.contains_key(&sid), "two inside {sid}: {one:?}");
            assert!(
                held.token > self.tokens.get(&sid).copied().unwrap_or(0),
                "the token did not grow"
            );
            assert_eq!(self.open[&sid].front(), Some(&held.job), "out of order");
            let attempts = self.attempts.entry(held.job.clone()).or_default();
            *attempts += 1;
            assert_eq!(one.attempt, *attempts);
            self.tokens.insert(sid, held.token);
            self.inside.insert(sid, (worker.to_owned(), held.clone()));
        }
        if claimed.len() < asked {
            for (sid, queue) in &self.open {
                let waits = !queue.is_empty() && !self.inside.contains_key(sid);
                let elsewhere = self.homes.get(sid).is_some_and(|home| home != machine);
                assert!(!waits || elsewhere, "{sid} has work, is free, and was not given");
            }
        }
    }
}

async fn walk(lab: &Lab, steps: u64, seed: u64) {
    let board = lab.board();
    let mut dice = Dice::new(seed);
    let mut model = Model::default();
    for step in 0..steps {
        let machine = dice.below(MACHINES);
        let name = format!("m{machine}");
        let alive =
            model.workers.get(&machine).filter(|(_, alive)| *alive).map(|(id, _)| id.clone());
        match dice.below(100) {
            0..30 => {
                let number = dice.below(SESSIONS);
                let id = if dice.chance(10) && model.next > 0 {
                    format!("j{}", dice.below(model.next))
                } else {
                    model.next += 1;
                    format!("j{}", model.next - 1)
                };
                let outcome = board.enqueue(vec![job(&id, session(number))]).await.unwrap();
                let known = model.sessions.contains_key(&id);
                assert_eq!(outcome, [if known { Enqueued::Known } else { Enqueued::New }]);
                if !known {
                    let sid = Uuid::from_u64_pair(0, number);
                    model.sessions.insert(id.clone(), sid);
                    model.open.entry(sid).or_default().push_back(id);
                }
            }
            30..55 => {
                let Some(id) = alive else { continue };
                let max = dice.pick(&[1_u32, 2, 3, 4]);
                let asked = max as usize;
                let claim = format!("c{step}");
                let claimed = board.claim(&id, &claim, max).await.unwrap();
                if dice.chance(20) && !claimed.is_empty() {
                    let again = board.claim(&id, &claim, max).await.unwrap();
                    assert_eq!(again, claimed, "the reply was lost and it was asked again");
                }
                model.claimed(&id, &name, asked, &claimed);
            }
            55..80 => {
                let held: Vec<_> = model
                    .inside
                    .iter()
                    .map(|(sid, (id, held))| (*sid, id.clone(), held.clone()))
                    .collect();
                if held.is_empty() {
                    continue;
                }
                let (sid, id, held) = dice.pick(&held);
                let home = id.split('/').next().unwrap().to_owned();
                for _ in 0..=u64::from(dice.chance(15)) {
                    assert!(
                        board.complete(&id, completion(held.clone(), &home)).await.unwrap(),
                        "{id} holds {held:?}"
                    );
                }
                model.inside.remove(&sid);
                model.homes.insert(sid, home);
                model.finish(&held.job);
            }
            80..85 => {
                let Some((id, alive)) = model.workers.get(&machine).cloned() else { continue };
                let held = board.beat(&id, LEASE, 0, false).await.unwrap();
                assert_eq!(held.is_some(), alive);
                if let Some(mut held) = held {
                    held.sort();
                    let mut expected: Vec<_> = model
                        .inside
                        .values()
                        .filter(|(inside, _)| *inside == id)
                        .map(|(_, held)| held.clone())
                        .collect();
                    expected.sort();
                    assert_eq!(held, expected);
                }
            }
            85..88 => {
                if let Some(id) = alive {
                    lab.expire(&id).await;
                    model.workers.insert(machine, (id, false));
                }
            }
            88..92 => {
                board.reap().await.unwrap();
                let living: BTreeSet<_> = model
                    .workers
                    .values()
                    .filter(|(_, alive)| *alive)
                    .map(|(id, _)| id.clone())
                    .collect();
                model.free(|id| !living.contains(id));
            }
            92..95 => {
                let id = format!("{name}/{step}");
                board.register(worker(&id), LEASE).await.unwrap();
                board.reap().await.unwrap();
                model.workers.insert(machine, (id, true));
                let living: BTreeSet<_> = model
                    .workers
                    .values()
                    .filter(|(_, alive)| *alive)
                    .map(|(id, _)| id.clone())
                    .collect();
                model.free(|id| !living.contains(id));
            }
            95..97 => {
                // A worker that was lost comes back to itself and goes on where it was.
                if let Some((id, held)) = model.stale.pop() {
                    assert!(
                        !board.complete(&id, completion(held.clone(), "late")).await.unwrap(),
                        "{id} was fenced"
                    );
                    assert!(!board.hand_back(&id, held, true).await.unwrap());
                }
            }
            97 => {
                let held: Vec<_> = model
                    .inside
                    .iter()
                    .map(|(sid, (id, held))| (*sid, id.clone(), held.clone()))
                    .collect();
                if held.is_empty() {
                    continue;
                }
                let (sid, id, held) = dice.pick(&held);
                let begun = dice.chance(50);
                assert!(board.hand_back(&id, held.clone(), begun).await.unwrap());
                model.inside.remove(&sid);
                if begun && model.attempts[&held.job] >= MAX_ATTEMPTS {
                    model.finish(&held.job);
                } else if !begun {
                    *model.attempts.get_mut(&held.job).unwrap() -= 1;
                }
            }
            _ => {
                if model.next == 0 {
                    continue;
                }
                let id = format!("j{}", dice.below(model.next));
                if !model.sessions.contains_key(&id) {
                    continue;
                }
                let running = model.inside.values().any(|(_, held)| held.job == id);
                if running {
                    continue;
                }
                let cancel = ControlRequest {
                    id: format!("x{step}"),
                    job: id.clone(),
                    kind: ControlKind::Cancel,
                    body: serde_json::json!({}),
                };
                let state = board.control(cancel).await.unwrap();
                if model.done.contains(&id) {
                    assert_eq!(state, ControlState::Refused);
                } else {
                    assert_eq!(state, ControlState::Taken);
                    model.finish(&id);
                }
            }
        }
    }
    // All of it ends: nothing was lost on the way.
    for machine in 0..MACHINES {
        board.register(worker(&format!("m{machine}/end")), LEASE).await.unwrap();
    }
    board.reap().await.unwrap();
    model.free(|_| true);
    for round in 0.. {
        let mut idle = true;
        for machine in 0..MACHINES {
            let (id, name) = (format!("m{machine}/end"), format!("m{machine}"));
            let claimed = board.claim(&id, &format!("e{round}"), 100).await.unwrap();
            idle &= claimed.is_empty();
            model.claimed(&id, &name, 0, &claimed);
            for one in claimed {
                assert!(board.complete(&id, completion(one.held.clone(), &name)).await.unwrap());
                model.inside.remove(&one.sid);
                model.finish(&one.held.job);
            }
        }
        if idle {
            break;
        }
    }
    assert_eq!(model.done.len(), model.sessions.len(), "every job has its result");
    let cursors: Vec<_> = model.sessions.keys().map(|id| (id.clone(), 0)).collect();
    for some in cursors.chunks(500) {
        let rows = board.follow(some.to_vec(), 9).await.unwrap();
        assert_eq!(rows.len(), some.len(), "one result each");
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn random_steps_in_memory_keep_every_invariant() {
    let lab = Lab::memory();
    walk(&lab, number("TAKOPI_MODEL_STEPS", 10_000), number("TAKOPI_MODEL_SEED", 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_steps_on_postgresql_keep_every_invariant() {
    let Some(lab) = Lab::pg().await else { return };
    walk(&lab, number("TAKOPI_MODEL_STEPS", 3_000), number("TAKOPI_MODEL_SEED", 2)).await;
}
