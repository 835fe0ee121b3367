//! The command on the real pi, whose model is scripted.

mod kills;
mod lab;
mod runs;
mod sharing;
