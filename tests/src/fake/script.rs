//! How a script travels in the environment.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Step;

/// The script as JSON.
pub const SCRIPT: &str = "TAKOPI_FAKE_SCRIPT";
/// A file that holds the script, for one that is too long for a variable.
pub const SCRIPT_FILE: &str = "TAKOPI_FAKE_SCRIPT_FILE";
/// Directory of the test's [`Control`](super::Control).
pub const CONTROL: &str = "TAKOPI_FAKE_CONTROL";

/// Linux refuses a single variable of 128 KiB.
const LONGEST_VARIABLE: usize = 100 * 1024;

/// What certain calls of a client do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The method.
    pub method: String,
    /// Only calls whose message contains this text.
    pub containing: Option<String>,
    /// Only this many calls.
    pub times: Option<usize>,
    /// What they do.
    pub steps: Vec<Step>,
}

impl Rule {
    /// A rule for all calls of a method.
    pub fn new(method: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self { method: method.to_owned(), containing: None, times: None, steps }
    }

    /// The same for one call only.
    pub fn once(self) -> Self {
        Self { times: Some(1), ..self }
    }

    /// The same for calls whose message contains this text.
    pub fn containing(self, text: &str) -> Self {
        Self { containing: Some(text.to_owned()), ..self }
    }
}

/// The environment of a fake without a control; steps that report or wait then end it with
/// [`BAD_SCRIPT`](super::BAD_SCRIPT).
pub(crate) fn env(script: &impl Serialize) -> Vec<(String, String)> {
    let json = json(script);
    assert!(json.len() <= LONGEST_VARIABLE, "a long script needs Control::env");
    vec![(SCRIPT.to_owned(), json)]
}

/// The same for a script of any length, which is put into `directory` if it is long.
pub(super) fn env_in(script: &impl Serialize, directory: &Path) -> Vec<(String, String)> {
    let json = json(script);
    if json.len() <= LONGEST_VARIABLE {
        return vec![(SCRIPT.to_owned(), json)];
    }
    let file = directory.join(format!("script-{}.json", uuid::Uuid::new_v4()));
    std::fs::write(&file, json).expect("the control directory takes a script");
    let path = file.into_os_string().into_string().expect("a control directory in UTF-8");
    vec![(SCRIPT_FILE.to_owned(), path)]
}

fn json(script: &impl Serialize) -> String {
    serde_json::to_string(script).expect("a script is plain data")
}
