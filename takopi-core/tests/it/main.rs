//! The promises of takopi-core, one module a subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: what fails here fails the test"
)]

mod catalog;
mod common;
mod consumer;
mod contract;
mod demo;
mod descendants;
mod ending;
mod events;
mod examples;
mod forks;
mod limits;
mod lock_service;
mod locks;
mod patience;
mod pipes;
mod processes_apart;
mod rooms;
mod starting;
mod steering;
mod untrusted;
mod wait_ends;
mod waiting;
mod worktrees;

#[tokio::test]
#[ignore = "a part that the other tests play in a process of its own"]
async fn actor() {
    let part = std::env::var("ACTOR").unwrap();
    match part.as_str() {
        "adapter" => descendants::play().await,
        "fork" => forks::play().await,
        "dropper" | "forty" => ending::play(&part).await,
        "locker" | "runner" | "leaver" | "ender" => processes_apart::play(&part).await,
        _ => starting::play(&part).await,
    }
}

#[test]
fn all_of_it_holds_with_256_descriptors() {
    common::apart::again_with_256_descriptors(&[
        "consumer",
        "contract",
        "descendants",
        "ending",
        "limits",
        "locks",
        "pipes",
        "processes_apart",
        "starting",
        "waiting",
    ]);
}
