//! The order in which things get to the disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use jiff::Timestamp;

use super::disk::log::{Done, take};
use super::writer::Group;
use super::*;
use crate::digest::Digest;
use crate::job::JobResult;

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

fn result(id: &str) -> Closing {
    let now = Timestamp::now();
    let result = serde_json::json!({
        "id": id, "ok": true, "answer": "", "started": now, "ended": now, "attempts": 1,
    });
    let result: JobResult = serde_json::from_value(result).unwrap();
    Closing { result, lane: None, sent: true }
}

#[test]
fn a_state_is_on_disk_before_it_takes_the_place_of_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out").canonicalize().unwrap_or(directory.path().join("out"));
    let state = state_path(&out);
    // A new one has the line that names the batch, one that was used has more.
    for _ in 0..2 {
        take();
        let journal = Journal::open(&out).unwrap();
        let done = take();
        let new = inode(&state);
        let place = out.canonicalize().map(|out| state_path(&out)).unwrap();
        let wanted = [Done::Write(new), Done::Sync(new), Done::Rename(place), Done::SyncDirectory];
        assert_eq!(done, wanted);
        let state = journal.split().state;
        let (job, prompt) = (Digest::of("a"), Digest::of("b"));
        state.append(&Line::Sent {
            job,
            prompt,
            attempt: 1,
            keyed: None,
            over: false,
            outdates: false,
        });
    }
}

#[test]
fn the_state_is_synced_before_results_are_written_and_those_before_they_are_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (mut files, _state) = Journal::open(&out).unwrap().files.unwrap();
    let (results, state) = (inode(&out), inode(&state_path(&out)));
    take();
    let mut group = Group { results: vec![result("a"), result("b")], waiting: Vec::new() };
    files.commit(&mut group).unwrap();
    assert_eq!(take(), [Done::Sync(state), Done::Write(results), Done::Sync(results)]);
}

#[test]
fn waiters_for_the_state_are_notified_when_it_is_synced() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (mut files, _state) = Journal::open(&out).unwrap().files.unwrap();
    take();
    let (waiting, mut told) = tokio::sync::oneshot::channel();
    files.commit(&mut Group { results: Vec::new(), waiting: vec![waiting] }).unwrap();
    assert_eq!(take(), [Done::Sync(inode(&state_path(&out)))]);
    assert_eq!(told.try_recv(), Ok(()));
}

/// A pipe: it can be written to, and not synced.
fn unsyncable() -> (std::io::PipeReader, disk::DiskFile) {
    let (reader, writer) = std::io::pipe().unwrap();
    (reader, disk::DiskFile(std::os::fd::OwnedFd::from(writer).into()))
}

#[test]
fn waiters_for_the_state_are_not_notified_when_it_cannot_be_synced() {
    let directory = tempfile::tempdir().unwrap();
    let (mut files, _state) = Journal::open(directory.path().join("out")).unwrap().files.unwrap();
    let (_reader, state) = unsyncable();
    files.state = state;
    let (waiting, mut told) = tokio::sync::oneshot::channel();
    files.commit(&mut Group { results: Vec::new(), waiting: vec![waiting] }).unwrap_err();
    assert!(told.try_recv().is_err());
}

#[test]
fn what_was_appended_last_to_the_state_is_synced_when_the_files_are_closed() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (files, state) = Journal::open(&out).unwrap().files.unwrap();
    let inode = inode(&state_path(&out));
    take();
    state.append(&Line::Returned { job: Digest::of("a") });
    files.close().unwrap();
    assert_eq!(take(), [Done::Write(inode), Done::Sync(inode)]);
}

#[tokio::test]
async fn a_batch_whose_state_cannot_be_synced_at_its_end_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (mut files, state) = Journal::open(directory.path().join("out")).unwrap().files.unwrap();
    let (_reader, unsyncable) = unsyncable();
    files.state = unsyncable;
    let state = Arc::new(state);
    let writer = Writer::new(files, state.clone());
    state.append(&Line::Returned { job: Digest::of("a") });
    let error = writer.close().await.unwrap_err();
    assert!(matches!(&error, JournalError::Io { doing: "sync", .. }), "{error}");
}

#[test]
fn a_repair_is_synced() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let line = serde_json::to_string(&result("a").result).unwrap();
    for (text, repair) in
        [(line.clone(), Done::Write as fn(u64) -> Done), (format!("{line}\n{{\"id\""), Done::Cut)]
    {
        std::fs::write(&out, text).unwrap();
        take();
        drop(Journal::open(&out).unwrap());
        let results = inode(&out);
        assert_eq!(take()[..2], [repair(results), Done::Sync(results)]);
    }
}

#[test]
fn results_whose_file_was_deleted_are_saved_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (mut files, _state) = Journal::open(&out).unwrap().files.unwrap();
    let mut commit =
        |id| files.commit(&mut Group { results: vec![result(id)], waiting: Vec::new() });
    commit("a").unwrap();
    std::fs::remove_file(&out).unwrap();
    for number in [1, 2] {
        take();
        let error = commit("b").unwrap_err();
        let JournalError::Deleted { path, rescued } = &error else { panic!("{error}") };
        assert_eq!(
            (path, rescued),
            (&out, &directory.path().join(format!("out.rescued-{number}")))
        );
        let copy = inode(rescued);
        assert_eq!(take()[3..], [Done::Write(copy), Done::Sync(copy), Done::SyncDirectory]);
        let text = std::fs::read_to_string(rescued).unwrap();
        assert_eq!(text.lines().count(), 1 + number, "{text}");
        assert!(error.to_string().contains("was deleted or moved"), "{error}");
    }
}

#[test]
fn a_state_that_was_deleted_is_saved_beside_its_place_behind_the_results_that_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().canonicalize().unwrap().join("out");
    let (mut files, state) = Journal::open(&out).unwrap().files.unwrap();
    state.append(&Line::Returned { job: Digest::of("a") });
    let place = state_path(&out);
    let text = std::fs::read_to_string(&place).unwrap();
    // Deleted, or another in its place.
    for (number, replaced) in [(1, false), (2, true)] {
        std::fs::remove_file(&place).unwrap_or_default();
        if replaced {
            std::fs::write(&place, "notes\n").unwrap();
        }
        let mut group = Group { results: vec![result("a")], waiting: Vec::new() };
        let error = files.commit(&mut group).unwrap_err();
        let JournalError::StateDeleted { path, rescued } = &error else { panic!("{error}") };
        assert_eq!(path, &place);
        assert_eq!(rescued, &place.with_added_extension(format!("rescued-{number}")));
        assert_eq!(std::fs::read_to_string(rescued).unwrap(), text);
        assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), number);
    }
    assert_eq!(std::fs::read_to_string(&place).unwrap(), "notes\n", "left alone");
}

#[test]
fn results_that_cannot_be_looked_at_do_not_count_as_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let (mut files, _state) = Journal::open(inside.join("out")).unwrap().files.unwrap();
    std::fs::rename(&inside, directory.path().join("elsewhere")).unwrap();
    std::fs::write(&inside, "a file where the directory was").unwrap();
    let mut group = Group { results: vec![result("a")], waiting: Vec::new() };
    let error = files.commit(&mut group).unwrap_err();
    assert!(matches!(&error, JournalError::Io { doing: "look at", .. }), "{error}");
}

#[tokio::test]
async fn results_that_were_deleted_behind_the_last_commit_are_saved_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (files, state) = Journal::open(&out).unwrap().files.unwrap();
    let mut writer = Writer::new(files, Arc::new(state));
    writer.write(result("a"));
    assert_eq!(writer.committed().await.unwrap().len(), 1);
    std::fs::remove_file(&out).unwrap();
    let error = writer.close().await.unwrap_err();
    let JournalError::Deleted { rescued, .. } = &error else { panic!("{error}") };
    assert_eq!(std::fs::read_to_string(rescued).unwrap().lines().count(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_state_that_cannot_be_written_is_reported() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let state = StateFile::new(disk::DiskFile(full));
    assert!(state.fault().is_none());
    state.append(&Line::Returned { job: Digest::of("a") });
    let fault = state.fault().expect("no space is left");
    assert_eq!(fault.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn an_error_prints_its_cause_once() {
    let error = Journal::open("/no/such/directory/out").unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    assert!(std::error::Error::source(&error).is_none(), "a chain would print it again");
}

fn line_of(id: &str, ok: bool) -> String {
    let mut result = serde_json::to_value(&result(id).result).unwrap();
    result["ok"] = ok.into();
    format!("{result}\n")
}

#[test]
fn the_results_in_a_file_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let lines = [("a", true), ("b", false), ("c", false)].map(|(id, ok)| line_of(id, ok));
    std::fs::write(&out, lines.concat()).unwrap();
    let counts = Journal::open(&out).unwrap().results();
    assert_eq!((counts.total, counts.failed), (3, 2));
}

#[test]
fn a_torn_result_is_cut_off_only_if_a_batch_can_have_written_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let whole = line_of("a", true);
    for (torn, ours) in [
        (r#"{"id"#, true),
        (r#"{"id":"b","ok":false,"ans"#, true),
        (r#"{"id":"quoted \"b\"","ok":tr"#, true),
        (r#"{"id":"backslash \\","ok":tr"#, true),
        ("{\"id\":\"b\0\0\0", true),
        (r#"{"id":"b","x"#, false),
        (r#"{"id":"b","okay"#, false),
        (r#"{"name":"b"#, false),
    ] {
        // There is no state beside it: it stands behind a result.
        let _ = std::fs::remove_file(state_path(&out.canonicalize().unwrap_or(out.clone())));
        let text = format!("{whole}{torn}");
        std::fs::write(&out, &text).unwrap();
        match Journal::open(&out) {
            Ok(_) => assert!(ours, "{torn}"),
            Err(JournalError::NotAResult(_, 2)) => assert!(!ours, "{torn}"),
            Err(error) => panic!("{torn}: {error}"),
        }
        let left = std::fs::read_to_string(&out).unwrap();
        assert_eq!(left, if ours { &whole } else { &text }.as_str(), "{torn}");
    }
}

#[test]
fn a_line_that_is_no_result_is_never_cut_off_with_those_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    // Without its end the second one could be what a batch was writing when it died.
    for line in ["{\"id\":\"b\n", "{\"id\":\"b\"\n"] {
        let text = [line_of("a", true), line.to_owned(), line_of("c", true)].concat();
        std::fs::write(&out, &text).unwrap();
        assert!(matches!(Journal::open(&out), Err(JournalError::NotAResult(_, 2))));
        assert_eq!(std::fs::read_to_string(&out).unwrap(), text);
    }
}

#[test]
fn a_torn_state_is_read_up_to_there_and_another_file_is_not_taken_for_one() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    drop(Journal::open(&out).unwrap());
    let state = state_path(&out.canonicalize().unwrap());
    for (text, ours) in [("{\"type\":\"se", true), ("{\"ty", true), ("{\"name\":", false)] {
        std::fs::write(&state, text).unwrap();
        match Journal::open(&out) {
            Ok(_) => assert!(ours, "{text}"),
            Err(JournalError::NotAState(_, 1)) => assert!(!ours, "{text}"),
            Err(error) => panic!("{text}: {error}"),
        }
    }
    // A state that cannot be opened is not one that is not there.
    std::fs::remove_file(&state).unwrap();
    std::os::unix::fs::symlink(&state, &state).unwrap();
    assert!(matches!(Journal::open(&out), Err(JournalError::Io { doing: "open", .. })));
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("out")).unwrap();
    let elsewhere = directory.path().join("no/such/out");
    assert!(disk::rescue(&file, &elsewhere).is_err());
    assert!(disk::sync_directory_of(&elsewhere).is_err());
    disk::sync_directory_of(Path::new("out")).unwrap();
}
