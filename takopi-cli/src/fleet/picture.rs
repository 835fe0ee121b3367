//! The fleet at one moment, as lines for a terminal: workers with their slots, what waits, how much ended.

use std::time::Duration;

use takopi_bridge::present::{Line, Style, elapsed, one_line, width};
use takopi_fleet::board::pg::Overview;
use takopi_fleet::board::{Line as Queue, WorkerLine};

/// The most slots that are drawn one by one.
const BAR: u32 = 16;
/// The widest name of a worker.
const NAME: usize = 24;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The picture. `title` says whose it is.
pub(super) fn lines(now: &Overview, title: &str) -> Vec<Line> {
    let mut lines = vec![Line::new().with(Style::Heading, "fleet ").with(Style::Plain, title)];
    lines.push(figures(now));
    lines.push(Line::new());
    lines.extend(workers(now));
    if !now.status.lines.is_empty() {
        lines.push(Line::new());
        lines.push(Line::new().with(Style::Dim, "  waiting for a worker"));
        lines.extend(now.status.lines.iter().map(queue));
    }
    if now.status.stranded > 0 {
        let text = "with work that cannot leave a machine which is gone";
        let text =
            format!("  {} {text}; `takopi fleet release`", count(now.status.stranded, "session"));
        lines.push(Line::new().with(Style::Warn, text));
    }
    lines.push(Line::new());
    lines.push(ended(now));
    lines.push(stored(now));
    lines
}

fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn figures(now: &Overview) -> Line {
    let status = &now.status;
    let alive: Vec<&WorkerLine> = status.workers.iter().filter(|worker| worker.alive).collect();
    let slots: u64 = alive.iter().map(|worker| u64::from(worker.slots)).sum();
    let held: u64 = alive.iter().map(|worker| worker.held).sum();
    let parts = [
        (count(alive.len() as u64, "worker"), Style::Strong),
        (format!("{held}/{slots} slots busy"), Style::Plain),
        (
            format!("{} waiting", status.queued),
            if status.queued > 0 { Style::Busy } else { Style::Plain },
        ),
        (count(status.sessions, "session"), Style::Plain),
        (count(now.submitters, "submitter"), Style::Plain),
    ];
    let mut line = Line::new();
    for (n, (text, style)) in parts.iter().enumerate() {
        line.push(Style::Dim, if n == 0 { "  " } else { " · " });
        line.push(*style, text);
    }
    line
}

fn workers(now: &Overview) -> Vec<Line> {
    let workers = &now.status.workers;
    if workers.is_empty() {
        let text = "  no worker serves; start one with `takopi worker`";
        return vec![Line::new().with(Style::Warn, text)];
    }
    let name = |worker: &WorkerLine| one_line(&worker.machine, NAME);
    let widest = workers.iter().map(|worker| width(&name(worker))).max().unwrap_or(0);
    let bar = workers.iter().map(|worker| worker.slots.min(BAR)).max().unwrap_or(0) as usize;
    let states = workers.iter().map(|worker| state(now, worker).1.len()).max().unwrap_or(0);
    let row = |worker: &WorkerLine| {
        let (mark, text, style) = state(now, worker);
        let named = name(worker);
        let pad = " ".repeat(widest - width(&named));
        let (full, free) = slots(worker);
        let mut line = Line::new().with(style, format!("  {mark} "));
        line.push(Style::Strong, &format!("{named}{pad}  "));
        line.push(Style::Busy, &"■".repeat(full));
        line.push(Style::Dim, &format!("{}{}", "□".repeat(free), " ".repeat(bar - full - free)));
        line.push(Style::Plain, &format!("  {:>5}", format!("{}/{}", worker.held, worker.slots)));
        let style = if style == Style::Good { Style::Dim } else { style };
        line.push(style, &format!("  {text:<states$}"));
        line.push(Style::Plain, &format!("  {}", offers(worker)));
        line
    };
    workers.iter().map(row).collect()
}

/// How a worker is: its mark, in words, and whether that is good.
fn state(now: &Overview, worker: &WorkerLine) -> (char, String, Style) {
    let lease = now.lease_of(&worker.id).unwrap_or_default();
    let time = elapsed(Duration::from_secs_f64(lease.abs()));
    let up = elapsed(Duration::from_secs(worker.up_seconds));
    match (worker.alive, worker.draining) {
        (false, true) => ('–', format!("left {time} ago"), Style::Dim),
        (false, false) => ('✗', format!("lost {time} ago"), Style::Bad),
        (true, true) => ('◐', format!("draining, lease {time}"), Style::Warn),
        (true, false) => ('●', format!("lease {time:>3}, up {up}"), Style::Good),
    }
}

/// How many marks of a worker's bar are full, and how many are not.
fn slots(worker: &WorkerLine) -> (usize, usize) {
    let all = worker.slots.min(BAR) as usize;
    let held = usize::try_from(worker.held).unwrap_or(usize::MAX);
    let full = if worker.slots <= BAR {
        held.min(all)
    } else {
        // Nothing looks empty that is not.
        (held * all).div_ceil(worker.slots as usize).min(all)
    };
    (full, all - full)
}

/// Engines with their versions, then labels and places.
fn offers(worker: &WorkerLine) -> String {
    let mut engines = Vec::new();
    let mut others = Vec::new();
    for offer in &worker.offers {
        match offer.split_once(':') {
            Some(("engine", engine)) => {
                let version = worker.versions.get(engine).copied().filter(|version| *version > 0);
                let version = version.map(|version| format!(" {}", version_text(version)));
                engines.push(format!("{engine}{}", version.unwrap_or_default()));
            }
            _ => others.push(offer.clone()),
        }
    }
    engines.sort();
    others.sort();
    engines.append(&mut others);
    engines.join(", ")
}

/// A version as people write it.
fn version_text(version: u64) -> String {
    let (major, minor, patch) =
        (version / 1_000_000_000_000, version / 1_000_000 % 1_000_000, version % 1_000_000);
    format!("{major}.{minor}.{patch}")
}

fn queue(queue: &Queue) -> Line {
    let oldest = elapsed(Duration::from_secs(queue.oldest_seconds));
    let mut line = Line::new().with(Style::Busy, format!("  {:>5} ", queue.sessions_ready));
    line.push(Style::Plain, &format!("{} ", queue.needs.join(", ")));
    line.push(Style::Dim, &format!("the oldest for {oldest}"));
    if !queue.offered {
        line.push(Style::Warn, "  no worker offers this");
    }
    line
}

fn ended(now: &Overview) -> Line {
    let most = now.ended.iter().copied().max().unwrap_or(0).max(1);
    let level = |count: u64| match usize::try_from(count * 7 / most) {
        _ if count == 0 => ' ',
        Ok(level) => LEVELS[level.min(7)],
        Err(_) => LEVELS[7],
    };
    let graph: String = now.ended.iter().map(|count| level(*count)).collect();
    let status = &now.status;
    let mut line = Line::new().with(Style::Dim, "  ended in 5 min ▕");
    line.push(Style::Good, &graph);
    line.push(Style::Dim, "▏ ");
    line.push(Style::Plain, &format!("{} in the last minute", status.done_last_minute));
    if status.failed_last_minute > 0 {
        line.push(Style::Bad, &format!(", {} failed", status.failed_last_minute));
    }
    line
}

fn stored(now: &Overview) -> Line {
    let text =
        format!("  stored {}, files of sessions {}", size(now.all_bytes), size(now.file_bytes));
    Line::new().with(Style::Dim, text)
}

/// A size for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overview() -> Overview {
        let worker = |machine: &str, slots: u32, held: u64, alive: bool, draining: bool| {
            json!({
                "id": format!("{machine}/1"), "machine": machine, "slots": slots, "busy": held, "held": held,
                "alive": alive, "draining": draining, "offers": ["label:gpu", "engine:codex", "engine:demo"],
                "versions": { "codex": 166_000_000_u64, "demo": 0 }, "up_seconds": 65,
            })
        };
        let mut ended = vec![0_u64; 30];
        (ended[28], ended[29]) = (4, 8);
        serde_json::from_value(json!({
            "status": {
                "workers": [
                    worker("alpha", 4, 3, true, false), worker("b", 64, 1, true, true), worker("c", 2, 2, false, false),
                ],
                "lines": [
                    { "needs": ["engine:codex", "place:app"], "sessions_ready": 12, "oldest_seconds": 90, "offered": false },
                ],
                "queued": 41, "running": 6, "sessions": 210, "stranded": 1,
                "done_last_minute": 12, "failed_last_minute": 1, "now": 0.0,
            },
            "leases": [
                { "worker": "alpha/1", "seconds_left": 24.2 }, { "worker": "b/1", "seconds_left": 8.0 },
                { "worker": "c/1", "seconds_left": -3.0 },
            ],
            "ended": ended, "submitters": 2, "file_bytes": 8192, "all_bytes": 12_345_678,
        }))
        .unwrap()
    }

    #[test]
    fn the_picture_shows_workers_slots_lines_and_rates() {
        let lines: Vec<String> = lines(&overview(), "me@db/fleet")
            .iter()
            .map(|line| line.plain().trim_end().to_owned())
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        fleet me@db/fleet
          2 workers · 4/68 slots busy · 41 waiting · 210 sessions · 2 submitters

          ● alpha  ■■■□                3/4  lease 24s, up 1m 05s  codex 0.166.0, demo, label:gpu
          ◐ b      ■□□□□□□□□□□□□□□□   1/64  draining, lease 8s    codex 0.166.0, demo, label:gpu
          ✗ c      ■■                  2/2  lost 3s ago           codex 0.166.0, demo, label:gpu

          waiting for a worker
             12 engine:codex, place:app the oldest for 1m 30s  no worker offers this
          1 session with work that cannot leave a machine which is gone; `takopi fleet release`

          ended in 5 min ▕                            ▄█▏ 12 in the last minute, 1 failed
          stored 12 MB, files of sessions 9 kB
        ");
    }

    #[test]
    fn without_workers_it_says_how_to_start_one() {
        let lines = lines(&Overview::default(), "me@db/fleet");
        let text: String = lines.iter().map(Line::plain).collect();
        assert!(text.contains("no worker serves; start one with `takopi worker`"), "{text}");
    }
}
