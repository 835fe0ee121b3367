//! `codex app-server`: many runs on one process, warm or shared. `real`, `shared`, `steering` and `host_tools` are on the
//! real codex, `client`, `neighbours` and `subagents` on both, the others on the fake one.

mod bursts;
mod client;
mod end_order;
mod endings;
mod faults;
mod host_tools;
mod late_turns;
mod neighbours;
mod notifications;
mod pool;
mod real;
mod recordings;
mod replay;
mod requests;
mod routing;
mod shared;
mod steering;
mod subagents;
mod wire;
