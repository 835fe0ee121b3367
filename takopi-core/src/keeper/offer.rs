//! How a run gets a seat: it waits visibly, and can be stopped.

use thiserror::Error;

use super::{Blocked, Keeper, Offer, Server, Waiter};
use crate::locks::SessionKey;
use crate::model::Reason;
use crate::runner::{EngineRun, RunError, StoppedError};

/// Why a run has no seat.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The run was stopped.
    #[error(transparent)]
    Stopped(#[from] StoppedError),
    /// The session was not free within the request's `wait`.
    #[error(transparent)]
    Busy(RunError),
}

impl<S: Server> Keeper<S> {
    /// A seat for a run, or the permit to start a server for it. A session on a server that is drained
    /// is waited for like one that another process holds: visibly, with `drained` as the holder, and no
    /// longer than the request allows. A run that gets neither gives back the lease it was handed.
    pub async fn offer_to(
        &self,
        run: &EngineRun,
        key: Option<&SessionKey>,
        drained: &str,
        fits: impl Fn(&S, Option<&S::Session>) -> bool,
    ) -> Result<Offer<S>, OfferError> {
        let offered = self.await_offer(run, key, drained, fits).await;
        if offered.is_err() {
            // At once, so that the server is not drained: the session stays loaded.
            drop(run.keep_lease());
        }
        offered
    }

    async fn await_offer(
        &self,
        run: &EngineRun,
        key: Option<&SessionKey>,
        drained: &str,
        fits: impl Fn(&S, Option<&S::Session>) -> bool,
    ) -> Result<Offer<S>, OfferError> {
        let mut waiter = self.waiter(key);
        let mut offered = waiter.try_offer(&fits);
        loop {
            offered = match offered {
                Ok(offer) => return Ok(offer),
                Err(Blocked::Session) => {
                    let free = next_offer(&mut waiter, &fits, Blocked::Session);
                    let Some(offered) = run.wait_for_session_until(drained, free).await? else {
                        let error = format!("the session is held by {drained}");
                        return Err(OfferError::Busy(RunError::new(Reason::SessionBusy, error)));
                    };
                    offered
                }
                Err(Blocked::Room) => {
                    run.wait_for_room(next_offer(&mut waiter, &fits, Blocked::Room)).await?
                }
            }
        }
    }
}

/// Waits until the run is no longer blocked by this: one wait, however often others are served meanwhile.
async fn next_offer<S: Server>(
    waiter: &mut Waiter<'_, S>,
    fits: impl Fn(&S, Option<&S::Session>) -> bool,
    blocked: Blocked,
) -> Result<Offer<S>, Blocked> {
    loop {
        waiter.changed().await;
        match waiter.try_offer(&fits) {
            Err(still) if still == blocked => {}
            offered => return offered,
        }
    }
}
