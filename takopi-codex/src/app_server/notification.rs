//! The content of a notification: parsed once, in one pass over its parameters, for every consumer of
//! the turn.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::MapAccess;
use serde_json::Value;
use serde_json::value::RawValue;

use super::streams::Stream;
use super::usage::TokenUsage;
use takopi_core::jsonl::{Object, repair, value};
use takopi_core::rpc::RequestId;

use crate::common::{Item, Read, Step, Tolerant, first, next_key, skip};
use crate::failure::Fault;

/// A notification of the server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Notification {
    /// What it is about.
    pub method: String,
    /// Its parameters, as they came.
    pub params: Box<RawValue>,
    thread: Option<Box<str>>,
    turn: Option<Box<str>>,
    /// The parameters without what no parser takes, such as half a surrogate pair; made when it is needed.
    repaired: OnceLock<Option<Box<str>>>,
}

impl Notification {
    pub(super) fn new(method: String, params: Box<RawValue>) -> Self {
        Self { method, params, thread: None, turn: None, repaired: OnceLock::new() }
    }

    /// Takes the ids over from the address that was read of the parameters.
    pub(super) fn addressed(mut self, thread: Option<Box<str>>, turn: Option<Box<str>>) -> Self {
        (self.thread, self.turn) = (thread, turn);
        self
    }

    /// The thread it is about; `None` if it is about the server as a whole.
    pub fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// The turn it is about, if it names one.
    pub fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Its parameters in a type of the caller's choice.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        self.read(|json| serde_json::from_str(json))
    }

    /// Reads the parameters, and if they are not quite JSON once more behind a repair.
    fn read<'a, T>(&'a self, read: impl Fn(&'a str) -> serde_json::Result<T>) -> Option<T> {
        let repaired = || {
            let repair = || repair(self.params.get().as_bytes()).map(String::into_boxed_str);
            read(self.repaired.get_or_init(repair).as_deref()?).ok()
        };
        read(self.params.get()).ok().or_else(repaired)
    }

    /// Whether it reports figures, which may be those of an earlier turn.
    pub(super) fn is_usage(&self) -> bool {
        self.method == "thread/tokenUsage/updated"
    }

    /// Whether it is about a turn: it names one, or only turns have its kind.
    pub(super) fn is_of_a_turn(&self) -> bool {
        let of_turns = ["item/", "turn/", "error"];
        let is_of_turns = || of_turns.iter().any(|prefix| self.method.starts_with(prefix));
        !self.is_usage() && (self.turn.is_some() || is_of_turns())
    }

    pub(super) fn is_turn_end(&self) -> bool {
        self.method == "turn/completed"
    }

    /// Whether it is the end of a turn that did what was asked.
    pub(super) fn is_successful_end(&self) -> bool {
        matches!(self.kind(), Kind::TurnCompleted(Some(end)) if end.status == "completed")
    }

    /// Its content. Parses the parameters: to be called once.
    pub(super) fn kind(&self) -> Kind<'_> {
        let kind = self.read(|json| Kind::read(&self.method, json));
        // It still is what its method says, without parameters.
        kind.or_else(|| Kind::read(&self.method, "null").ok()).unwrap_or(Kind::Other)
    }

    /// The item it is about, with all its fields.
    pub(super) fn item(&self) -> Option<Value> {
        Object::of(&self.params).raw("item").map(value)
    }
}

/// The content of a notification.
#[derive(Debug)]
pub(super) enum Kind<'a> {
    TurnStarted,
    /// Nothing if the end cannot be read.
    TurnCompleted(Option<TurnEnd<'a>>),
    ItemStarted(Item<'a>),
    ItemCompleted(Item<'a>),
    /// A piece of text of an item, or for progress the whole text.
    Text {
        stream: Stream,
        item: Cow<'a, str>,
        text: Cow<'a, str>,
    },
    /// A piece of text that is not shown, or is unreadable: the agent goes on all the same.
    OtherText,
    Plan(Vec<Step<'a>>),
    TokenUsage {
        turn: Option<Cow<'a, str>>,
        usage: TokenUsage,
    },
    /// With all parameters.
    RateLimits(&'a str),
    Error(Fault<'a>),
    Warning(Option<Cow<'a, str>>),
    /// The server settled a request of its own.
    RequestResolved(RequestId),
    /// Nothing that anybody here looks at, or nothing that can be read.
    Other,
}

/// How a turn ended.
#[derive(Debug)]
pub(super) struct TurnEnd<'a> {
    pub(super) status: Cow<'a, str>,
    pub(super) error: Option<Fault<'a>>,
}

impl<'a> Kind<'a> {
    fn read(method: &'a str, json: &'a str) -> serde_json::Result<Self> {
        let text = |stream: Stream| {
            let Params { item_id, delta, message, .. } = Params::read(json)?;
            Ok(match (item_id, delta.or(message)) {
                (Some(item), Some(text)) => Self::Text { stream, item, text },
                _ if stream == Stream::Progress => Self::Other,
                _ => Self::OtherText,
            })
        };
        Ok(match method {
            "turn/started" => Self::TurnStarted,
            "turn/completed" => Self::TurnCompleted(Params::read(json)?.turn),
            "item/started" => Params::read(json)?.item.map_or(Self::Other, Self::ItemStarted),
            "item/completed" => Params::read(json)?.item.map_or(Self::Other, Self::ItemCompleted),
            "item/agentMessage/delta" => text(Stream::Message)?,
            "item/commandExecution/outputDelta" | "item/fileChange/outputDelta" => {
                text(Stream::Output)?
            }
            "item/mcpToolCall/progress" => text(Stream::Progress)?,
            "turn/plan/updated" => Params::read(json)?.plan.map_or(Self::Other, Self::Plan),
            "thread/tokenUsage/updated" => match Params::read(json)? {
                Params { token_usage: Some(usage), turn_id: turn, .. } => {
                    Self::TokenUsage { turn, usage }
                }
                _ => Self::Other,
            },
            "account/rateLimits/updated" => Self::RateLimits(json),
            "error" => Self::Error(Params::read(json)?.error.unwrap_or_default()),
            "warning" | "guardianWarning" | "configWarning" => {
                let Params { message, summary, .. } = Params::read(json)?;
                Self::Warning(message.or(summary))
            }
            "serverRequest/resolved" => {
                let id = Params::read(json)?.request_id;
                id.map_or(Self::Other, |id| Self::RequestResolved(RequestId::new(id)))
            }
            delta if delta.ends_with("elta") => Self::OtherText,
            _ => Self::Other,
        })
    }
}

/// The parameters that any of them has.
#[derive(Default)]
struct Params<'a> {
    item: Option<Item<'a>>,
    item_id: Option<Cow<'a, str>>,
    delta: Option<Cow<'a, str>>,
    message: Option<Cow<'a, str>>,
    summary: Option<Cow<'a, str>>,
    turn: Option<TurnEnd<'a>>,
    turn_id: Option<Cow<'a, str>>,
    token_usage: Option<TokenUsage>,
    plan: Option<Vec<Step<'a>>>,
    error: Option<Fault<'a>>,
    request_id: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    fn read(json: &'a str) -> serde_json::Result<Self> {
        let Read(params) = serde_json::from_str::<Read<Self>>(json)?;
        Ok(params.unwrap_or_default())
    }
}

impl<'de> Tolerant<'de> for Params<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut params = Self::default();
        while let Some(key) = next_key(object)? {
            match &*key {
                "item" => first(&mut params.item, object)?,
                "itemId" => first(&mut params.item_id, object)?,
                "delta" => first(&mut params.delta, object)?,
                "message" => first(&mut params.message, object)?,
                "summary" => first(&mut params.summary, object)?,
                "turn" => first(&mut params.turn, object)?,
                "turnId" => first(&mut params.turn_id, object)?,
                "tokenUsage" => first(&mut params.token_usage, object)?,
                "plan" => first(&mut params.plan, object)?,
                "error" => first(&mut params.error, object)?,
                "requestId" => {
                    let id = object.next_value()?;
                    params.request_id.get_or_insert(id);
                }
                _ => skip(object)?,
            }
        }
        Ok(Some(params))
    }
}

impl<'de> Tolerant<'de> for TurnEnd<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let (mut status, mut error): (Option<Cow<'de, str>>, Option<Fault<'de>>) = (None, None);
        while let Some(key) = next_key(&mut object)? {
            match &*key {
                "status" => first(&mut status, &mut object)?,
                "error" => first(&mut error, &mut object)?,
                _ => skip(&mut object)?,
            }
        }
        Ok(Some(Self { status: status.unwrap_or_default(), error }))
    }
}
