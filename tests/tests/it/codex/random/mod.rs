//! Inputs made up from a seed: faults, mutated recordings, any bytes.

mod chaos;
mod client_fuzz;
mod schema_drift;
