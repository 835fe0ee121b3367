//! What is needed to test pi.
//!
//! - [`real`]: the pinned real pi with a Node of its own, installed once under `target/`;
//! - [`home`]: pi's own directory, a workspace and a state directory per test;
//! - [`fake`]: scripts for `fake-pi`, which shows the faults the real one cannot be made to show;
//! - [`lab`]: takopi over the fake pi.
//!
//! The scripted model is [`model::chat`](crate::model::chat).

mod chaos;
pub mod fake;
pub mod home;
pub mod lab;
pub mod real;
