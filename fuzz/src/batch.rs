//! The input of a batch and the files that it keeps.

use std::path::Path;

use takopi_batch::{Input, Journal};

/// Every line is a job, a fault with its number, or blank; nothing is made up.
pub(crate) fn input(input: &[u8]) {
    let lines = input.split(|byte| *byte == b'\n').count() as u64;
    let mut last = 0;
    for read in Input::new(input) {
        let line = match &read {
            Ok(job) => {
                assert!(!job.id.trim().is_empty() && !job.prompt.trim().is_empty(), "{job:?}");
                job.line
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                error.line
            }
        };
        assert!(last < line && line <= lines, "line {line} behind {last}, of {lines}");
        last = line;
    }
}

/// Files that are not a batch's are refused and stay as they are; others lose nothing but a torn line.
pub(crate) fn journal(input: &[u8]) {
    let (at, rest) = crate::number(input);
    let at = if at == 0 { rest.len() } else { rest.len() * at / 256 };
    let (results, state) = rest.split_at(at);
    // In memory where there is such a place: every open is synced.
    let memory = Path::new("/dev/shm");
    let directory =
        if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let directory = directory.expect("a temporary directory");
    let (out, beside) = (directory.path().join("out"), directory.path().join("out.state"));
    std::fs::write(&out, results).expect("a file");
    if !state.is_empty() {
        std::fs::write(&beside, state).expect("a file");
    }
    let opened = Journal::open(&out).map(|journal| journal.results());
    let now = std::fs::read(&out).expect("the results");
    match opened {
        Err(_) => {
            let whole =
                now == results || now == [results, b"\n"].concat() || results.starts_with(&now);
            assert!(whole, "results of another batch were changed");
            assert_eq!(std::fs::read(&beside).unwrap_or_default(), state, "a state was changed");
        }
        Ok(known) => {
            let torn = results.starts_with(&now) && (now.is_empty() || now.ends_with(b"\n"));
            let ended = now == [results, b"\n"].concat();
            assert!(now == results || torn || ended, "results were lost");
            let again = Journal::open(&out).map(|journal| journal.results());
            assert_eq!(again.expect("it opens again"), known);
            assert_eq!(
                std::fs::read(&out).expect("the results"),
                now,
                "a second opening changed it"
            );
        }
    }
}
