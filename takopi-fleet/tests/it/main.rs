//! Tests of the fleet: the board in memory and on a real PostgreSQL, runners and workers over it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod admin;
mod chaos;
mod contract;
mod faults;
mod git;
mod homes;
mod lab;
mod ledger;
mod lost;
mod model;
mod outages;
mod process;
mod proxy;
mod real;
mod roles;
mod runs;
mod silent;
mod soak;
mod steering;
mod submitters;
mod suite;
mod takeover;
mod tls;
