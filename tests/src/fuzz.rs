//! Runs a fuzz target for a bounded time on any toolchain: seeds, and mutations of them.
//!
//! - `TAKOPI_FUZZ_SECONDS`: for how long each target runs (2);
//! - `TAKOPI_FUZZ_SEED`: where the mutations begin (1); the same seed gives the same inputs;
//! - `TAKOPI_FUZZ_INPUT`: a file, which is then the only input: a failure names one.
//!
//! Inputs in `fuzz/regressions/<target>/` come first: what failed once.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::{dirs, mutate};

/// Prints past the capture of the test harness: how much was tried is of interest when all is well.
macro_rules! report {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// How long an input may grow: many small ones find more than a few large ones.
const LONGEST: usize = 8 * 1024;
/// Inputs that later ones are made of, beside the seeds.
const KEPT: usize = 256;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// For how long a target runs.
pub fn time() -> Duration {
    Duration::from_secs(setting("TAKOPI_FUZZ_SECONDS", 2))
}

/// The inputs of a target, one after the other.
#[derive(Debug)]
pub struct Inputs {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    /// How many were made.
    made: u64,
    first: u64,
    replayed: bool,
    until: Instant,
}

impl Inputs {
    /// Inputs made of these seeds.
    pub fn new(name: &'static str, seeds: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut all = Vec::new();
        let known = dirs::workspace().join("fuzz/regressions").join(name);
        for file in std::fs::read_dir(known).into_iter().flatten().flatten() {
            all.push(std::fs::read(file.path()).expect("an input that failed once"));
        }
        let replayed = std::env::var_os("TAKOPI_FUZZ_INPUT");
        if let Some(path) = &replayed {
            all = vec![std::fs::read(path).expect("TAKOPI_FUZZ_INPUT is a file")];
        } else {
            all.extend(seeds);
            all.push(Vec::new());
        }
        Self {
            name,
            seeds: all,
            kept: Vec::new(),
            made: 0,
            first: setting("TAKOPI_FUZZ_SEED", 1),
            replayed: replayed.is_some(),
            until: Instant::now() + time(),
        }
    }

    fn made_of_others(&self, dice: &mut Dice) -> Vec<u8> {
        let at = dice.index(self.seeds.len() + self.kept.len());
        let from = self.seeds.get(at).unwrap_or_else(|| &self.kept[at - self.seeds.len()]);
        let mut input = from.clone();
        for _ in 0..=dice.below(4) {
            input = self.changed(dice, &input);
        }
        input.truncate(LONGEST);
        input
    }

    fn changed(&self, dice: &mut Dice, input: &[u8]) -> Vec<u8> {
        let mut lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        let at = dice.index(lines.len());
        match dice.below(8) {
            0 | 1 => return mutate::bytes(dice, input),
            2 => {
                let other = &self.seeds[dice.index(self.seeds.len())];
                let (cut, from) = (dice.index(input.len() + 1), dice.index(other.len() + 1));
                return [&input[..cut], &other[from..]].concat();
            }
            3 => {
                let to = dice.index(lines.len());
                lines.swap(at, to);
            }
            4 => lines.insert(at, lines[at]),
            5 if lines.len() > 1 => drop(lines.remove(at)),
            _ => {
                let line = mutate::json(dice, &String::from_utf8_lossy(lines[at]));
                lines[at] = &line;
                return lines.join(&b'\n');
            }
        }
        lines.join(&b'\n')
    }

    /// Prints how many inputs were tried.
    pub fn report(&self) {
        let seconds = time().as_secs();
        report!(
            "fuzz: {}: {} inputs in {seconds} s from seed {}",
            self.name,
            self.made,
            self.first
        );
    }

    /// Saves an input that failed, and prints how to try it again.
    pub fn save(&self, input: &[u8]) -> PathBuf {
        let directory = dirs::workspace().join("target/fuzz-failures");
        std::fs::create_dir_all(&directory).expect("a directory under target");
        let path = directory.join(format!("{}-{}-{}", self.name, self.first, self.made));
        std::fs::write(&path, input).expect("a file under target");
        let shown = path.display();
        report!("fuzz: {} fails with {shown}", self.name);
        report!("replay: TAKOPI_FUZZ_INPUT={shown} cargo test --workspace fuzz_{}", self.name);
        path
    }
}

impl Iterator for Inputs {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let at = usize::try_from(self.made).unwrap_or(usize::MAX);
        if let Some(seed) = self.seeds.get(at) {
            self.made += 1;
            return Some(seed.clone());
        }
        if self.replayed || Instant::now() >= self.until {
            return None;
        }
        let mut dice = Dice::new(self.first.wrapping_add(self.made.wrapping_mul(0x1_0000_0001)));
        let input = self.made_of_others(&mut dice);
        self.made += 1;
        if dice.chance(10) {
            if self.kept.len() < KEPT {
                self.kept.push(input.clone());
            } else {
                self.kept[dice.index(KEPT)].clone_from(&input);
            }
        }
        Some(input)
    }
}

/// Runs a target on its inputs until its time is over.
pub fn run(name: &'static str, seeds: impl IntoIterator<Item = Vec<u8>>, target: impl Fn(&[u8])) {
    let mut inputs = Inputs::new(name, seeds);
    while let Some(input) = inputs.next() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            inputs.save(&input);
            resume_unwind(panic);
        }
    }
    inputs.report();
}
