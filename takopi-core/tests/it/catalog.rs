//! Engines describe themselves to programs with many engines.

use takopi_core::RunSettings;
use takopi_core::catalog::{COMMON_SETTINGS, EngineEntry};
use takopi_core::demo::DemoEntry;

#[test]
fn an_unknown_transport_is_refused_with_the_known_ones() {
    let error = DemoEntry.transport(Some("telegraph")).unwrap_err();
    assert_eq!(error.to_string(), "demo has no transport `telegraph`; it has in-process");
    assert_eq!(DemoEntry.transport(None), Ok(DemoEntry.default_transport()));
}

#[test]
fn every_setting_that_is_named_exists() {
    for name in COMMON_SETTINGS.iter().chain(DemoEntry.settings()) {
        assert!(RunSettings::NAMES.contains(name), "{name}");
    }
}
