//! Counts the allocations of translation and of a run, and compares them with those stored.
//!
//! Events are allocated on one thread and freed on another, so their number matters more than their
//! size. The counts are exact: one allocation more is an error here, where no clock would show it.
//! `.ci/run` runs this; `--accept` stores what was counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt as _;
use takopi_bench::counts::{Counts, LINES};
use takopi_bench::{recording, work};
use takopi_core::demo::{DEMO, Demo, Step};
use takopi_core::{
    Action, ActionEvent, ActionKind, EngineRunner, Host, Phase, RunRequest, Runner as _,
};

const COUNTS: Counts = Counts {
    table: "allocations",
    what: "allocations for 10,000 lines, and for a run of the demo engine with ten actions",
    margin_percent: 0.0,
};
/// The median of so many runs counts: growing a table of the runtime is not a cost of one run.
const RUNS: usize = 101;
const ACTIONS: usize = 10;

/// The allocator of the C library, counted.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: everything is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let counted = [
        ("exec", translation(work::exec, &recording::exec(LINES))),
        ("app-server", translation(work::app_server, &recording::app_server(LINES))),
        ("run", run()?),
    ];
    COUNTS.check_or_accept(&args, &counted)
}

/// What a translation allocates.
fn translation(translate: fn(&[u8]) -> usize, recording: &str) -> u64 {
    allocations(|| translate(recording.as_bytes())).0
}

/// What a run allocates, from the request to the end of its stream: all of it on one thread, so that
/// nothing depends on which thread is quicker.
fn run() -> anyhow::Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = tempfile::tempdir()?;
    let host =
        Host::builder().state_directory(state.path()).runtime(runtime.handle().clone()).build()?;
    let steps = (0..ACTIONS).map(|number| {
        let action = Action::new(format!("item_{number}"), ActionKind::Command, "ls src");
        Step::Act(ActionEvent::new(DEMO, action, Phase::Completed).ok(true))
    });
    let runner = EngineRunner::new(Demo::scripted(steps)).on(host);
    let mut counts = Vec::new();
    for _ in 0..RUNS {
        // In the same directory on every machine: how deep it is must not count.
        let request = || RunRequest::new("go").cwd("/");
        let run = || runtime.block_on(runner.run(request()).count());
        let (count, events) = allocations(run);
        anyhow::ensure!(events == ACTIONS + 2, "{events} events");
        counts.push(count);
    }
    counts.sort_unstable();
    Ok(counts[RUNS / 2])
}

fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let result = black_box(work());
    (ALLOCATIONS.load(Ordering::Relaxed) - before, result)
}
