//! Where contestants run: a home of an agent, and the scripted model that answers it.

use std::any::Any;
use std::path::Path;
use std::process::Command;

/// A home and a model. Both end with it.
pub(crate) struct Place {
    command: Box<dyn Fn(&Path) -> Command>,
    /// Behind the home, which ends what still calls it.
    _model: Box<dyn Any>,
}

impl Place {
    /// What starts a program in the home, and the model.
    pub(crate) fn new(command: impl Fn(&Path) -> Command + 'static, model: impl Any) -> Self {
        Self { command: Box::new(command), _model: Box::new(model) }
    }

    /// A program in the home, with nothing but its environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        (self.command)(program)
    }
}
