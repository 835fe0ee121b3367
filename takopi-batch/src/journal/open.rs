//! Opening the files: locked, repaired, read, made short.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::path::Path;

use serde::Deserialize;

use super::{Files, Journal, JournalError, Line, StateFile, state_path};
use crate::digest::Digest;
use crate::ledger::Ledger;

/// What a line of the results must have.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    ok: bool,
    attempts: u32,
}

pub(super) fn open(out: &Path) -> Result<Journal, JournalError> {
    let fault = |doing| move |source| JournalError::Io { doing, path: out.to_owned(), source };
    let existed = match std::fs::metadata(out) {
        Ok(found) if !found.is_file() => return Err(JournalError::NoFile(out.to_owned())),
        found => found.is_ok(),
    };
    let mut results =
        OpenOptions::new().create(true).read(true).append(true).open(out).map_err(fault("open"))?;
    match results.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(JournalError::Busy(out.to_owned())),
        Err(TryLockError::Error(source)) => return Err(fault("lock")(source)),
    }
    let mut ledger = Ledger::default();
    read(&mut results, out, |line| {
        let Head { id, ok, attempts } = serde_json::from_slice(line).ok()?;
        ledger.closed(Digest::of(&id), ok, attempts);
        Some(())
    })?
    .map_err(|line| JournalError::NoResult(out.to_owned(), line))?;

    let path = state_path(out);
    if existed {
        read_state(&path, &mut ledger)?;
    }
    // Who takes the results away begins anew: no conversation is gone on with.
    let (state, appended) = rewrite(&path, &ledger)
        .and_then(|file| Ok((file.try_clone()?, file)))
        .map_err(|source| JournalError::Io { doing: "write", path, source })?;
    sync_directory(out).map_err(fault("sync the directory of"))?;
    let files = Files { path: out.to_owned(), results, state };
    Ok(Journal { files: Some((files, StateFile::new(appended))), ledger })
}

fn read_state(path: &Path, ledger: &mut Ledger) -> Result<(), JournalError> {
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(JournalError::Io { doing: "open", path: path.to_owned(), source });
        }
    };
    read(&mut file, path, |line| {
        serde_json::from_slice::<Line>(line).ok()?.apply(ledger);
        Some(())
    })?
    .map_err(|line| JournalError::NoState(path.to_owned(), line))
}

/// Reads the lines of a file, and takes off a last one that was cut short. The inner error is the
/// number of the first line that is none.
fn read(
    file: &mut File,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Option<()>,
) -> Result<Result<(), u64>, JournalError> {
    let fault = |doing| move |source| JournalError::Io { doing, path: path.to_owned(), source };
    let mut reader = BufReader::new(&mut *file);
    let (mut line, mut number, mut good) = (Vec::new(), 0, 0_u64);
    let torn = loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(fault("read"))?;
        if read == 0 {
            break false;
        }
        number += 1;
        let whole = line.last() == Some(&b'\n');
        if !whole && is_beginning(&line) {
            break true;
        }
        let text = line.trim_ascii();
        if !whole || (!text.is_empty() && take(text).is_none()) {
            return Ok(Err(number));
        }
        good += read as u64;
    };
    if torn {
        file.set_len(good).map_err(fault("repair"))?;
        file.seek(io::SeekFrom::End(0)).map_err(fault("repair"))?;
        file.sync_data().map_err(fault("repair"))?;
    }
    Ok(Ok(()))
}

/// Whether a line without an end can be the beginning of one of ours: what else stands there is
/// somebody's, and is left alone. After a loss of power it can be blocks that were never filled.
fn is_beginning(line: &[u8]) -> bool {
    let begins = |head: &[u8]| line.starts_with(head) || head.starts_with(line);
    begins(b"{\"id\":") || begins(b"{\"type\":") || line.iter().all(|byte| *byte == 0)
}

/// Writes the state anew, and puts it in the place of the old one in one step.
fn rewrite(path: &Path, ledger: &Ledger) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = Path::new(&name);
    let mut writer = BufWriter::new(File::create(fresh)?);
    Line::write_all(ledger, &mut writer)?;
    writer.flush()?;
    writer.get_ref().sync_data()?;
    std::fs::rename(fresh, path)?;
    OpenOptions::new().append(true).open(path)
}

/// A new file is only there after a loss of power when its directory was synced too.
fn sync_directory(out: &Path) -> io::Result<()> {
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
