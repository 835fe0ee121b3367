//! Micro-benchmarks of what takopi does for every line, every message and every run, each beside a
//! floor that reads the same bytes. `cargo bench -p takopi-bench`; `-- NAME` for some of them.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use takopi_bench::{recording, work};
use takopi_core::ResumeToken;
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionKey, SessionLocks};

const LINES: usize = 1_000;

fn lines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1,000 lines");
    group.measurement_time(Duration::from_secs(3)).sample_size(30);
    let exec = recording::exec(LINES);
    let app_server = recording::app_server(LINES);

    group.throughput(Throughput::Bytes(exec.len() as u64));
    group.bench_function("exec: framing", |b| b.iter(|| work::framing(exec.as_bytes())));
    group.bench_function("exec: values, the floor", |b| b.iter(|| values(&exec)));
    group.bench_function("exec: events", |b| b.iter(|| work::exec(exec.as_bytes())));

    group.throughput(Throughput::Bytes(app_server.len() as u64));
    group.bench_function("app-server: values, the floor", |b| b.iter(|| values(&app_server)));
    group.bench_function("app-server: events", |b| {
        b.iter(|| work::app_server(app_server.as_bytes()));
    });
    group.finish();
}

fn values(recording: &str) -> usize {
    let parsed = recording.lines().map(serde_json::from_str::<serde_json::Value>);
    parsed.filter(Result::is_ok).map(black_box).count()
}

fn resume_lines(criterion: &mut Criterion) {
    let codec = takopi_codex::resume_codec();
    let mut group = criterion.benchmark_group("resume line");
    group.measurement_time(Duration::from_secs(2)).sample_size(50);
    let line = "`codex resume 01a1e21b-26e5-7eb0-9d27-459e98f10b74`";
    group.bench_function("alone", |b| b.iter(|| codec.extract(black_box(line))));
    let message = format!("{}\n{line}\n", "What came of it, in a paragraph or two.\n".repeat(100));
    group.bench_function("under a message of 4 KB", |b| {
        b.iter(|| codec.extract(black_box(&message)));
    });
    group.finish();
}

fn locks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lock and release");
    group.measurement_time(Duration::from_secs(2)).sample_size(50);
    let key = SessionKey::new(&ResumeToken::new("bench", "session"));
    let holder = Holder::here("bench".into());
    let bare = tokio::sync::Mutex::new(());
    group.bench_function("bare mutex, the floor", |b| b.iter(|| drop(bare.try_lock())));
    let local = LocalLocks::new();
    group.bench_function("in process", |b| {
        b.iter(|| drop(local.try_lock(&key, &holder, &NoLeases)));
    });
    if let Ok(directory) = tempfile::tempdir() {
        let files = FileLocks::new(LocalLocks::new(), directory.path());
        group.bench_function("with the file", |b| {
            b.iter(|| drop(files.try_lock(&key, &holder, &NoLeases)));
        });
    }
    group.finish();
}

criterion_group!(benches, lines, resume_lines, locks);
criterion_main!(benches);
