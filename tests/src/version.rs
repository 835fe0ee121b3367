//! Versions of agents, ordered, so that a suite knows what to expect of each.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, bail};

/// A released version, such as `0.166.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number, the one that moves.
    pub minor: u16,
    /// The third number.
    pub patch: u16,
}

impl Version {
    /// The version `major.minor.patch`.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut numbers = text.trim().split('.').map(str::parse::<u16>);
        let mut next = || {
            let number = numbers.next().context("a version has three numbers")?;
            number.map_err(anyhow::Error::from)
        };
        let read = (|| anyhow::Ok(Self::new(next()?, next()?, next()?)))();
        let version = read.with_context(|| format!("{text:?} is no version"))?;
        if numbers.next().is_some() {
            bail!("{text:?} is no version: a version has three numbers");
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("0.99.9") < version("0.125.0"));
        assert!(version("0.144.6") < version("0.166.0"));
        assert_eq!(version("0.166.0").to_string(), "0.166.0");
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "1.2", "1.2.3.4", "0.1.x", "latest"] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
    }
}
