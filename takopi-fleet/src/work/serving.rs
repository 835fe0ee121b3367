//! One worker's life, from its registration to the end of its lease: claims, passes requests on, and waits for what runs.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use takopi_core::runner::STOP_LIMIT;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::beat::Pulse;
use super::lease::Lease;
use super::rest::Rest;
use super::turn::{Ended, Handle, Said, Turn};
use super::{LOOK, Worker};
use crate::board::{
    Bell, Board, Claimed, ControlKind, Held, Listener, PendingControl, Retention, Ring,
};

const CLEAN: Duration = Duration::from_mins(1);

/// Why a time of serving ended.
pub(super) enum Over {
    /// It was told to stop, and has.
    Stopped,
    /// Its lease was lost.
    Lost,
    /// An engine has another version than it said, and nothing runs any more.
    Changed,
}

/// One worker's life.
pub(super) struct Serving {
    worker: Arc<Worker>,
    id: String,
    lease: Arc<Lease>,
    pulse: Pulse,
    runs: HashMap<Held, Handle>,
    turns: JoinSet<(Held, Ended)>,
    /// Turns that had begun and ended, and when, by [`Lease::now`]: the board may not know of their end.
    ended: HashMap<Held, u64>,
    rest: Rest,
    /// The claim whose answer is not known.
    claim: Option<String>,
    /// When the last claim was answered, by [`Lease::now`].
    answered: u64,
    /// What it said when it registered.
    versions: Arc<BTreeMap<String, u64>>,
    /// Fires when that is not true any more.
    changed: CancellationToken,
}

impl Serving {
    pub(super) fn new(
        worker: Arc<Worker>,
        id: String,
        lease: Arc<Lease>,
        versions: BTreeMap<String, u64>,
    ) -> Self {
        let (board, length) = (worker.board.clone(), worker.options.lease);
        let pulse = Pulse::start(board, id.clone(), length, lease.clone());
        Self {
            worker,
            id,
            lease,
            pulse,
            runs: HashMap::new(),
            turns: JoinSet::new(),
            ended: HashMap::new(),
            rest: Rest::default(),
            claim: None,
            answered: 0,
            versions: Arc::new(versions),
            changed: CancellationToken::new(),
        }
    }

    pub(super) async fn run(mut self, stop: &CancellationToken) -> Over {
        let (lost, board) = (self.pulse.lost.clone(), self.worker.board.clone());
        let tidy = self.worker.kept.clone().tidy(self.worker.options.keep_unused);
        // Around everything: no call to the board is waited for when the lease is over.
        let over = tokio::select! {
            biased;
            () = lost.cancelled() => Over::Lost,
            over = self.work(stop) => over,
            never = clean(&*board) => match never {},
            never = tidy => match never {},
        };
        if matches!(over, Over::Lost) {
            self.stopped().await;
        }
        over
    }

    /// Serves until it has stopped, or must register again.
    async fn work(&mut self, stop: &CancellationToken) -> Over {
        let board = self.worker.board.clone();
        // What this machine's worker before held is free now.
        self.reap().await;
        let mut rings = board.listen(Listener::Worker(self.id.clone()));
        let (mut look, mut end_of_grace) = (true, None);
        loop {
            let draining = self.pulse.draining.is_cancelled();
            if look && !draining && !self.changed.is_cancelled() {
                self.claim().await;
                look = false;
            }
            self.pulse.set_busy(self.runs.len());
            if self.changed.is_cancelled() && self.runs.is_empty() && !draining {
                return Over::Changed;
            }
            if draining && self.runs.is_empty() {
                self.pulse.stop();
                // So that nobody waits for the lease.
                let _ = board.beat(&self.id, Duration::ZERO, 0, true).await;
                return Over::Stopped;
            }
            tokio::select! {
                biased;
                () = stop.cancelled(), if !draining => {
                    self.pulse.draining.cancel();
                    end_of_grace = Some(Instant::now() + self.worker.options.grace);
                }
                () = moment(end_of_grace), if end_of_grace.is_some() => {
                    end_of_grace = None;
                    self.runs.values().for_each(Handle::hand_back);
                }
                Some(ended) = self.turns.join_next() => {
                    if let Ok((held, ended)) = ended {
                        self.ended(held, &ended);
                    }
                    look = true;
                }
                changed = self.pulse.answers.changed() => match changed {
                    Ok(()) => {
                        self.beaten().await;
                        look = true;
                    }
                    // Nobody keeps the lease any more.
                    Err(_) => self.pulse.lost.cancel(),
                },
                ring = rings.recv() => match ring {
                    Some(Ring::Control) => self.controls().await,
                    Some(Ring::Everything) => {
                        self.controls().await;
                        look = true;
                    }
                    Some(_) => look = true,
                    None => sleep(LOOK).await,
                },
                () = sleep(LOOK) => look = true,
            }
        }
    }

    fn ended(&mut self, held: Held, ended: &Ended) {
        self.runs.remove(&held);
        self.rest.ended(ended, Instant::now());
        if ended.begun {
            self.ended.insert(held, Lease::now());
        }
    }

    /// Claims for the free slots. A claim that was not answered keeps its name, and is asked again at the next look.
    async fn claim(&mut self) {
        if self.rest.lasts(Instant::now()) {
            return;
        }
        let busy = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let free = self.worker.options.slots.saturating_sub(busy);
        if free == 0 {
            return;
        }
        let claim = self.claim.get_or_insert_with(|| Uuid::new_v4().simple().to_string()).clone();
        match self.worker.board.claim(&self.id, &claim, free).await {
            Ok(claimed) => {
                (self.claim, self.answered) = (None, Lease::now());
                for claimed in claimed {
                    self.begin(claimed);
                }
            }
            Err(error) => tracing::debug!("cannot claim: {error}"),
        }
    }

    fn begin(&mut self, claimed: Claimed) {
        let held = claimed.held.clone();
        if self.runs.contains_key(&held) {
            return;
        }
        let said = Said { versions: self.versions.clone(), changed: self.changed.clone() };
        let (worker, lease) = (self.worker.clone(), self.lease.clone());
        let (turn, handle) =
            Turn::new(worker, self.id.clone(), lease, said, claimed, &self.pulse.lost);
        self.runs.insert(held.clone(), handle);
        self.turns.spawn(async move {
            // A turn that panics has ended as others do: its slot is free, and its job is handed back.
            let ended = AssertUnwindSafe(turn.run()).catch_unwind().await;
            let ended = ended.unwrap_or_else(|_| {
                tracing::error!("the turn of job {} panicked", held.job);
                Ended { begun: true, unfit: false }
            });
            (held, ended)
        });
    }

    /// A beat was answered: cuts what the board says is not held. What it says is held, and nothing here runs, is handed back:
    /// nobody else would.
    async fn beaten(&mut self) {
        let Some(beat) = self.pulse.answers.borrow_and_update().clone() else { return };
        for (own, handle) in &self.runs {
            if !beat.held.contains(own) && handle.is_older_than(beat.sent) {
                handle.cut();
            }
        }
        self.ended.retain(|held, at| *at >= beat.sent || beat.held.contains(held));
        // Otherwise it may be what a claim took whose answer was not there yet.
        let known = self.claim.is_none() && self.answered < beat.sent;
        let board = self.worker.board.clone();
        for held in beat.held.into_iter().filter(|held| known && !self.runs.contains_key(held)) {
            tracing::warn!("job {} is held and does not run: handed back", held.job);
            let begun = self.ended.contains_key(&held);
            if let Err(error) = board.hand_back(&self.id, held, begun).await {
                tracing::debug!("cannot hand back: {error}");
            }
            board.ring(Bell::Work);
        }
        self.reap().await;
        self.controls().await;
        if self.worker.versions().await != *self.versions {
            self.changed.cancel();
        }
    }

    async fn reap(&self) {
        if let Err(error) = self.worker.board.reap().await {
            tracing::debug!("cannot reap: {error}");
        }
    }

    async fn controls(&mut self) {
        match self.worker.board.controls(&self.id).await {
            Ok(pending) => pending.into_iter().for_each(|control| self.pass(control)),
            Err(error) => tracing::debug!("cannot read requests: {error}"),
        }
    }

    fn pass(&self, control: PendingControl) {
        let Some(handle) = self.runs.get(&control.held) else { return };
        match control.kind {
            ControlKind::Cancel => handle.cancel(),
            ControlKind::Answer => handle.answer(control),
            ControlKind::Steer => handle.steer(control),
        }
    }

    /// The lease is over, and every run was cut by that: waits until nothing of them is left. Until then the worker does not
    /// register again, as that would give their sessions to others.
    async fn stopped(mut self) {
        // Most of the time until the board's lease is over too.
        let mut limit = self.worker.options.lease / 4;
        loop {
            let all = async { while self.turns.join_next().await.is_some() {} };
            if timeout(limit, all).await.is_ok() {
                return;
            }
            tracing::error!("runs did not stop in time; the worker waits for their end");
            if let Some(host) = self.worker.options.host.clone() {
                let _ = tokio::task::spawn_blocking(move || host.kill_now()).await;
            }
            limit = STOP_LIMIT;
        }
    }
}

/// Removes what is over, now and then, for all workers: who comes second finds nothing to do.
async fn clean(board: &dyn Board) -> Infallible {
    loop {
        sleep(CLEAN).await;
        loop {
            match board.gc(Retention::default(), false).await {
                Ok(removed) if removed.more => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!("cannot remove what is over: {error}");
                    break;
                }
            }
        }
    }
}

async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
