//! How to run a prompt: the settings that requests, lines of a batch and configuration files share.
//!
//! A setting is one row of the table below: its field, its type, its description. [`RunSettings::set`]
//! reads it by name, so that every file format knows it; [`RunSettings::fill_from`] layers it over
//! defaults. Adding one is adding a row (and a flag where people should be able to type it).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

/// A value that could not be set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// There is no setting of this name.
    #[error("unknown setting `{name}`")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The value is not of the setting's kind.
    #[error("`{name}`: {expected}")]
    Invalid {
        /// The setting.
        name: String,
        /// The kind of value it takes, e.g. `expected a path`.
        expected: String,
    },
}

/// Defines the settings: one row each, `name (other names): type`.
macro_rules! run_settings {
    ($( $(#[$doc:meta])* $name:ident $( ($($alias:literal),+) )?: $type:ty; )*) => {
        /// How to run a prompt. What is not set is left to the engine, or to the defaults it is layered over.
        ///
        /// ```
        /// use serde_json::json;
        /// use takopi_core::RunSettings;
        ///
        /// let defaults = RunSettings::new().model("small").effort("low");
        /// let mut settings = RunSettings::new().model("large");
        /// settings.set("idle_timeout", &json!("5m"))?;
        /// settings.fill_from(&defaults);
        /// assert_eq!(settings.model.as_deref(), Some("large"));
        /// assert_eq!(settings.effort.as_deref(), Some("low"));
        /// # Ok::<(), takopi_core::settings::SettingError>(())
        /// ```
        #[derive(Debug, Clone, Default, PartialEq)]
        #[non_exhaustive]
        pub struct RunSettings {
            $( $(#[$doc])* pub $name: $type, )*
        }

        impl RunSettings {
            /// The names of all settings, as [`Self::set`] takes them.
            pub const NAMES: &[&str] = &[$( stringify!($name) ),*];

            /// Sets one by its name; dashes count as underscores.
            pub fn set(&mut self, name: &str, value: &Value) -> Result<(), SettingError> {
                match name.replace('-', "_").as_str() {
                    $( stringify!($name) $( $( | $alias )+ )? => {
                        self.$name = Read::read(value).map_err(|expected| {
                            SettingError::Invalid { name: name.to_owned(), expected }
                        })?;
                        Ok(())
                    } )*
                    _ => Err(SettingError::Unknown { name: name.to_owned() }),
                }
            }

            /// Takes what is not set from `defaults`; lists are put behind those of the defaults.
            pub fn fill_from(&mut self, defaults: &Self) {
                $( self.$name.fill_from(&defaults.$name); )*
            }

            /// Unsets every setting whose name `keep` does not accept.
            pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
                $( if !keep(stringify!($name)) { self.$name = Default::default(); } )*
            }

            /// About how many bytes they take in memory.
            pub fn weight(&self) -> usize {
                size_of::<Self>() $( + self.$name.weight() )*
            }
        }
    };
}

run_settings! {
    /// The directory to work in; the current one if not set.
    cwd ("cd"): Option<PathBuf>;
    /// The model to use.
    model: Option<String>;
    /// How hard the model should think.
    effort: Option<String>;
    /// The engine's sandbox mode.
    sandbox: Option<String>;
    /// What the engine's agent may do without asking for approval, in the engine's own words.
    permission_mode: Option<String>;
    /// Images that go with the prompt.
    images ("image"): Vec<PathBuf>;
    /// A file with a JSON Schema the answer must follow.
    output_schema: Option<PathBuf>;
    /// Whether the session is not stored: the run offers no session to resume. Not every engine can do that.
    ephemeral: Option<bool>;
    /// Further options of the engine, as `key`, `value`; what `-c key=value` gives.
    options ("settings"): Vec<(String, String)>;
    /// How long to wait for the session while others use it; not set waits for as long as it takes,
    /// zero fails at once.
    wait: Option<Duration>;
    /// How long the engine may be silent.
    idle_timeout: Option<Duration>;
    /// How long the run may take from the engine's start.
    wall_timeout ("timeout"): Option<Duration>;
}

/// Calls a macro with one row for each setting that has one value: `name: parameter => value`. The
/// setters of [`RunSettings`] and of requests come from these rows.
macro_rules! for_each_setter {
    ($callback:ident) => {
        $callback! {
            cwd: impl Into<PathBuf> => Some(cwd.into());
            model: impl Into<String> => Some(model.into());
            effort: impl Into<String> => Some(effort.into());
            sandbox: impl Into<String> => Some(sandbox.into());
            permission_mode: impl Into<String> => Some(permission_mode.into());
            output_schema: impl Into<PathBuf> => Some(output_schema.into());
            ephemeral: bool => Some(ephemeral);
            wait: impl Into<Option<Duration>> => wait.into();
            idle_timeout: impl Into<Option<Duration>> => idle_timeout.into();
            wall_timeout: impl Into<Option<Duration>> => wall_timeout.into();
        }
    };
}
pub(crate) use for_each_setter;

macro_rules! setters {
    ($( $name:ident: $type:ty => $value:expr; )*) => {
        impl RunSettings {
            $(
                #[doc = concat!("Sets [`Self::", stringify!($name), "`].")]
                pub fn $name(mut self, $name: $type) -> Self {
                    self.$name = $value;
                    self
                }
            )*
        }
    };
}

for_each_setter!(setters);

impl RunSettings {
    /// Nothing is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image.
    pub fn image(mut self, file: impl Into<PathBuf>) -> Self {
        self.images.push(file.into());
        self
    }

    /// Adds an option of the engine.
    pub fn option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((key.into(), value.into()));
        self
    }

    /// Whether the session is not stored.
    pub fn is_ephemeral(&self) -> bool {
        self.ephemeral == Some(true)
    }

    /// Names a directory, image or schema that does not exist, if there is one: engines would not all
    /// report it.
    pub fn missing_path(&self) -> Option<String> {
        let missing =
            |kind: &str, path: &Path| format!("the {kind} {} does not exist", path.display());
        let directory = self.cwd.as_deref().and_then(directory_problem);
        let image = self.images.iter().find(|image| !image.is_file());
        let schema = self.output_schema.as_deref().filter(|schema| !schema.is_file());
        directory
            .or_else(|| image.map(|path| missing("image", path)))
            .or_else(|| schema.map(|path| missing("output schema", path)))
    }
}

/// Why nothing can run in a directory, if that is so: it does not exist, or is something else.
pub fn directory_problem(path: &Path) -> Option<String> {
    let shown = path.display();
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some(format!("{shown} is not a directory")),
        Err(_) => Some(format!("the directory {shown} does not exist")),
    }
}

/// Reads a length of time: `90s`, `5m`, `1h 30m`; a plain number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let read = if let Ok(seconds) = text.parse::<f64>() {
        Duration::try_from_secs_f64(seconds).ok()
    } else {
        let length = text.parse::<jiff::SignedDuration>().ok();
        length.and_then(|length| Duration::try_from(length).ok())
    };
    read.ok_or_else(|| "expected a length of time such as 90s, 5m or 1h30m".to_owned())
}

/// A type of setting: read from a file, layered over a default, weighed.
trait Read: Sized {
    fn read(value: &Value) -> Result<Self, String>;
    fn fill_from(&mut self, default: &Self);
    fn weight(&self) -> usize;
}

impl<T: One> Read for Option<T> {
    fn read(value: &Value) -> Result<Self, String> {
        if value.is_null() { Ok(None) } else { T::one(value).map(Some) }
    }

    fn fill_from(&mut self, default: &Self) {
        if self.is_none() {
            self.clone_from(default);
        }
    }

    fn weight(&self) -> usize {
        self.as_ref().map_or(0, One::bytes)
    }
}

/// A value that is set or not.
trait One: Clone {
    fn one(value: &Value) -> Result<Self, String>;
    fn bytes(&self) -> usize;
}

impl One for String {
    fn one(value: &Value) -> Result<Self, String> {
        value.as_str().map(str::to_owned).ok_or_else(|| "expected a text".to_owned())
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

impl One for PathBuf {
    fn one(value: &Value) -> Result<Self, String> {
        value.as_str().map(Self::from).ok_or_else(|| "expected a path".to_owned())
    }

    fn bytes(&self) -> usize {
        self.as_os_str().len()
    }
}

impl One for bool {
    fn one(value: &Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| "expected true or false".to_owned())
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl One for Duration {
    fn one(value: &Value) -> Result<Self, String> {
        match value {
            Value::Number(seconds) => parse_duration(&seconds.to_string()),
            Value::String(text) => parse_duration(text),
            _ => parse_duration(""),
        }
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl Read for Vec<PathBuf> {
    fn read(value: &Value) -> Result<Self, String> {
        let expected = || "expected a path or a list of paths".to_owned();
        match value {
            Value::Null => Ok(Self::new()),
            Value::Array(paths) => {
                paths.iter().map(|path| PathBuf::one(path).map_err(|_| expected())).collect()
            }
            path => Ok(vec![PathBuf::one(path).map_err(|_| expected())?]),
        }
    }

    fn fill_from(&mut self, default: &Self) {
        self.splice(..0, default.iter().cloned());
    }

    fn weight(&self) -> usize {
        self.iter().map(|path| size_of::<PathBuf>() + path.bytes()).sum()
    }
}

impl Read for Vec<(String, String)> {
    fn read(value: &Value) -> Result<Self, String> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match value {
            Value::Null => Ok(Self::new()),
            Value::Object(options) => {
                Ok(options.iter().map(|(key, value)| (key.clone(), text(value))).collect())
            }
            _ => Err("expected an object of options".to_owned()),
        }
    }

    fn fill_from(&mut self, default: &Self) {
        self.splice(..0, default.iter().cloned());
    }

    fn weight(&self) -> usize {
        self.iter()
            .map(|(key, value)| size_of::<(String, String)>() + key.len() + value.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_setting_is_read_by_its_name_and_by_its_other_names() {
        let mut settings = RunSettings::new();
        for (name, value) in [
            ("cd", json!("/srv")),
            ("model", json!("m")),
            ("effort", json!("high")),
            ("sandbox", json!("read-only")),
            ("permission-mode", json!("plan")),
            ("image", json!("a.png")),
            ("output-schema", json!("s.json")),
            ("ephemeral", json!(true)),
            ("settings", json!({ "a.b": 1, "c": "d" })),
            ("wait", json!(0)),
            ("idle-timeout", json!("5m")),
            ("timeout", json!(1.5)),
        ] {
            settings.set(name, &value).unwrap();
        }
        let mut expected = RunSettings::new().model("m").effort("high");
        expected.cwd = Some("/srv".into());
        expected.sandbox = Some("read-only".to_owned());
        expected.permission_mode = Some("plan".to_owned());
        expected.ephemeral = Some(true);
        expected.images = vec!["a.png".into()];
        expected.output_schema = Some("s.json".into());
        expected.options = vec![("a.b".into(), "1".into()), ("c".into(), "d".into())];
        expected.wait = Some(Duration::ZERO);
        expected.idle_timeout = Some(Duration::from_mins(5));
        expected.wall_timeout = Some(Duration::from_millis(1500));
        assert_eq!(settings, expected);
        for name in RunSettings::NAMES {
            assert_eq!(settings.set(name, &Value::Null), Ok(()), "{name}");
        }
        assert_eq!(settings, RunSettings::new(), "null takes a setting back");
    }

    #[test]
    fn unknown_names_and_bad_values_are_refused_by_name() {
        let mut settings = RunSettings::new();
        let mut error =
            |name: &str, value: Value| settings.set(name, &value).unwrap_err().to_string();
        assert_eq!(error("modle", json!("x")), "unknown setting `modle`");
        assert_eq!(error("model", json!(1)), "`model`: expected a text");
        assert_eq!(error("images", json!([1])), "`images`: expected a path or a list of paths");
        assert_eq!(error("settings", json!("a=b")), "`settings`: expected an object of options");
        for value in [json!("soon"), json!(-1), json!(true), json!("1e300")] {
            assert!(error("wait", value).contains("expected a length of time"));
        }
    }

    #[test]
    fn settings_that_are_not_retained_are_unset() {
        let mut settings = RunSettings::new().model("m").effort("high");
        settings.retain(|name| name == "effort");
        assert_eq!(settings, RunSettings::new().effort("high"));
    }

    #[test]
    fn what_is_set_wins_over_defaults_and_lists_are_joined() {
        let mut defaults = RunSettings::new().model("small").effort("low");
        defaults.images = vec!["1.png".into()];
        defaults.options = vec![("k".into(), "1".into())];
        let mut settings = RunSettings::new().model("large");
        settings.images = vec!["2.png".into()];
        settings.options = vec![("k".into(), "2".into())];
        settings.fill_from(&defaults);
        assert_eq!(settings.model.as_deref(), Some("large"));
        assert_eq!(settings.effort.as_deref(), Some("low"));
        assert_eq!(settings.images, [PathBuf::from("1.png"), PathBuf::from("2.png")]);
        let values: Vec<_> = settings.options.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["1", "2"], "the later one counts for the engine");
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        for (text, millis) in [
            ("0", 0),
            ("90", 90_000),
            ("1.5", 1_500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("250ms", 250),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1", "-5m", "soon", "5 parsecs", "inf", "NaN", "1e300"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_that_does_not_exist_is_named() {
        let mut settings = RunSettings::new();
        assert_eq!(settings.missing_path(), None);
        settings.images = vec!["/nope/a.png".into()];
        assert_eq!(settings.missing_path().unwrap(), "the image /nope/a.png does not exist");
        settings.cwd = Some("/nope".into());
        assert_eq!(settings.missing_path().unwrap(), "the directory /nope does not exist");
        let file = tempfile::NamedTempFile::new().unwrap();
        settings.cwd = Some(file.path().into());
        let expected = format!("{} is not a directory", file.path().display());
        assert_eq!(settings.missing_path(), Some(expected));
    }
}
