//! The router: finds the engine and the session of a message.
//!
//! A message names a session by a resume line, alone on its line, and an engine by a directive such
//! as `/codex` in front of the prompt or on a line of its own above it; `/codex@my_bot`, the form used
//! in chats with many bots, is the same. The first of these decides: a resume line in the message, a
//! resume line in the message it replies to, a directive, the default. Of many resume lines the last
//! one counts. A directive that names another engine than the session's is an error.
//!
//! Resume lines and directives are removed from the prompt. An empty prompt becomes `continue`; the bridge
//! refuses it where there is nothing to go on with. A `/name` that is no engine is part of the prompt, since people write paths.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use takopi_core::{EngineId, ResumeToken, Runner};

/// The prompt of a message that has only a resume line or a directive.
const CONTINUE: &str = "continue";

/// The runners of a bridge. See the [module](self) for how a message finds its runner.
///
/// ```
/// use std::sync::Arc;
/// use takopi_bridge::Router;
/// use takopi_core::demo::{DEMO, Demo};
///
/// let router = Router::new(Arc::new(Demo::new().runner()));
/// assert!(router.runner(&DEMO).is_some());
/// ```
#[derive(Clone)]
pub struct Router {
    default: Arc<dyn Runner>,
    others: Vec<Arc<dyn Runner>>,
}

/// The destination of a message.
#[derive(Clone)]
pub(crate) struct Route {
    /// The runner.
    pub(crate) runner: Arc<dyn Runner>,
    /// The session to resume; `None` for a new one.
    pub(crate) resume: Option<ResumeToken>,
    /// The rest of the message. Never empty.
    pub(crate) prompt: String,
    /// Whether the message has no prompt of its own.
    pub(crate) is_empty: bool,
    /// The engine that a directive in the message names.
    pub(crate) directive: Option<EngineId>,
}

/// Why a message has no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The directive names one engine, and the session belongs to another.
    #[error(
        "the message names {directive}, but its session belongs to {session}; remove /{directive}, \
         or send a new message without a resume line"
    )]
    OtherEngine {
        /// The engine of the directive.
        directive: EngineId,
        /// The engine of the session.
        session: EngineId,
    },
    /// Two directives name two engines.
    #[error("the message names two engines, {0} and {1}; name one")]
    TwoEngines(EngineId, EngineId),
}

impl Router {
    /// A router with a default runner, for messages that name no other.
    pub fn new(default: Arc<dyn Runner>) -> Self {
        Self { default, others: Vec::new() }
    }

    /// Adds a runner. It replaces an earlier runner of the same engine, even the default.
    pub fn with(mut self, runner: Arc<dyn Runner>) -> Self {
        let engine = runner.engine();
        let mut known = std::iter::once(&mut self.default).chain(&mut self.others);
        match known.find(|known| known.engine() == engine) {
            Some(known) => *known = runner,
            None => self.others.push(runner),
        }
        self
    }

    /// The runner of an engine.
    pub fn runner(&self, engine: &EngineId) -> Option<&Arc<dyn Runner>> {
        self.runners().find(|runner| runner.engine() == *engine)
    }

    /// All runners, the default first.
    pub fn runners(&self) -> impl Iterator<Item = &Arc<dyn Runner>> {
        std::iter::once(&self.default).chain(&self.others)
    }

    /// Finds the destination of a message. `replied_to` is the text of the message it replies to.
    pub(crate) fn route(&self, text: &str, replied_to: Option<&str>) -> Result<Route, RouteError> {
        let message = self.read(text)?;
        let directive = message.directive.map(|named| named.engine());
        let session = message.session.or_else(|| self.last_session(replied_to?));
        let (runner, resume) = match (session, message.directive) {
            (Some((owner, token)), None) => (owner, Some(token)),
            (Some((owner, token)), Some(named)) if named.engine() == owner.engine() => {
                (owner, Some(token))
            }
            (Some((owner, _)), Some(named)) => {
                let (directive, session) = (named.engine(), owner.engine());
                return Err(RouteError::OtherEngine { directive, session });
            }
            (None, named) => (named.unwrap_or(&self.default), None),
        };
        let is_empty = message.rest.is_empty();
        let prompt = if is_empty { CONTINUE.to_owned() } else { message.rest };
        Ok(Route { runner: Arc::clone(runner), resume, prompt, is_empty, directive })
    }

    /// Separates directives and resume lines from the prompt.
    ///
    /// A directive may come above a resume line or before it, as in `/codex codex resume <id>`, so both
    /// are removed from the beginning until neither is left.
    fn read(&self, text: &str) -> Result<Message<'_>, RouteError> {
        let mut session = self.last_session(text);
        let mut directive: Option<&Arc<dyn Runner>> = None;
        let lines = text.lines().filter(|line| self.session(line).is_none());
        let lines = lines.collect::<Vec<_>>().join("\n");
        let mut rest = lines.trim();
        loop {
            if let Some((named, end)) = self.directive(rest) {
                if let Some(earlier) = directive.replace(named)
                    && earlier.engine() != named.engine()
                {
                    return Err(RouteError::TwoEngines(earlier.engine(), named.engine()));
                }
                rest = rest[end..].trim_start();
                continue;
            }
            let (line, behind) = rest.split_once('\n').unwrap_or((rest, ""));
            let Some(found) = self.session(line) else {
                return Ok(Message { directive, session, rest: rest.to_owned() });
            };
            session = session.or(Some(found));
            rest = behind.trim_start();
        }
    }

    /// The engine that the directive at the beginning of a text names, and where the directive ends.
    fn directive(&self, text: &str) -> Option<(&Arc<dyn Runner>, usize)> {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let name = text[..end].strip_prefix('/')?;
        let name = name.split_once('@').map_or(name, |(name, _bot)| name);
        let named = self.runners().find(|it| it.engine().as_str().eq_ignore_ascii_case(name))?;
        Some((named, end))
    }

    /// The session that the last resume line of a text names.
    fn last_session(&self, text: &str) -> Option<(&Arc<dyn Runner>, ResumeToken)> {
        text.lines().rev().find_map(|line| self.session(line))
    }

    /// The session that a line names, if it is a resume line.
    fn session(&self, line: &str) -> Option<(&Arc<dyn Runner>, ResumeToken)> {
        let owner = self.runners().find(|runner| runner.is_resume_line(line))?;
        Some((owner, owner.extract_resume(line)?))
    }
}

/// A message with its routing separated from the prompt.
struct Message<'a> {
    directive: Option<&'a Arc<dyn Runner>>,
    session: Option<(&'a Arc<dyn Runner>, ResumeToken)>,
    rest: String,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runners().map(|runner| runner.engine())).finish()
    }
}

impl fmt::Debug for Route {
    /// Without the prompt, which must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("engine", &self.runner.engine())
            .field("resume", &self.resume)
            .finish_non_exhaustive()
    }
}
