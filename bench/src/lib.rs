//! What the benchmarks of takopi share: the output of a long turn, generated, and the work that is
//! measured without a process around it, and counts of it.
//!
//! The recordings depend on nothing but their length, so that counts of instructions can be compared.

pub mod counts;
pub mod recording;
pub mod work;
