//! One session on two machines, and what is found there.

use std::fs;

use futures::future::BoxFuture;
use takopi_core::catalog::PortableFile;
use takopi_core::version::Version;

use super::*;

const SID: Uuid = Uuid::from_u128(7);
const LIMIT: u64 = 1 << 20;

/// Sessions that are one file each, and a file that belongs to all.
struct Flat(PathBuf);

impl PortableSessions for Flat {
    fn files(&self, session: &str, _cwd: &Path) -> io::Result<Vec<PortableFile>> {
        let names = [format!("{session}.log"), "parent.log".to_owned()];
        let files = names.map(|name| PortableFile { path: self.0.join(&name), name });
        Ok(files.into_iter().filter(|file| file.path.exists()).collect())
    }

    fn path(&self, name: &str, _cwd: &Path) -> Option<PathBuf> {
        (!name.contains('/')).then(|| self.0.join(name))
    }

    fn version(&self) -> BoxFuture<'_, Option<Version>> {
        Box::pin(std::future::ready(None))
    }
}

struct Machine {
    dir: tempfile::TempDir,
    sessions: Flat,
}

/// What is stored, as the board has it.
#[derive(Default)]
struct Board(BTreeMap<(String, i64), Piece>);

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        let sessions = Flat(dir.path().join("home"));
        Self { dir, sessions }
    }

    fn store(&self) -> Store<'_> {
        Store { sessions: &self.sessions, session: "s1", cwd: Path::new("/") }
    }

    fn copy(&self) -> LocalCopy {
        LocalCopy::open(self.dir.path(), SID)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.sessions.0.join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let before = fs::read_to_string(self.file(name)).unwrap_or_default();
        fs::write(self.file(name), before + text).unwrap();
    }

    fn read(&self) -> String {
        fs::read_to_string(self.file("s1.log")).unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.sessions.0).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// Begins a turn of a generation, and places files if they are not here.
    fn begin(&self, board: &Board, generation: i64) -> LocalCopy {
        let mut copy = self.copy();
        if generation == 0 {
            copy.begin(None).unwrap();
            return copy;
        }
        if !copy.is_current(generation, self.store()) {
            copy.place(generation, board.0.values().cloned().collect(), self.store()).unwrap();
        }
        copy.begin(Some(generation)).unwrap();
        copy
    }

    /// Collects what a turn appended, which is too much, before its result is stored under a token.
    fn collect_too_much(&self, copy: &mut LocalCopy, token: i64) -> Collected {
        let mut collected = copy.collect(self.store(), 8);
        assert_eq!(collected.stays.as_deref(), Some("its files have more than 0 MB"));
        copy.leave_out(token, &mut collected).unwrap();
        collected
    }

    /// Ends the turn under a token.
    fn commit(&self, board: &mut Board, mut copy: LocalCopy, token: i64) {
        let mut collected = copy.collect(self.store(), LIMIT);
        assert_eq!(collected.stays, None);
        for piece in std::mem::take(&mut collected.pieces) {
            if piece.start == 0 {
                board.0.retain(|(name, _), _| *name != piece.path);
            }
            board.0.insert((piece.path.clone(), piece.start), piece);
        }
        copy.committed(token, collected).unwrap();
    }

    fn turn(&self, board: &mut Board, generation: i64, text: &str) {
        let copy = self.begin(board, generation);
        self.append("s1.log", text);
        self.commit(board, copy, generation + 1);
    }
}

#[test]
fn a_session_goes_from_machine_to_machine_and_back() {
    let (one, two, mut board) = (Machine::new(), Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    one.turn(&mut board, 1, "b");
    two.turn(&mut board, 2, "c");
    one.turn(&mut board, 3, "d");
    assert_eq!((one.read().as_str(), two.read().as_str()), ("abcd", "abc"));
    let pieces: Vec<i64> = board.0.keys().map(|(_, start)| *start).collect();
    assert_eq!(pieces, [0, 1, 2, 3], "only what was appended");
    assert_eq!(one.files(), ["s1.log"], "nothing was put aside");
}

#[test]
fn the_stored_file_replaces_what_a_lost_turn_left() {
    let (one, mut board) = (Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    let lost = one.begin(&board, 1);
    one.append("s1.log", "half");
    drop(lost);
    let copy = one.begin(&board, 1);
    assert_eq!(one.read(), "a", "as before the turn");
    assert_eq!(one.files(), ["s1.log", "s1.log.before-1"]);
    one.append("s1.log", "b");
    one.commit(&mut board, copy, 3);
    assert_eq!(one.read(), "ab");
}

#[test]
fn what_a_person_appended_here_is_kept_and_travels() {
    let (one, two, mut board) = (Machine::new(), Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    one.append("s1.log", "person");
    one.turn(&mut board, 1, "b");
    two.turn(&mut board, 2, "c");
    assert_eq!(two.read(), "apersonbc");
    // Also where nothing is known of the session but its file.
    two.append("s1.log", "again");
    fs::remove_dir_all(two.dir.path().join("sessions")).unwrap();
    two.turn(&mut board, 3, "d");
    assert_eq!(two.read(), "apersonbcagaind");
}

#[test]
fn a_file_that_went_another_way_is_put_aside() {
    let (one, two, mut board) = (Machine::new(), Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    two.turn(&mut board, 1, "b");
    one.append("s1.log", "person");
    one.turn(&mut board, 2, "c");
    assert_eq!(one.read(), "abc");
    assert_eq!(fs::read_to_string(one.file("s1.log.before-2")).unwrap(), "aperson");
}

#[test]
fn the_result_was_stored_and_the_worker_died_before_it_knew() {
    let (one, mut board) = (Machine::new(), Board::default());
    let copy = one.begin(&board, 0);
    one.append("s1.log", "a");
    one.commit(&mut board, copy, 1);
    let mut record = one.copy();
    record.begin(Some(0)).unwrap();
    one.turn(&mut board, 1, "b");
    assert_eq!((one.read().as_str(), one.files().len()), ("ab", 1));
}

#[test]
fn files_of_other_sessions_are_added_and_never_taken_away() {
    let (one, two, mut board) = (Machine::new(), Machine::new(), Board::default());
    one.append("parent.log", "p1");
    one.turn(&mut board, 0, "a");
    two.append("parent.log", "p2");
    two.turn(&mut board, 1, "b");
    assert_eq!(fs::read_to_string(two.file("parent.log")).unwrap(), "p2");
    let three = Machine::new();
    three.turn(&mut board, 2, "c");
    assert!(three.file("parent.log").exists());
}

#[test]
fn a_copy_whose_files_are_gone_is_not_current() {
    let (one, mut board) = (Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    fs::remove_file(one.file("s1.log")).unwrap();
    one.turn(&mut board, 1, "b");
    assert_eq!(one.read(), "ab");
}

#[test]
fn a_session_that_is_too_large_stays_and_says_so() {
    let (one, board) = (Machine::new(), Board::default());
    let mut copy = one.begin(&board, 0);
    one.append("s1.log", "a");
    let collected = copy.collect(one.store(), 8);
    assert_eq!(collected.stays.as_deref(), Some("its files have more than 0 MB"));
    assert!(collected.pieces.is_empty());
    copy.committed(1, collected).unwrap();
    assert!(one.copy().is_current(1, one.store()), "it goes on here");
    assert!(one.copy().collect(one.store(), LIMIT).stays.is_some(), "for good");
}

#[test]
fn a_turn_that_was_not_stored_is_not_replaced_when_a_later_one_is_lost() {
    let (one, mut board) = (Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    let mut copy = one.begin(&board, 1);
    one.append("s1.log", "b");
    let collected = one.collect_too_much(&mut copy, 2);
    copy.committed(2, collected).unwrap();
    let lost = one.begin(&board, 2);
    one.append("s1.log", "half");
    drop(lost);
    one.begin(&board, 2);
    assert_eq!((one.read().as_str(), one.files().len()), ("abhalf", 1));
}

#[test]
fn a_turn_that_was_not_stored_is_kept_if_the_worker_dies_before_it_knows_of_its_result() {
    let (one, mut board) = (Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    let mut copy = one.begin(&board, 1);
    one.append("s1.log", "b");
    let _ = one.collect_too_much(&mut copy, 2);
    drop(copy);
    one.begin(&board, 2);
    assert_eq!((one.read().as_str(), one.files().len()), ("ab", 1));
}

#[test]
fn a_turn_that_was_neither_stored_nor_completed_is_replaced() {
    let (one, mut board) = (Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    let mut copy = one.begin(&board, 1);
    one.append("s1.log", "half");
    let _ = one.collect_too_much(&mut copy, 2);
    drop(copy);
    one.begin(&board, 1);
    assert_eq!(one.read(), "a");
}

#[test]
fn a_turn_that_was_not_stored_is_kept_if_a_later_one_is_left_out_too_and_lost() {
    let (one, mut board) = (Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    let mut copy = one.begin(&board, 1);
    one.append("s1.log", "b");
    let collected = one.collect_too_much(&mut copy, 2);
    copy.committed(2, collected).unwrap();
    for (attempt, left) in [(3, "abc"), (4, "abcc")] {
        let mut lost = one.begin(&board, 2);
        one.append("s1.log", "c");
        let _ = one.collect_too_much(&mut lost, attempt);
        drop(lost);
        one.begin(&board, 2);
        assert_eq!((one.read().as_str(), one.files().len()), (left, 1));
    }
    // The last attempt was completed, and nobody here knew of it.
    one.begin(&board, 4);
    assert_eq!((one.read().as_str(), one.files().len()), ("abcc", 1));
}

#[test]
fn what_an_older_takopi_recorded_as_only_here_is_kept() {
    for (recorded, current) in [("2", true), ("null", false), ("[1,2]", true)] {
        let one = Machine::new();
        one.append("s1.log", "ab");
        let directory = one.dir.path().join("sessions");
        fs::create_dir(&directory).unwrap();
        let record =
            format!(r#"{{"generation":1,"busy":true,"only_here":{recorded},"stored":{{}}}}"#);
        fs::write(directory.join(format!("{SID}.json")), record).unwrap();
        assert_eq!(one.copy().is_current(2, one.store()), current, "{recorded}");
    }
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    let (one, mut board) = (Machine::new(), Board::default());
    one.turn(&mut board, 0, "a");
    let mut piece = board.0.values().next().unwrap().clone();
    piece.path = "../config.toml".to_owned();
    assert!(Machine::new().copy().place(1, vec![piece], one.store()).is_err());
}
