//! Versions of engines: a session must not reach an older engine than the one that wrote it.

/// A version as one number, for comparisons: `0.166.0` is 166,000,000. Anything behind a dash is ignored.
///
/// ```
/// use takopi_fleet::files::version_number;
///
/// assert!(version_number("0.166.0") > version_number("0.125.3"));
/// assert!(version_number("1.0.0-beta.2") > version_number("0.999.999"));
/// assert_eq!(version_number("unknown"), 0);
/// ```
pub fn version_number(version: &str) -> u64 {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = plain.split('.').map(|part| part.parse::<u64>().unwrap_or(0).min(999_999));
    let mut next = || parts.next().unwrap_or(0);
    next() * 1_000_000_000_000 + next() * 1_000_000 + next()
}
