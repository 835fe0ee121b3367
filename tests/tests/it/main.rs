//! Tests across the crates: the contract, codex over both transports (fake and real), and the
//! proving ground itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: what fails here fails the test"
)]

mod app_server_bursts;
mod app_server_client;
mod app_server_end_order;
mod app_server_endings;
mod app_server_faults;
mod app_server_neighbours;
mod app_server_pool;
mod app_server_real;
mod app_server_replay;
mod app_server_requests;
mod app_server_routing;
mod app_server_shared;
mod app_server_telling;
mod app_server_wire;
mod approvals_closed;
mod approvals_real;
mod browser;
mod chaos;
mod client_fuzz;
mod contract;
mod conversation_faults;
mod conversation_real;
mod drift;
mod exec_endings;
mod exec_faults;
mod exec_real;
mod failures_real;
mod fake_codex;
mod host_tools_real;
mod proving_ground;
mod recordings;
mod schema_drift;
mod steering_real;
