//! What `takopi batch` reads, and where it puts answers, on the demo engine.

use std::time::Duration;

use serde_json::Value;

use super::lab::{Lab, Ran};

fn batch(lab: &Lab, args: &[&str]) -> Ran {
    let all: Vec<&str> = ["batch", "--engine", "demo"].iter().chain(args).copied().collect();
    lab.run(&all)
}

#[test]
fn a_dry_run_prints_what_would_run_and_runs_nothing() {
    let lab = Lab::new();
    lab.write("work/p.csv", "file,lines\na.rs,3\n\"b c.rs\",4\n");
    let args = ["p.csv", "--template", "review {file} ({lines})", "--dry-run", "--out", "r.jsonl"];
    let ran = batch(&lab, &args);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "2\treview a.rs (3)\n3\treview b c.rs (4)\n")
    );
    assert_eq!(ran.stderr, "note: 2 of 2 prompts would run; nothing was run\n");
    assert!(!lab.path("work/r.jsonl").exists(), "nothing is written");
    let ran = batch(&lab, &args[..3]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("You said: review a.rs (3)"), "{}", ran.stdout);
}

#[test]
fn each_answer_has_a_file_of_its_own_with_a_safe_name() {
    let lab = Lab::new();
    lab.write(
        "work/p.jsonl",
        "{\"id\":\"../a\",\"prompt\":\"one\"}\n{\"id\":\"b\",\"prompt\":\"two\"}\n",
    );
    let ran = batch(&lab, &["p.jsonl", "--answers", "answers", "--out", "r.jsonl"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let answer = |name: &str| std::fs::read_to_string(lab.path("work/answers").join(name)).unwrap();
    assert!(answer("%2E.%2Fa.md").ends_with("You said: one\n"));
    assert!(answer("b.md").ends_with("You said: two\n"));
    assert_eq!(std::fs::read_dir(lab.path("work/answers")).unwrap().count(), 2);
    let again = batch(&lab, &["p.jsonl", "--answers", "answers", "--out", "r.jsonl"]);
    assert!(
        again.stderr.contains("nothing to do: every prompt has its result"),
        "{}",
        again.stderr
    );
    let ran = batch(&lab, &["p.jsonl", "--answers", "p.jsonl"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn an_answer_that_could_not_be_written_is_written_by_the_next_run() {
    let lab = Lab::new();
    lab.write("work/p.txt", "one\ntwo\n");
    let args = ["p.txt", "--answers", "answers", "--out", "r.jsonl"];
    let (first, second) = (lab.path("work/answers/1.md"), lab.path("work/answers/2.md"));
    // Nothing can be written where a directory is.
    let in_the_way = lab.path("work/answers/1.md.partial");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let ran = batch(&lab, &args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot write the answer of 1"), "{}", ran.stderr);
    assert!(!first.exists() && second.exists());
    std::fs::write(&second, "of somebody").unwrap();
    let again = batch(&lab, &args);
    assert_eq!(again.code, Some(1), "it still cannot be written: {}", again.stderr);
    std::fs::remove_dir(&in_the_way).unwrap();
    let again = batch(&lab, &args);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
    assert!(std::fs::read_to_string(&first).unwrap().ends_with("You said: one\n"));
    assert_eq!(std::fs::read_to_string(&second).unwrap(), "of somebody", "it was there");
    // The answer of an earlier run, whose later one was lost in a crash.
    let stale = std::fs::File::options().write(true).open(&second).unwrap();
    stale.set_modified(std::time::SystemTime::now() - Duration::from_hours(1)).unwrap();
    assert_eq!(batch(&lab, &args).code, Some(0));
    assert!(std::fs::read_to_string(&second).unwrap().ends_with("You said: two\n"));
}

#[test]
fn missing_directories_and_images_are_found_before_anything_runs() {
    let lab = Lab::new();
    lab.write("work/p.jsonl", "{\"prompt\":\"one\"}\n{\"prompt\":\"two\",\"cwd\":\"/no/such\"}\n");
    let ran = batch(&lab, &["p.jsonl"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    let expected = "p.jsonl: line 2: the directory /no/such does not exist\n       nothing was run";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

#[test]
fn inputs_that_are_no_lines_of_prompts_are_refused_with_what_to_do() {
    let lab = Lab::new();
    lab.write("work/p.json", "[\n  {\"prompt\": \"one\"}\n]\n");
    let ran = batch(&lab, &["p.json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("jq -c '.[]' FILE"), "{}", ran.stderr);
    let ran = batch(&lab, &["p.json", "--template", "review"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("it has no column such as {prompt}"), "{}", ran.stderr);
}

#[test]
fn an_ephemeral_batch_stores_no_token_and_has_no_named_sessions() {
    let lab = Lab::new();
    lab.write("work/p.txt", "one\n");
    let ran = batch(&lab, &["p.txt", "--ephemeral"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stdout.contains("resume"), "{}", ran.stdout);
    lab.write("work/s.jsonl", "{\"prompt\":\"one\",\"session\":\"s\"}\n");
    let ran = batch(&lab, &["s.jsonl", "--ephemeral"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("`ephemeral` excludes `session`"), "{}", ran.stderr);
    let ran = lab.run(&["run", "--engine", "demo", "--ephemeral", "hello"]);
    assert_eq!(ran.code, Some(0));
    assert!(!ran.stderr.contains("--resume"), "{}", ran.stderr);
    let ran = lab.run(&["run", "--engine", "claude", "--ephemeral", "hello"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--ephemeral"), "{}", ran.stderr);
}

/// Whether the event has the fields that the schema of its type names, and no others.
#[track_caller]
fn assert_described(schema: &Value, event: &Value) {
    let kind = &event["type"];
    let mut all = schema["anyOf"].as_array().unwrap().iter();
    let described = all.find(|one| one["properties"]["type"]["const"] == *kind);
    let Some(described) = described else {
        assert!(event["job"].is_string(), "an event of a run: {event}");
        return;
    };
    let properties = described["properties"].as_object().unwrap();
    for (name, value) in event.as_object().unwrap() {
        let property = properties.get(name).unwrap_or_else(|| panic!("{name} of {event}"));
        let is_right = match property["type"].as_str() {
            Some("string") => value.is_string(),
            Some("integer") => value.is_u64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            Some("object") => value.is_object(),
            _ => true,
        };
        assert!(is_right, "{name} of {event}");
    }
    for name in described["required"].as_array().unwrap() {
        assert!(event.get(name.as_str().unwrap()).is_some(), "{name} of {event}");
    }
}

#[test]
fn the_events_of_a_batch_are_as_their_schema_says() {
    let lab = Lab::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/batch.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let jobs = "{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"timeout\":\"1ms\"}\n{\"prompt\":\"c\"}\n";
    lab.write("work/p.jsonl", jobs);
    let mut kinds = std::collections::BTreeSet::new();
    for args in [
        &["p.jsonl", "--json"][..],
        &["p.jsonl", "--json", "--fail-fast", "-c", "pace=60s", "--jobs", "2", "--retries", "0"],
        &["p.jsonl", "--json", "--dry-run"],
    ] {
        // The first prompt of the second batch would take minutes; the failure of another stops it.
        let limit = ["--total-timeout", "2s", "--grace", "0s"];
        let ran = batch(&lab, &[args, &limit].concat());
        for line in ran.stdout.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_described(&schema, &event);
            kinds.insert(event["type"].as_str().unwrap().to_owned());
        }
    }
    for kind in
        ["batch_started", "job_completed", "batch_stopping", "batch_completed", "job_planned"]
    {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}
