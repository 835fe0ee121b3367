//! Conversations: a thread that its caller keeps open.

mod faults;
mod real;
