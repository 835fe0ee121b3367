//! Open sets of keywords: enums to match on that keep keywords unknown to this version.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines an enum that is a string on the wire and keeps unknown strings as they came.
macro_rules! open_keywords {
    (
        $(#[$meta:meta])*
        $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $keyword:literal, )* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$vmeta])* $variant, )*
            /// A keyword this version does not know; it survives a round trip.
            Other(String),
        }

        impl $name {
            /// Every keyword this version knows, in the order of the specification.
            pub const KNOWN: &'static [Self] = &[$( Self::$variant, )*];

            /// The keyword on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $keyword, )*
                    Self::Other(keyword) => keyword,
                }
            }
        }

        impl From<&str> for $name {
            fn from(keyword: &str) -> Self {
                match keyword {
                    $( $keyword => Self::$variant, )*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let keyword = Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self::from(keyword.as_ref()))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "examples": [$( $keyword ),*] })
            }
        }
    };
}

open_keywords! {
    /// What an action is.
    ActionKind {
        /// A shell command of the agent.
        Command = "command",
        /// A call of a tool, such as an MCP tool.
        Tool = "tool",
        /// Files added, changed or removed.
        FileChange = "file_change",
        /// A search on the web.
        WebSearch = "web_search",
        /// Work handed to another agent.
        Subagent = "subagent",
        /// Text beside the answer: commentary, reasoning, a plan, waiting.
        Note = "note",
        /// A message of the agent while it is written, for runs that ask for it: what it becomes, the
        /// answer or a remark, shows only later.
        Answer = "answer",
        /// The engine began a turn.
        Turn = "turn",
        /// Something went wrong but the run goes on.
        Warning = "warning",
        /// Figures for machines, such as rate limits.
        Telemetry = "telemetry",
        /// The agent asked for approval, and how it was decided.
        Approval = "approval",
    }
}

impl ActionKind {
    /// Whether an action of this kind is work that may rightly be silent for long, so that the idle
    /// limit waits for it.
    pub fn is_tool(&self) -> bool {
        matches!(
            self,
            Self::Command | Self::Tool | Self::FileChange | Self::WebSearch | Self::Subagent
        )
    }
}

open_keywords! {
    /// Why a run is not ok, for machines.
    Reason {
        /// Cancelled by the caller or by the engine's user.
        Interrupted = "interrupted",
        /// The engine sent nothing for the idle limit.
        TimeoutIdle = "timeout_idle",
        /// The run took longer than the wall-clock limit.
        TimeoutWall = "timeout_wall",
        /// Another holder kept the session for longer than `wait`.
        SessionBusy = "session_busy",
        /// The engine knows no such session.
        SessionNotFound = "session_not_found",
        /// The engine is not logged in, or its login was refused.
        Auth = "auth",
        /// The account's quota is used up.
        UsageLimit = "usage_limit",
        /// Too many requests for the moment.
        RateLimit = "rate_limit",
        /// The model's service has no room for the moment.
        Overloaded = "overloaded",
        /// The conversation no longer fits the model.
        ContextTooLong = "context_too_long",
        /// The engine reported that the turn failed.
        EngineFailed = "engine_failed",
        /// The engine's process ended before the turn did.
        ProcessDied = "process_died",
        /// There is no such program, or it cannot be executed.
        EngineMissing = "engine_missing",
        /// The engine's version is below the minimum.
        EngineTooOld = "engine_too_old",
        /// The engine could not be started.
        SpawnFailed = "spawn_failed",
        /// The engine sent something that its protocol does not allow.
        Protocol = "protocol",
        /// The consumer stopped reading and the shared engine could not wait.
        ConsumerStalled = "consumer_stalled",
        /// The request cannot be run as it is: a missing directory or image, a malformed token, an
        /// option the engine does not have.
        InvalidRequest = "invalid_request",
        /// The session's lock was lost while the run held it.
        LockLost = "lock_lost",
        /// The machine that ran it is gone.
        WorkerLost = "worker_lost",
        /// No machine could run it.
        NoWorker = "no_worker",
        /// Too many runs were waiting.
        QueueFull = "queue_full",
    }
}
