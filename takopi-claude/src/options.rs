//! Options of a request: what `-c key=value` gives.

use takopi_core::Reason;
use takopi_core::runner::RunError;

/// The options of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Arguments of Claude Code, as flag and value.
    pub(crate) flags: Vec<(&'static str, String)>,
    pub(crate) background: Option<bool>,
    pub(crate) project_settings: Option<bool>,
}

/// The options that are passed on, and the flag of each.
const FLAGS: &[(&str, &str)] = &[
    ("add_dir", "--add-dir"),
    ("agent", "--agent"),
    ("allowed_tools", "--allowedTools"),
    ("append_system_prompt", "--append-system-prompt"),
    ("disallowed_tools", "--disallowedTools"),
    ("fallback_model", "--fallback-model"),
    ("max_budget_usd", "--max-budget-usd"),
    ("max_turns", "--max-turns"),
    ("settings", "--settings"),
    ("tools", "--tools"),
];

impl Options {
    /// Reads options; later ones win over earlier ones. One that is not known is refused: ignored, it
    /// could allow more than was meant.
    pub(crate) fn parse<'a>(
        options: impl IntoIterator<Item = &'a (String, String)>,
    ) -> Result<Self, RunError> {
        let mut parsed = Self::default();
        for (key, value) in options {
            let key = key.replace('-', "_");
            match key.as_str() {
                "background" => parsed.background = Some(switch(&key, value)?),
                "project_settings" => parsed.project_settings = Some(switch(&key, value)?),
                _ => {
                    let flag = FLAGS.iter().find(|(name, _)| *name == key);
                    let (_, flag) = flag.ok_or_else(|| unknown(&key))?;
                    parsed.flags.retain(|(known, _)| known != flag);
                    parsed.flags.push((flag, value.clone()));
                }
            }
        }
        Ok(parsed)
    }
}

fn switch(key: &str, value: &str) -> Result<bool, RunError> {
    value.parse().map_err(|_| refused(format!("option `{key}`: expected true or false")))
}

fn unknown(key: &str) -> RunError {
    let mut known: Vec<&str> = FLAGS.iter().map(|(name, _)| *name).collect();
    known.extend(["background", "project_settings"]);
    known.sort_unstable();
    refused(format!("claude has no option `{key}`; it has {}", known.join(", ")))
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
        let options = parse(&[
            ("max_turns", "3"),
            ("background", "true"),
            ("max-turns", "5"),
            ("background", "false"),
        ])
        .unwrap();
        assert_eq!(options.flags, [("--max-turns", "5".to_owned())]);
        assert_eq!(options.background, Some(false));
        assert_eq!(options.project_settings, None);
    }

    #[test]
    fn an_option_that_claude_does_not_have_is_refused_by_name() {
        let error = parse(&[("dangerously_skip_permissions", "true")]).unwrap_err();
        assert!(error.contains("no option `dangerously_skip_permissions`"), "{error}");
        assert!(error.contains("allowed_tools"), "{error}");
        let error = parse(&[("background", "sometimes")]).unwrap_err();
        assert_eq!(error, "option `background`: expected true or false");
    }
}
