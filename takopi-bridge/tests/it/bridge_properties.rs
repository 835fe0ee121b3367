//! Whatever people do and however the chat behaves: one run at a time on a session, in order, and
//! every job ends in exactly one report.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::support::{Run, Runs, lab, settle};
use proptest::prelude::*;
use takopi_bridge::testing::{Room, RoomFault};
use takopi_bridge::{
    Bridge, Continuity, Incoming, JobEnd, JobHandle, JobId, Limits, Place, Router, Settings,
};
use tokio::time::sleep;

/// What people and engines do; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Act {
    Say { place: u8, reply_to: Option<usize> },
    Cancel(usize),
    Start(usize),
    End(usize),
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let say = (0..3_u8, proptest::option::of(any::<usize>()))
        .prop_map(|(place, reply_to)| Act::Say { place, reply_to });
    let act = prop_oneof![
        3 => say,
        1 => any::<usize>().prop_map(Act::Cancel),
        2 => any::<usize>().prop_map(Act::Start),
        2 => any::<usize>().prop_map(Act::End),
        1 => (0..10_000_u64).prop_map(Act::Wait),
    ];
    proptest::collection::vec(act, 0..60)
}

fn faults() -> impl Strategy<Value = Option<(usize, RoomFault)>> {
    let fault = prop_oneof![
        Just(RoomFault::Fail),
        Just(RoomFault::Hang),
        Just(RoomFault::RateLimit(Duration::from_secs(20))),
    ];
    proptest::option::of((1..6_usize, fault))
}

struct World {
    bridge: Bridge<Room>,
    runs: Runs,
    /// Runs that go on, and whether they have begun their session.
    going: Vec<(Run, bool)>,
    jobs: Vec<JobHandle>,
    /// What was asked, in order: the prompt is the number of the message.
    asked: Vec<(Place, JobId)>,
    sessions: usize,
    /// The prompts that ran on each session, in order of their begin.
    ran: BTreeMap<String, Vec<usize>>,
    begun: Vec<usize>,
}

impl World {
    async fn look(&mut self) {
        settle().await;
        while !self.runs.is_empty() {
            let run = self.runs.next().await;
            let prompt: usize = run.request.prompt.parse().unwrap();
            self.begun.push(prompt);
            if let Some(session) = &run.request.resume {
                let same = |other: &&(Run, bool)| {
                    other.0.session().as_ref() == Some(session) && !other.0.is_dropped()
                };
                assert!(self.going.iter().find(same).is_none(), "two runs on {}", session.value);
                self.ran.entry(session.value.clone()).or_default().push(prompt);
            }
            let resumed = run.request.resume.is_some();
            self.going.push((run, resumed));
        }
        self.going.retain(|(run, _)| !run.is_dropped());
    }

    fn start(&mut self, n: usize) {
        let (run, has_session) = &mut self.going[n];
        if !*has_session {
            *has_session = true;
            self.sessions += 1;
            let name = format!("s{}", self.sessions);
            run.started(&name);
            self.ran.entry(name).or_default().push(run.request.prompt.parse().unwrap());
        }
    }

    fn end(&mut self, n: usize) {
        let (run, _) = self.going.swap_remove(n);
        run.done("done");
    }

    async fn act(&mut self, act: &Act) {
        let going = self.going.len();
        match act {
            Act::Say { place, reply_to } => {
                let place = Place::new(format!("place {place}"));
                let number = self.asked.len();
                let mut message =
                    Incoming::new(place.clone(), number.to_string(), number.to_string());
                let here = || self.asked.iter().enumerate().filter(|(_, it)| it.0 == place);
                if let Some(n) = reply_to
                    && here().count() > 0
                {
                    let other = here().nth(n % here().count()).unwrap().0;
                    message = message.replying_to(other.to_string());
                }
                if let Ok(job) = self.bridge.receive(message) {
                    self.asked.push((place, job.id));
                    self.jobs.push(job);
                }
            }
            Act::Cancel(n) if !self.asked.is_empty() => {
                let job = self.asked[n % self.asked.len()].1;
                self.bridge.cancel(job, Some("alice"));
            }
            Act::Start(n) if going > 0 => self.start(n % going),
            Act::End(n) if going > 0 => self.end(n % going),
            Act::Wait(length) => sleep(Duration::from_millis(*length)).await,
            Act::Cancel(_) | Act::Start(_) | Act::End(_) => {}
        }
        self.look().await;
    }
}

async fn play(
    acts: &[Act],
    faults: Option<(usize, RoomFault)>,
    continuity: Continuity,
    limits: Limits,
) {
    let (lab, runs) = lab();
    let room = Room::new();
    if let Some((nth, fault)) = faults {
        room.set_faults(move |call| (call.number % nth == 0).then_some(fault));
    }
    let settings = Settings::default().continuity(continuity).limits(limits);
    let bridge = Bridge::new(room.clone(), Router::new(lab), settings);
    let mut world = World {
        bridge,
        runs,
        going: Vec::new(),
        jobs: Vec::new(),
        asked: Vec::new(),
        sessions: 0,
        ran: BTreeMap::new(),
        begun: Vec::new(),
    };
    for act in acts {
        world.act(act).await;
    }
    while !world.going.is_empty() {
        world.end(0);
        world.look().await;
    }
    world.bridge.drain().await;
    assert!(world.bridge.jobs().is_empty());

    for (session, prompts) in &world.ran {
        assert!(prompts.is_sorted(), "{session} ran out of order: {prompts:?}");
    }
    let mut ends = HashMap::new();
    for (number, job) in world.jobs.into_iter().enumerate() {
        let report = job.report().await;
        assert_eq!(report.job, world.asked[number].1);
        ends.insert(number, report.end);
    }
    for (number, end) in &ends {
        let begun = world.begun.iter().filter(|prompt| *prompt == number).count();
        match end {
            JobEnd::Ran(_) => assert_eq!(begun, 1, "message {number} ran {begun} times"),
            JobEnd::CancelledInQueue => assert_eq!(begun, 0, "message {number} was cancelled"),
            other => panic!("message {number}: {other:?}"),
        }
    }
    assert_eq!(ends.len(), world.asked.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn one_run_at_a_time_in_order_and_one_report_each(
        acts in acts(),
        faults in faults(),
        by_place in any::<bool>(),
        workers in 1..4_usize,
        waiting in 1..10_usize,
    ) {
        let continuity = if by_place { Continuity::Place } else { Continuity::Reply };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(&acts, faults, continuity, Limits::new(workers, waiting)));
    }
}
