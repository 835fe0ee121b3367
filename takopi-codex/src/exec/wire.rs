//! The lines that `codex exec --json` prints.

use std::borrow::Cow;

use serde::de::MapAccess;
use takopi_core::jsonl::NotJsonError;
use takopi_core::model::Phase;

use crate::common::{Body, Figures, Item, Read, Tolerant, first, next_key, skip};
use crate::failure::Fault;

/// One line.
#[derive(Debug)]
pub(super) enum Line<'a> {
    ThreadStarted {
        id: Cow<'a, str>,
    },
    TurnStarted,
    Item {
        phase: Phase,
        item: Item<'a>,
    },
    TurnCompleted {
        usage: Option<Figures>,
    },
    TurnFailed {
        fault: Fault<'a>,
    },
    /// A notice that Codex reconnects, or what `turn.failed` is about to repeat.
    Error {
        fault: Fault<'a>,
    },
    /// JSON of an unknown type.
    Unknown {
        kind: Cow<'a, str>,
    },
}

impl<'a> Line<'a> {
    /// Reads a line, in one pass. Only what is not JSON is an error.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, NotJsonError> {
        // Checked once as a whole, not string by string.
        let text = std::str::from_utf8(line).map_err(|_| NotJsonError)?;
        let Read(line) = serde_json::from_str(text).map_err(|_| NotJsonError)?;
        Ok(line.unwrap_or(Self::Unknown { kind: Cow::Borrowed("") }))
    }

    /// Whether it shows that the turn has begun. Errors are reported before it, too.
    pub(super) fn is_of_turn(&self) -> bool {
        match self {
            Self::Item { item, .. } => !matches!(item.body, Body::Error { .. }),
            Self::TurnStarted | Self::TurnCompleted { .. } => true,
            Self::ThreadStarted { .. }
            | Self::TurnFailed { .. }
            | Self::Error { .. }
            | Self::Unknown { .. } => false,
        }
    }
}

impl<'de> Tolerant<'de> for Line<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut kind: Option<Cow<'de, str>> = None;
        let mut thread: Option<Cow<'de, str>> = None;
        let mut item: Option<Item<'de>> = None;
        let mut usage: Option<Figures> = None;
        let mut error: Option<Fault<'de>> = None;
        let mut message: Option<Cow<'de, str>> = None;
        while let Some(key) = next_key(object)? {
            match &*key {
                "type" => first(&mut kind, object)?,
                "thread_id" => first(&mut thread, object)?,
                "item" => first(&mut item, object)?,
                "usage" => first(&mut usage, object)?,
                "error" => first(&mut error, object)?,
                "message" => first(&mut message, object)?,
                _ => skip(object)?,
            }
        }
        let kind = kind.unwrap_or_default();
        let phase = match &*kind {
            "item.started" => Some(Phase::Started),
            "item.updated" => Some(Phase::Updated),
            "item.completed" => Some(Phase::Completed),
            _ => None,
        };
        let fault = || error.or(message.map(Fault::new)).unwrap_or_default();
        Ok(Some(match (&*kind, phase, item, thread) {
            (_, Some(phase), Some(item), _) => Self::Item { phase, item },
            ("thread.started", _, _, Some(id)) => Self::ThreadStarted { id },
            ("turn.started", ..) => Self::TurnStarted,
            ("turn.completed", ..) => Self::TurnCompleted { usage },
            ("turn.failed", ..) => Self::TurnFailed { fault: fault() },
            ("error", ..) => Self::Error { fault: fault() },
            _ => Self::Unknown { kind },
        }))
    }
}
