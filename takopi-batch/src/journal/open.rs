//! Opening the files: locked, repaired, read, made short.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde::Deserialize;
use takopi_core::ResumeToken;
use uuid::Uuid;

use super::disk::{self, DiskFile};
use super::{Files, Journal, JournalError, Line, StateFile, state_path};
use crate::digest::Digest;
use crate::ledger::Ledger;

/// What a line of the results must have.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    ok: bool,
    #[serde(borrow, default)]
    session: Option<Cow<'a, str>>,
    #[serde(default)]
    resume: Option<ResumeToken>,
    attempts: u32,
}

pub(super) fn open(out: &Path) -> Result<Journal, JournalError> {
    let fault = |doing| move |error| JournalError::Io { doing, path: out.to_owned(), error };
    let existed = match std::fs::metadata(out) {
        Ok(found) if !found.is_file() => return Err(JournalError::NotAFile(out.to_owned())),
        found => found.is_ok(),
    };
    let mut results = DiskFile(
        OpenOptions::new().create(true).read(true).append(true).open(out).map_err(fault("open"))?,
    );
    match results.0.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(JournalError::Busy(out.to_owned())),
        Err(TryLockError::Error(error)) => return Err(fault("lock")(error)),
    }
    // However the results are called this time, their state has one place.
    let place = out.canonicalize().map_err(fault("find"))?;
    let path = state_path(&place);
    let mut ledger = Ledger::default();
    let end = read(&results.0, out, |line| {
        let Head { id, ok, session, resume, attempts } = serde_json::from_slice(line).ok()?;
        ledger.closed(Digest::of(&id), ok, attempts);
        if let (Some(session), Some(resume)) = (session, resume) {
            ledger.spoken(Digest::of(&session), resume, ok);
        }
        Some(())
    })?;
    // What a batch was writing when it died stands behind results, or has a state beside it.
    let ours = |torn: &Torn| torn.is_result() && (torn.line > 1 || path.exists());
    let repair = match end {
        End::Whole => Ok(()),
        End::Unended => results.write_all(b"\n").and_then(|()| results.sync_data()),
        End::Torn(torn) if ours(&torn) => {
            results.set_len(torn.at).and_then(|()| results.sync_data())
        }
        End::Torn(Torn { line, .. }) | End::Bad(line) => {
            return Err(JournalError::NotAResult(out.to_owned(), line));
        }
    };
    repair.map_err(fault("repair"))?;

    // Without its results a batch starts over: no conversation is resumed.
    let mut forgotten = Ledger::default();
    read_state(&path, if existed { &mut ledger } else { &mut forgotten })?;
    ledger.batch.get_or_insert_with(Uuid::new_v4);
    let (state, appended) = rewrite(&path, &ledger)
        .and_then(|file| Ok((DiskFile(file.try_clone()?), DiskFile(file))))
        .map_err(|error| JournalError::Io { doing: "write", path: path.clone(), error })?;
    disk::sync_directory_of(&place).map_err(fault("sync the directory of"))?;
    let files = Files { path: out.to_owned(), results, state_path: path, state };
    Ok(Journal { files: Some((files, StateFile::new(appended))), ledger })
}

/// Takes in the state. Where it says nothing, what the results say of conversations counts.
fn read_state(path: &Path, ledger: &mut Ledger) -> Result<(), JournalError> {
    let fault = |error| JournalError::Io { doing: "open", path: path.to_owned(), error };
    let file = match File::open(path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(fault(error)),
    };
    let mut is_missing = true;
    let end = file.map_or(Ok(End::Whole), |file| {
        read(&file, path, |line| {
            serde_json::from_slice::<Line>(line).ok()?.apply(ledger);
            is_missing = false;
            Some(())
        })
    });
    ledger.restored |= is_missing && !ledger.jobs.is_empty();
    match end? {
        // It is rewritten without the torn line.
        End::Whole | End::Unended => Ok(()),
        End::Torn(torn) if torn.is_state() => Ok(()),
        End::Torn(Torn { line, .. }) | End::Bad(line) => {
            Err(JournalError::NotAState(path.to_owned(), line))
        }
    }
}

/// How a file ends.
enum End {
    /// With a whole line, or it is empty.
    Whole,
    /// With a whole line that only lacks its end.
    Unended,
    /// With something that is no whole line.
    Torn(Torn),
    /// The line of this number is none.
    Bad(u64),
}

/// What stands behind the last end of a line.
struct Torn {
    text: Vec<u8>,
    line: u64,
    at: u64,
}

/// Reads the lines of a file.
fn read(
    file: &File,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Option<()>,
) -> Result<End, JournalError> {
    let fault = |error| JournalError::Io { doing: "read", path: path.to_owned(), error };
    let mut reader = BufReader::new(file);
    let (mut text, mut line, mut at) = (Vec::new(), 0, 0);
    loop {
        text.clear();
        let read = reader.read_until(b'\n', &mut text).map_err(fault)?;
        if read == 0 {
            return Ok(End::Whole);
        }
        line += 1;
        let bare = text.trim_ascii();
        let taken = !bare.is_empty() && take(bare).is_some();
        match text.last() {
            Some(b'\n') if taken || bare.is_empty() => at += read as u64,
            Some(b'\n') => return Ok(End::Bad(line)),
            _ if taken => return Ok(End::Unended),
            _ => return Ok(End::Torn(Torn { text, line, at })),
        }
    }
}

impl Torn {
    /// Whether it can be the beginning of a result, with the fields in the order in which they are
    /// written. Anything else was not written by a batch.
    fn is_result(&self) -> bool {
        let text = self.filled();
        let (head, rest) = text.split_at(text.len().min(7));
        if !b"{\"id\":\"".starts_with(head) {
            return false;
        }
        let mut escaped = false;
        let id_ends = rest.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        });
        let behind = id_ends.map_or(&[][..], |end| &rest[end..]);
        let fields = [r#"","ok":true,"answer":""#, r#"","ok":false,"answer":""#];
        fields.iter().any(|fields| begin_alike(behind, fields.as_bytes()))
    }

    /// Whether it can be the beginning of a line of the state.
    fn is_state(&self) -> bool {
        begin_alike(self.filled(), b"{\"type\":\"")
    }

    /// It without blocks that were never filled, as a loss of power leaves them.
    fn filled(&self) -> &[u8] {
        let end = self.text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        &self.text[..end]
    }
}

/// Whether one of them is the beginning of the other.
fn begin_alike(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Rewrites the state, and replaces the old one in one step.
fn rewrite(path: &Path, ledger: &Ledger) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = Path::new(&name);
    let mut writer = BufWriter::new(DiskFile(File::create(fresh)?));
    Line::write_all(ledger, &mut writer)?;
    writer.flush()?;
    writer.get_ref().sync_data()?;
    disk::rename(fresh, path)?;
    // It is read if it has to be saved.
    OpenOptions::new().read(true).append(true).open(path)
}
