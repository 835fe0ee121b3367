//! `takopi worker`, `takopi fleet` and `--fleet`, on a real PostgreSQL.

mod demo;
mod lab;
mod manage;
mod real;
mod refusals;
mod submit;
mod watch;
