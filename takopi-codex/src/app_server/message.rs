//! What is particular to the messages of an app-server: its turns, and the addresses of messages.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::address::Address;
use crate::common::Read;

/// The result of `turn/start`.
#[derive(Deserialize)]
pub(super) struct TurnStarted {
    pub(super) turn: StartedTurn,
}

#[derive(Deserialize)]
pub(super) struct StartedTurn {
    pub(super) id: String,
}

/// The turn that a result of `turn/start` names.
pub(super) fn started_turn(result: &RawValue) -> Option<String> {
    let TurnStarted { turn } = serde_json::from_str(result.get()).ok()?;
    Some(turn.id)
}

/// The address of a message, which is read before anything else.
pub(super) fn address_of(params: &RawValue) -> Address<'_> {
    match serde_json::from_str::<Read<Address<'_>>>(params.get()) {
        Ok(Read(address)) => address.unwrap_or_default(),
        Err(_) => Address::default(),
    }
}
