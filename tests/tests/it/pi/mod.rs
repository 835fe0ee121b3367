//! Everything about pi.

mod chaos;
mod endings;
mod faults;
mod real;
mod requests;
mod schema_drift;

use std::time::Duration;

use takopi_core::{Host, Runner};
use takopi_pi::Pi;
use takopi_tests::pi::home::TestHome;
use takopi_tests::pi::real::Pi as RealPi;

const LONG: Duration = Duration::from_mins(10);

/// The engine around a pi, with nothing kept warm.
fn engine(pi: &RealPi) -> Pi {
    Pi::new().binary(&pi.path).keep_warm(Duration::ZERO)
}

/// A runner with locks of its own, as another process would have.
fn runner(pi: Pi, home: &TestHome) -> impl Runner + use<> {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    pi.runner().on(host)
}
