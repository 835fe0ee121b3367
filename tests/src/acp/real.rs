//! The real agents, pinned, and installed once under `target/` by the tests themselves.
//!
//! When an agent cannot be had, a test prints `SKIPPED <test>: <reason>` and passes; with `TAKOPI_REQUIRE_ACP=1` it fails.
//! Tests on agents that are not in the core set run with `TAKOPI_TEST_ENGINES=all` only.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::command::run;
use crate::dirs::target_dir;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};
use crate::skip;

/// A real agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Real {
    /// opencode.
    Opencode,
    /// Qwen Code.
    Qwen,
    /// The adapter for codex.
    CodexAcp,
    /// The adapter for Claude Code.
    ClaudeAcp,
    /// Gemini CLI.
    Gemini,
    /// The adapter for pi, which is no preset: an agent as people bring one.
    PiAcp,
}

impl Real {
    /// The name of its preset, or of the engine that it is configured as.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opencode => "opencode",
            Self::Qwen => "qwen",
            Self::CodexAcp => "codex-acp",
            Self::ClaudeAcp => "claude-acp",
            Self::Gemini => "gemini",
            Self::PiAcp => "pi-acp",
        }
    }

    /// Whether its tests run without `TAKOPI_TEST_ENGINES=all`.
    pub fn is_core(self) -> bool {
        matches!(self, Self::Opencode | Self::Qwen | Self::CodexAcp)
    }

    /// The package that is installed.
    fn package(self) -> &'static str {
        match self {
            Self::Opencode => "opencode-ai@1.18.33",
            Self::Qwen => "@qwen-code/qwen-code@0.24.4",
            Self::CodexAcp => "@agentclientprotocol/codex-acp@2.6.0",
            Self::ClaudeAcp => "@agentclientprotocol/claude-agent-acp@0.99.1",
            Self::Gemini => "@google/gemini-cli@0.61.0",
            Self::PiAcp => "pi-acp@0.0.34",
        }
    }

    /// The places at which its program may be, below `node_modules`. opencode's own is linked by an installation script,
    /// which does not run.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Opencode => {
                &["opencode-linux-x64-baseline/bin/opencode", "opencode-linux-arm64/bin/opencode"]
            }
            Self::Qwen => &[".bin/qwen"],
            Self::CodexAcp => &[".bin/codex-acp"],
            Self::ClaudeAcp => &[".bin/claude-agent-acp"],
            Self::Gemini => &[".bin/gemini"],
            Self::PiAcp => &[".bin/pi-acp"],
        }
    }

    /// The call of its tool for commands.
    pub(super) fn shell(self, command: &str) -> (&'static str, Value) {
        let described = json!({ "command": command, "description": "run it" });
        match self {
            Self::Qwen => {
                let input =
                    json!({ "command": command, "description": "run it", "is_background": false });
                ("run_shell_command", input)
            }
            Self::Gemini => ("run_shell_command", described),
            Self::ClaudeAcp => ("Bash", described),
            Self::CodexAcp => ("exec_command", json!({ "cmd": command })),
            Self::Opencode => ("bash", described),
            Self::PiAcp => ("bash", json!({ "command": command })),
        }
    }

    /// What it calls the tool `echo` of the MCP server `lab`.
    pub(super) fn echo(self) -> &'static str {
        match self {
            Self::Opencode => "lab_echo",
            Self::Gemini => "mcp_lab_echo",
            _ => "mcp__lab__echo",
        }
    }

    /// A session id of its form that no session has.
    pub fn unknown_session(self) -> &'static str {
        match self {
            Self::Opencode => "ses_000000000000AAAAAAAAAAAAAA",
            _ => "00000000-0000-4000-8000-000000000000",
        }
    }

    /// Its program, installed now if it was not.
    pub fn program(self) -> anyhow::Result<PathBuf> {
        static FOUND: Mutex<BTreeMap<Real, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let found = found
            .entry(self)
            .or_insert_with(|| self.install().map_err(|error| format!("{error:#}")));
        found.clone().map_err(anyhow::Error::msg)
    }

    fn install(self) -> anyhow::Result<PathBuf> {
        let root = target_dir().join("takopi-acp");
        let version = self.package().rsplit('@').next().unwrap_or_default();
        let name = format!("{}-{version}", self.name());
        let installation =
            Installation { what: self.package(), root: &root, name: &name, ready: stamped };
        let fill = |place: &Path| {
            let mut npm = Command::new("npm");
            npm_install(&mut npm, place, self.package());
            run(npm, INSTALL_LIMIT)?;
            let places = self.programs().iter().map(|it| place.join("node_modules").join(it));
            let program = places.into_iter().find(|program| program.is_file());
            stamp(place, &program.context("the package has no program for this platform")?)
        };
        installation.get(&[("npm", &fill)])
    }

    /// [`Real::program`], for tests; `None` too if it is not of the core set, which is all that is to be tested.
    #[track_caller]
    pub fn program_or_skip(self) -> Option<PathBuf> {
        if !self.is_core() && !all_engines() {
            return None;
        }
        let what = format!("the real {}", self.name());
        skip::unless_found(&skip::test_name(), &what, "TAKOPI_REQUIRE_ACP", self.program())
    }
}

/// Whether the tests of all agents are to run, and not only the core set.
pub fn all_engines() -> bool {
    env::var_os("TAKOPI_TEST_ENGINES").is_some_and(|it| it == "all")
}
