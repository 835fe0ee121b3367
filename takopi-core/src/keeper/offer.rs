//! How a run gets a seat: it waits visibly, and can be stopped.

use thiserror::Error;

use super::{Blocked, Keeper, Offer, Server};
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
        loop {
            match waiter.try_offer(&fits) {
                Ok(offer) => return Ok(offer),
                Err(Blocked::Session) => {
                    if run.wait_for_session_until(drained, waiter.changed()).await?.is_none() {
                        let error = format!("the session is held by {drained}");
                        return Err(OfferError::Busy(RunError::new(Reason::SessionBusy, error)));
                    }
                }
                Err(_) => tokio::select! {
                    biased;
                    () = run.stop().cancelled() => return Err(StoppedError.into()),
                    () = waiter.changed() => {}
                },
            }
        }
    }
}
