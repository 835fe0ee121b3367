//! Everything about Claude Code.

mod approvals;
mod background;
mod chaos;
mod drift;
mod endings;
mod faults;
mod lines;
mod prompts;
mod real;
mod requests;
mod safety;
mod schema_drift;
mod warm;

use std::time::Duration;

use takopi_claude::Claude;
use takopi_core::{Host, Runner};
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real::Claude as RealClaude;

const LONG: Duration = Duration::from_mins(10);

/// The engine around a claude, with nothing kept warm.
fn engine(claude: &RealClaude) -> Claude {
    Claude::new().binary(&claude.path).keep_warm(Duration::ZERO)
}

/// A runner with locks of its own, as another process would have.
fn runner(claude: Claude, home: &TestHome) -> impl Runner + use<> {
    let host = Host::builder().state_directory(home.state()).build().unwrap();
    claude.runner().on(host)
}
