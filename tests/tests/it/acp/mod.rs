//! Agents that speak the Agent Client Protocol.

mod approvals;
mod chaos;
mod contract;
mod faults;
mod kept;
mod real;
mod schema_drift;
mod steering;
