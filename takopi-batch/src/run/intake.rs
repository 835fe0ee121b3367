//! The input, read on a thread of its own: reading may block for as long as a producer likes.

use std::io;

use tokio::sync::mpsc;

use super::Source;
use crate::input::{Input, InputError, PromptTemplate};
use crate::job::BatchJob;

/// How many lines are handed over at once, at the most.
const LINES: usize = 128;
/// How many bytes of them.
const BYTES: usize = 1 << 20;

/// Lines that came together.
pub(super) type Chunk = Vec<Result<BatchJob, InputError>>;

/// Begins to read. One chunk is read ahead; a chunk is handed over as soon as the next line would have
/// to be waited for.
pub(super) fn read(
    source: Source,
    template: Option<PromptTemplate>,
) -> io::Result<mpsc::Receiver<Chunk>> {
    let (chunks, reader) = mpsc::channel(1);
    std::thread::Builder::new().name("takopi-input".to_owned()).spawn(move || {
        let mut input = Input::new(source.reader).format(source.format).template(template);
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while let Some(read) = input.next() {
            bytes += read.as_ref().map_or(0, BatchJob::weight);
            chunk.push(read);
            if chunk.len() < LINES && bytes < BYTES && input.has_next_line() {
                continue;
            }
            bytes = 0;
            if chunks.blocking_send(std::mem::take(&mut chunk)).is_err() {
                return;
            }
        }
    })?;
    Ok(reader)
}
