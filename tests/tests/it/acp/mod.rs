//! Agents that speak the Agent Client Protocol.

mod chaos;
mod contract;
mod faults;
mod real;
mod schema_drift;
