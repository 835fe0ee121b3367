//! An invalid value of an environment variable is not blamed on the flag that it stands for.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, Error};

/// The error, with the name of the variable if the value came from one.
pub(crate) fn blamed(mut error: Error, command: &Command, words: &[String]) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let (Some(flag), Some(value)) =
        (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue))
    else {
        return error;
    };
    let typed = flag.split([' ', '=']).next().unwrap_or_default().to_owned();
    let is_typed = words.iter().any(|word| word.split('=').next() == Some(typed.as_str()));
    let variable = find(command, &flag).and_then(|arg| arg.get_env()?.to_str().map(str::to_owned));
    if let Some(variable) = variable.filter(|name| !is_typed && std::env::var(name) == Ok(value)) {
        let name = ContextValue::String(format!("{variable} (environment variable)"));
        error.insert(ContextKind::InvalidArg, name);
    }
    error
}

/// The argument of a command or of one of its subcommands that is shown so.
fn find<'a>(command: &'a Command, shown: &str) -> Option<&'a Arg> {
    let own = command.get_arguments().find(|arg| arg.to_string() == shown);
    own.or_else(|| command.get_subcommands().find_map(|command| find(command, shown)))
}
