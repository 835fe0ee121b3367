//! Lengths of time as people type them: `90s`, `5m`, `1h 30m`; a plain number is seconds.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Reads a length of time.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let read = if let Ok(seconds) = text.parse::<f64>() {
        Duration::try_from_secs_f64(seconds).ok()
    } else {
        let length = text.parse::<jiff::SignedDuration>().ok();
        length.and_then(|length| Duration::try_from(length).ok())
    };
    read.ok_or_else(|| "expected a length of time such as 90s, 5m or 1h30m".to_owned())
}

/// A length of time in the configuration file: a text, or a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct Length(Duration);

impl From<Length> for Duration {
    fn from(length: Length) -> Self {
        length.0
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Seconds(f64),
    Text(String),
    Other(IgnoredAny),
}

impl TryFrom<Written> for Length {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Seconds(seconds) => parse(&seconds.to_string()).map(Self),
            Written::Text(text) => parse(&text).map(Self),
            Written::Other(_) => parse("").map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_plain_seconds() {
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
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for text in ["", "-1", "-5m", "soon", "5 parsecs", "inf", "NaN", "1e300"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
