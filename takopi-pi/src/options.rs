//! Options of a request: what `-c key=value` gives.

use takopi_core::Reason;
use takopi_core::runner::RunError;

/// The options that are passed on, and the flag of each.
const FLAGS: &[(&str, &str)] = &[
    ("append_system_prompt", "--append-system-prompt"),
    ("exclude_tools", "--exclude-tools"),
    ("provider", "--provider"),
    ("system_prompt", "--system-prompt"),
    ("tools", "--tools"),
];

/// The option that takopi itself understands.
pub(crate) const PROJECT_SETTINGS: &str = "project_settings";

/// The options of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Arguments of pi, as flag and value.
    pub(crate) flags: Vec<(&'static str, String)>,
    pub(crate) project_settings: Option<bool>,
}

impl Options {
    /// Reads options; later ones win over earlier ones. One that is not known is refused: ignored, it
    /// could allow more than was meant.
    pub(crate) fn parse<'a>(
        options: impl IntoIterator<Item = &'a (String, String)>,
    ) -> Result<Self, RunError> {
        let mut parsed = Self::default();
        for (key, value) in options {
            let key = key.replace('-', "_");
            if key == PROJECT_SETTINGS {
                let switch = value
                    .parse()
                    .map_err(|_| refused(format!("option `{key}`: expected true or false")))?;
                parsed.project_settings = Some(switch);
                continue;
            }
            let flag = FLAGS.iter().find(|(name, _)| *name == key);
            let (_, flag) = flag.ok_or_else(|| unknown(&key))?;
            parsed.flags.retain(|(known, _)| known != flag);
            parsed.flags.push((flag, value.clone()));
        }
        Ok(parsed)
    }
}

fn unknown(key: &str) -> RunError {
    let mut known: Vec<&str> = FLAGS.iter().map(|(name, _)| *name).collect();
    known.push(PROJECT_SETTINGS);
    known.sort_unstable();
    refused(format!("pi has no option `{key}`; it has {}", known.join(", ")))
}

fn refused(error: String) -> RunError {
    RunError::new(Reason::InvalidRequest, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<Options, String> {
        let options: Vec<(String, String)> =
            options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Options::parse(&options).map_err(|error| error.message)
    }

    #[test]
    fn later_options_win_and_dashes_count_as_underscores() {
        let options =
            parse(&[("tools", "read"), ("project-settings", "true"), ("tools", "bash")]).unwrap();
        assert_eq!(options.flags, [("--tools", "bash".to_owned())]);
        assert_eq!(options.project_settings, Some(true));
    }

    #[test]
    fn an_option_that_pi_does_not_have_is_refused_by_name() {
        let error = parse(&[("extension", "/tmp/x.ts")]).unwrap_err();
        assert!(error.contains("no option `extension`") && error.contains("tools"), "{error}");
        let error = parse(&[("project_settings", "maybe")]).unwrap_err();
        assert_eq!(error, "option `project_settings`: expected true or false");
    }
}
