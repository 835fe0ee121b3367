//! Batches on the real codex.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use takopi_tests::model::{Answer, Gate, RecordedRequest, Script, within};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::lab::{Lab, Ran};

/// How long a batch may take on a busy machine.
const LONG: Duration = Duration::from_mins(30);

/// Prompts `name step 00`, …, the sessions taking turns, and some that have none.
fn input(lab: &Lab, sessions: usize, steps: usize, alone: usize) {
    let mut lines = Vec::new();
    let mut job = |id: String, session: Option<String>| {
        lines.push(json!({ "id": id, "prompt": id, "session": session }).to_string());
    };
    for step in 0..steps {
        for session in 0..sessions {
            let name = format!("s{session:02}");
            job(format!("{name} step {step:02}"), Some(name));
        }
    }
    for n in 0..alone {
        job(format!("alone{n:02} step 00"), None);
    }
    let path = lab.home.root().join("jobs.jsonl");
    std::fs::write(path, lines.join("\n")).unwrap();
}

fn results(lab: &Lab) -> Vec<Value> {
    let text = std::fs::read_to_string(lab.home.root().join("out.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn start(lab: &Lab, args: &[&str]) -> Child {
    let jobs = lab.home.root().join("jobs.jsonl");
    let out = lab.home.root().join("out.jsonl");
    let mut all = vec!["batch", jobs.to_str().unwrap(), "--out", out.to_str().unwrap()];
    all.extend(args);
    let mut command = lab.takopi(&all);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

async fn run(lab: &Lab, args: &[&str]) -> Ran {
    let output = within(LONG, "the batch", start(lab, args).wait_with_output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The prompts that the model was asked, by the name they begin with, in the order they came.
fn asked(requests: &[RecordedRequest]) -> BTreeMap<String, Vec<String>> {
    let mut asked: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for request in requests {
        let prompt = request.last_user_text().unwrap();
        let name = prompt.split(' ').next().unwrap().to_owned();
        asked.entry(name).or_default().push(prompt);
    }
    asked
}

/// No conversation has two requests at once.
fn assert_one_at_a_time(requests: &[RecordedRequest]) {
    let mut last: HashMap<&str, &RecordedRequest> = HashMap::new();
    for request in requests {
        let session = request.session().unwrap();
        if let Some(before) = last.insert(session, request) {
            let (before_text, text) = (before.last_user_text(), request.last_user_text());
            assert!(!request.overlaps(before), "{before_text:?} and {text:?} at once in {session}");
        }
    }
}

#[tokio::test]
async fn two_hundred_prompts_of_twenty_sessions_are_each_answered_once_and_in_order() {
    let Some(lab) = Lab::new() else { return };
    lab.model.otherwise(Script::repeat(Answer::text("fine")));
    input(&lab, 20, 10, 0);
    let ran = run(&lab, &["--jobs", "8"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let results = results(&lab);
    assert_eq!(results.len(), 200);
    assert!(results.iter().all(|it| it["ok"] == true && it["answer"] == "fine"), "{results:?}");
    let requests = lab.model.requests();
    assert_eq!(requests.len(), 200, "each prompt was sent once");
    assert_one_at_a_time(&requests);
    let asked = asked(&requests);
    assert_eq!(asked.len(), 20);
    for (name, prompts) in asked {
        let expected: Vec<String> = (0..10).map(|step| format!("{name} step {step:02}")).collect();
        assert_eq!(prompts, expected);
    }
    // The last prompt of a session knows all the others.
    let last = &lab.model.requests_about("s07 step 09")[0];
    assert_eq!(last.user_texts().len(), 10);
    lab.home.assert_no_processes().await;
}

/// Numbers that look random, from a seed that a failure prints.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("TAKOPI_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        let seed = seed.unwrap_or_else(|| u64::try_from(now() % 1_000_000).unwrap());
        println!("TAKOPI_CHAOS_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound).unwrap()
    }
}

#[tokio::test]
async fn a_conversation_of_which_a_kill_left_nothing_is_begun_anew() {
    let Some(lab) = Lab::new() else { return };
    let gate = Gate::new();
    lab.model.otherwise(Script::repeat(Answer::new().wait_for(&gate).message("fine")));
    input(&lab, 1, 2, 0);
    let mut child = start(&lab, &[]);
    within(LONG, "the first request", lab.model.wait_for_requests(1)).await;
    child.kill().await.unwrap();
    lab.home.assert_no_processes().await;
    gate.open();
    // As if codex had been killed between creating the file of its session and writing to it.
    let files = files_below(&lab.home.codex_home().join("sessions"));
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::write(&files[0], "").unwrap();

    let ran = run(&lab, &[]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let results = results(&lab);
    let outline: Vec<_> = results.iter().map(|it| (&it["id"], &it["ok"])).collect();
    assert_eq!(
        outline,
        [(&json!("s00 step 00"), &json!(true)), (&json!("s00 step 01"), &json!(true))]
    );
    assert_eq!(results[0]["resume"], results[1]["resume"], "one conversation");
    let last = &lab.model.requests_about("s00 step 01")[0];
    assert_eq!(last.user_texts().len(), 2);
    lab.home.assert_no_processes().await;
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn killed_at_twenty_random_moments_every_prompt_has_one_result_in_the_end() {
    let Some(lab) = Lab::new() else { return };
    lab.model
        .otherwise(Script::repeat(Answer::new().delay(Duration::from_millis(5)).message("fine")));
    let (sessions, steps, alone) = (8, 12, 8);
    input(&lab, sessions, steps, alone);
    let mut dice = Dice::new();
    let mut kills = 0;
    while kills < 20 {
        let mut child = start(&lab, &["--jobs", "4", "--json"]);
        let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
        // Some moments after the model was asked, or after a result was written; the machine's own
        // unevenness does the rest.
        let by_result = dice.below(2) == 0;
        let requests = lab.model.requests().len() + 1 + dice.below(5);
        let mut results = 1 + dice.below(4);
        let moment = async {
            if !by_result {
                lab.model.wait_for_requests(requests).await;
                return;
            }
            while results > 0 {
                let event = events.next_line().await.unwrap().unwrap_or_default();
                results -= usize::from(event.contains("\"job_completed\""));
            }
        };
        tokio::select! {
            () = within(LONG, "progress", moment) => {
                child.kill().await.unwrap();
                kills += 1;
            }
            status = child.wait() => panic!("over after {kills} kills: {status:?}"),
        }
    }
    let ran = run(&lab, &["--jobs", "4"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);

    let mut ids: Vec<String> = results(&lab)
        .iter()
        .map(|result| {
            assert_eq!(result["ok"], true, "{result}");
            result["id"].as_str().unwrap().to_owned()
        })
        .collect();
    ids.sort();
    let count = ids.len();
    ids.dedup();
    assert_eq!((count, ids.len()), (sessions * steps + alone, sessions * steps + alone));

    let requests = lab.model.requests();
    assert_one_at_a_time(&requests);
    for (name, mut prompts) in asked(&requests) {
        // At least once, and in order: what was sent again was sent before anything else.
        prompts.dedup();
        let steps = if name.starts_with('s') { steps } else { 1 };
        let expected: Vec<String> =
            (0..steps).map(|step| format!("{name} step {step:02}")).collect();
        assert_eq!(prompts, expected);
    }
    let again = requests.len() - count;
    println!("{count} prompts, {again} of them sent again");
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn an_overload_is_retried_in_the_same_conversation() {
    let Some(lab) = Lab::new() else { return };
    let overloaded = Answer::new().failed("server_is_overloaded", "no room");
    lab.model.when("alone00", [overloaded, Answer::text("fine")]);
    input(&lab, 0, 0, 1);
    let ran = run(&lab, &[]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("↻ alone00 step 00: retry in "), "{}", ran.stderr);
    let result = &results(&lab)[0];
    assert_eq!((&result["ok"], &result["attempts"]), (&true.into(), &2.into()));
    let requests = lab.model.requests();
    assert_eq!(requests[0].session(), requests[1].session());
}

/// A used up plan that has room again at this second.
#[tokio::test]
async fn a_usage_limit_pauses_the_batch_until_it_is_reset() {
    // A reset that is past when takopi reads it is none: the first may be too early for a busy machine.
    for reset in [8, 60] {
        let Some(lab) = Lab::new() else { return };
        lab.model.when("alone00", [Answer::usage_limit_for(reset), Answer::text("fine")]);
        lab.model.when("alone01", "fine");
        input(&lab, 0, 0, 2);
        let ran = run(&lab, &["--jobs", "1"]).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("! the batch continues"), "{}", ran.stderr);
        assert_eq!(results(&lab).len(), 2);
        let requests = lab.model.requests();
        assert!(requests[1].started.duration_since(requests[0].started) >= Duration::from_secs(2));
        if ran.stderr.contains("! paused until ") {
            return;
        }
        assert!(ran.stderr.contains("! paused, next try at "), "{}", ran.stderr);
    }
    panic!("no batch was paused until the reset");
}

#[tokio::test]
async fn stopping_at_a_usage_limit_reports_its_end_and_marks_no_prompt() {
    let Some(lab) = Lab::new() else { return };
    lab.model.otherwise(Script::repeat(Answer::usage_limit_for(7200)));
    input(&lab, 0, 0, 2);
    let ran = run(&lab, &["--on-limit", "stop"]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("note: the limit ends at "), "{}", ran.stderr);
    assert_eq!(results(&lab).len(), 0);
}
