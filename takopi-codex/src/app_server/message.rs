//! What is particular to the messages of an app-server: its turns, and the addresses of messages.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use takopi_core::jsonl::Object;

use super::address::{Address, Id};
use crate::common::Read;

/// The result of `turn/start`: the id of the turn.
pub(super) struct TurnStarted(pub(super) String);

impl<'de> Deserialize<'de> for TurnStarted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let result = Box::<RawValue>::deserialize(deserializer)?;
        started_turn(&result).map(Self).ok_or_else(|| D::Error::custom("it names no turn"))
    }
}

/// The turn that a result of `turn/start` names.
pub(super) fn started_turn(result: &RawValue) -> Option<String> {
    Object::of(result).object("turn").text("id")
}

/// The address of a message, which is read before anything else.
pub(super) fn address_of(params: &RawValue) -> Address<'_> {
    match serde_json::from_str::<Read<Address<'_>>>(params.get()) {
        Ok(Read(address)) => address.unwrap_or_default(),
        Err(_) => Address { thread: Id::Unreadable, ..Address::default() },
    }
}
