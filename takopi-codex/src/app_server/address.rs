//! Which thread and turn a message is about: read before anything else, in one pass.
//!
//! An id that is there but is no text is unreadable, and a message with an unreadable id belongs to
//! no turn. Ids that stand inside `item` only are read from there.

use std::borrow::Cow;

use serde::de::MapAccess;
use serde_json::value::RawValue;

use crate::common::{Read, Tolerant, first, next_key, skip};

/// The id of a thread or of a turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Id<'a> {
    #[default]
    Absent,
    Known(Cow<'a, str>),
    /// There is something, but it is no id.
    Unreadable,
}

impl<'a> Id<'a> {
    fn read(raw: &'a RawValue) -> Self {
        match raw.get().as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<Read<Cow<'a, str>>>(raw.get()) {
                Ok(Read(Some(id))) if !id.is_empty() => Self::Known(id),
                _ => Self::Unreadable,
            },
            Some(b'n') => Self::Absent,
            _ => Self::Unreadable,
        }
    }

    /// The id of an object, or the text that stands in its place.
    fn of_object(raw: &'a RawValue) -> Self {
        match serde_json::from_str::<Read<Named<'a>>>(raw.get()) {
            Ok(Read(Some(Named(id)))) => id,
            _ => Self::read(raw),
        }
    }

    fn or(self, other: Self) -> Self {
        if self == Self::Absent { other } else { self }
    }

    /// The id, if there is one that can be read.
    pub(super) fn known(&self) -> Option<&str> {
        match self {
            Self::Known(id) => Some(id),
            Self::Absent | Self::Unreadable => None,
        }
    }

    pub(super) fn into_known(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Known(id) => Some(id),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// An object with an id.
struct Named<'a>(Id<'a>);

impl<'de> Tolerant<'de> for Named<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let mut id = Id::Absent;
        while let Some(key) = next_key(&mut object)? {
            match &*key {
                "id" => id = id.or(Id::read(object.next_value()?)),
                _ => skip(&mut object)?,
            }
        }
        Ok(Some(Self(id)))
    }
}

/// The ids in a message that show where it belongs.
#[derive(Debug, Default)]
pub(super) struct Address<'a> {
    pub(super) thread: Id<'a>,
    pub(super) turn: Id<'a>,
    /// The parent of the thread, in `thread/started` of a sub-agent.
    pub(super) parent: Option<Cow<'a, str>>,
    pub(super) item: Option<ItemAddress<'a>>,
}

/// The threads that an item names.
#[derive(Debug, Default)]
pub(super) struct ItemAddress<'a> {
    thread: Id<'a>,
    turn: Id<'a>,
    pub(super) kind: Option<Cow<'a, str>>,
    /// What was done with sub-agents: the tool that was called, or the kind of activity.
    tool: Option<Cow<'a, str>>,
    activity: Option<Cow<'a, str>>,
    sender: Option<Cow<'a, str>>,
    receivers: Option<Vec<Cow<'a, str>>>,
    agent: Option<Cow<'a, str>>,
}

impl ItemAddress<'_> {
    /// The threads of sub-agents that the item reports as started.
    pub(super) fn started_agents(&self) -> impl Iterator<Item = &str> {
        let tool = self.tool.as_deref().unwrap_or_default();
        let spawned = matches!(tool, "spawnAgent" | "spawn_agent" | "resumeAgent" | "resume_agent");
        let receivers = self.receivers.iter().flatten().filter(move |_| spawned);
        let started = self.activity.as_deref() == Some("started");
        let agent = self.agent.iter().filter(move |_| started);
        receivers.chain(agent).map(|thread| &**thread)
    }

    /// The thread that started them, if the item names it.
    pub(super) fn starter(&self) -> Option<&str> {
        self.sender.as_deref()
    }

    pub(super) fn is_patch(&self) -> bool {
        matches!(self.kind.as_deref(), Some("fileChange" | "file_change"))
    }
}

impl<'de> Tolerant<'de> for Address<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut address = Self::default();
        let (mut thread, mut turn): (Option<&RawValue>, Option<&RawValue>) = (None, None);
        while let Some(key) = next_key(object)? {
            match &*key {
                // `conversationId` in requests of version 1 of the protocol.
                "threadId" | "conversationId" => {
                    address.thread = address.thread.or(Id::read(object.next_value()?));
                }
                "turnId" => address.turn = address.turn.or(Id::read(object.next_value()?)),
                "thread" => {
                    let value = object.next_value()?;
                    thread.get_or_insert(value);
                }
                "turn" => {
                    let value = object.next_value()?;
                    turn.get_or_insert(value);
                }
                "item" => first(&mut address.item, object)?,
                _ => skip(object)?,
            }
        }
        if let Some(thread) = thread {
            address.thread = address.thread.or(Id::of_object(thread));
            address.parent = match serde_json::from_str::<Read<Parent<'de>>>(thread.get()) {
                Ok(Read(parent)) => parent.map(|Parent(id)| id),
                Err(_) => None,
            };
        }
        if let Some(turn) = turn {
            address.turn = address.turn.or(Id::of_object(turn));
        }
        if let Some(item) = &mut address.item {
            address.thread = address.thread.or(std::mem::take(&mut item.thread));
            address.turn = address.turn.or(std::mem::take(&mut item.turn));
        }
        Ok(Some(address))
    }
}

impl<'de> Tolerant<'de> for ItemAddress<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut item = Self::default();
        while let Some(key) = next_key(object)? {
            match &*key {
                "type" => first(&mut item.kind, object)?,
                "threadId" => item.thread = item.thread.or(Id::read(object.next_value()?)),
                "turnId" => item.turn = item.turn.or(Id::read(object.next_value()?)),
                "tool" => first(&mut item.tool, object)?,
                "kind" => first(&mut item.activity, object)?,
                "senderThreadId" => first(&mut item.sender, object)?,
                "receiverThreadIds" => first(&mut item.receivers, object)?,
                "agentThreadId" => first(&mut item.agent, object)?,
                _ => skip(object)?,
            }
        }
        Ok(Some(item))
    }
}

/// The parent of a thread: as such, or in the source of a thread that an agent spawned.
struct Parent<'a>(Cow<'a, str>);

impl<'de> Tolerant<'de> for Parent<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let mut parent: Option<Cow<'de, str>> = None;
        while let Some(key) = next_key(&mut object)? {
            match &*key {
                "parentThreadId" | "parent_thread_id" => first(&mut parent, &mut object)?,
                "source" | "subAgent" | "thread_spawn" => {
                    let Read(inner) = object.next_value::<Read<Self>>()?;
                    parent = parent.or(inner.map(|Self(id)| id));
                }
                _ => skip(&mut object)?,
            }
        }
        Ok(parent.map(Self))
    }
}

/// Whether messages of this method are about a thread, so that one which names none belongs to no turn.
pub(super) fn is_of_a_thread(method: &str) -> bool {
    let prefix = method.split_once('/').map_or(method, |(prefix, _)| prefix);
    matches!(prefix, "item" | "turn" | "thread" | "hook" | "error" | "serverRequest")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Address<'_> {
        serde_json::from_str::<Read<Address<'_>>>(json).unwrap().0.unwrap_or_default()
    }

    #[test]
    fn a_message_is_addressed_by_thread_and_turn() {
        for (json, thread, turn) in [
            (r#"{"threadId":"t","turn":{"id":"u","items":[]}}"#, Some("t"), Some("u")),
            (r#"{"thread":{"id":"t"}}"#, Some("t"), None),
            (r#"{"conversationId":"t"}"#, Some("t"), None),
            (r#"{"threadId":null,"turn":null}"#, None, None),
            (r#"{"item":{"threadId":"t","turnId":"u"}}"#, Some("t"), Some("u")),
            (r#"{"item":{"threadId":"x"},"threadId":"t"}"#, Some("t"), None),
            (r#"{"threadId":"t","turn":"u"}"#, Some("t"), Some("u")),
            ("[1]", None, None),
            ("null", None, None),
        ] {
            let address = of(json);
            assert_eq!((address.thread.known(), address.turn.known()), (thread, turn), "{json}");
            assert!(address.thread != Id::Unreadable && address.turn != Id::Unreadable, "{json}");
        }
    }

    #[test]
    fn an_id_that_is_no_text_is_unreadable() {
        for json in
            [r#"{"threadId":7}"#, r#"{"threadId":{}}"#, r#"{"thread":[]}"#, r#"{"threadId":""}"#]
        {
            assert_eq!(of(json).thread, Id::Unreadable, "{json}");
        }
        for json in [r#"{"turnId":7}"#, r#"{"turn":true}"#, r#"{"turn":{"id":1}}"#] {
            assert_eq!(of(json).turn, Id::Unreadable, "{json}");
        }
    }

    #[test]
    fn the_parent_of_a_sub_agent_is_read_wherever_it_stands() {
        for json in [
            r#"{"thread":{"id":"c","parentThreadId":"p"}}"#,
            r#"{"thread":{"id":"c","source":{"subAgent":{"thread_spawn":{"parent_thread_id":"p"}}}}}"#,
        ] {
            assert_eq!(of(json).parent.as_deref(), Some("p"), "{json}");
        }
        assert_eq!(
            of(r#"{"thread":{"id":"c","source":"cli","parentThreadId":null}}"#).parent,
            None
        );
        let spawned = of(
            r#"{"item":{"type":"collabAgentToolCall","tool":"spawnAgent","senderThreadId":"p","receiverThreadIds":["c"]}}"#,
        );
        let item = spawned.item.unwrap();
        assert_eq!(item.started_agents().collect::<Vec<_>>(), ["c"]);
        assert_eq!(item.starter(), Some("p"));
        let address = of(
            r#"{"item":{"type":"collabAgentToolCall","tool":"sendInput","senderThreadId":"c","receiverThreadIds":["p"]}}"#,
        );
        assert_eq!(address.item.unwrap().started_agents().count(), 0, "a message starts no agent");
    }
}
