//! Approvals: what is accepted, declined and shown.

mod closed;
mod real;
