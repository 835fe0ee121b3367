//! The pipes of a child.
//!
//! A pipe is at its end when every writer closed it, or when the child is gone and what was in the
//! pipe is read: a grandchild that inherited the writing end delays nothing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::frames::{Frame, LineFramer};
use crate::sys::pipe_capacity;

/// What is read at the most before the others on the supervisor's thread have their turn: reads from
/// a process that never stops printing never have to wait.
const GREED_LIMIT: usize = 64 * 1024;

pub(super) struct PipeReader {
    pipe: pipe::Receiver,
    /// Bytes read since the others had their turn.
    greed: usize,
    exited: watch::Receiver<bool>,
    /// Bytes that may still be read, once the child is gone: as many as the pipe can hold, so nothing the
    /// child wrote is lost, and a grandchild that goes on writing does not keep the reader.
    left: Option<usize>,
}

impl PipeReader {
    pub(super) fn new(fd: OwnedFd, exited: watch::Receiver<bool>) -> io::Result<Self> {
        Ok(Self { pipe: pipe::Receiver::from_owned_fd(fd)?, greed: 0, exited, left: None })
    }

    /// Reads some bytes; 0 at the end. Cancel-safe.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.greed >= GREED_LIMIT {
            self.greed = 0;
            tokio::task::yield_now().await;
        }
        let count = self.read_some(buffer).await?;
        self.greed += count;
        Ok(count)
    }

    /// Reads what is there without waiting, as long as that is fair to the others.
    fn try_read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.left.is_some() || self.greed >= GREED_LIMIT {
            return None;
        }
        let count = self.pipe.try_read(buffer).ok().filter(|count| *count > 0)?;
        self.greed += count;
        Some(count)
    }

    async fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(left) = self.left {
                // No waiting any more, and no trust in cached readiness: ask the kernel itself.
                let count = match read_fd(&self.pipe, buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    result => result?,
                };
                self.left = Some(left.saturating_sub(count));
                return Ok(if left == 0 { 0 } else { count });
            }
            tokio::select! {
                // The exit first: a grandchild that never stops writing must not hide it.
                biased;
                _ = self.exited.wait_for(|exited| *exited) => {
                    self.left = Some(pipe_capacity(&self.pipe));
                }
                ready = self.pipe.readable() => {
                    ready?;
                    match self.pipe.try_read(buffer) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        result => return result,
                    }
                }
            }
        }
    }
}

fn read_fd(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match nix::unistd::read(fd.as_fd(), buffer) {
            Err(nix::errno::Errno::EINTR) => {}
            result => return Ok(result?),
        }
    }
}

/// The standard output of a process, in frames.
///
/// ```no_run
/// use takopi_core::Host;
/// use takopi_core::process::{Frame, Launch, SpawnError};
///
/// async fn count_lines(host: &Host) -> Result<usize, SpawnError> {
///     let (process, mut output) = host.start(Launch::new("ls")).await?;
///     let mut lines = 0;
///     while output.fill().await {
///         while let Some(frame) = output.pop() {
///             lines += usize::from(matches!(frame, Frame::Line(_)));
///         }
///     }
///     process.finish();
///     Ok(lines)
/// }
/// ```
pub struct Output {
    pipe: PipeReader,
    framer: LineFramer,
    ended: bool,
}

impl Output {
    pub(super) fn new(pipe: PipeReader, line_limit: usize) -> Self {
        Self { pipe, framer: LineFramer::new(line_limit), ended: false }
    }

    /// Reads more; `false` when the output is at its end and every frame was popped. Cancel-safe.
    pub async fn fill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let count = match self.pipe.read(self.framer.room()).await {
            Ok(count) => count,
            Err(error) => {
                tracing::debug!(%error, "cannot read the engine's output");
                0
            }
        };
        self.framer.advance(count);
        if count == 0 {
            self.ended = true;
            self.framer.finish();
        }
        true
    }

    /// Reads what is there already; `false` if that is nothing. The end is for [`Self::fill`] to see.
    pub fn try_fill(&mut self) -> bool {
        let count = self.pipe.try_read(self.framer.room());
        self.framer.advance(count.unwrap_or_default());
        count.is_some()
    }

    /// The next frame that is whole.
    pub fn pop(&mut self) -> Option<Frame<'_>> {
        self.framer.pop()
    }
}

/// The standard input of a process that is talked to.
///
/// Lines go through a bounded queue to the owner, which writes them; dropping the writer closes the
/// process's standard input once the queue is empty.
#[derive(Debug, Clone)]
pub struct StdinWriter {
    queue: mpsc::Sender<Vec<u8>>,
}

impl StdinWriter {
    pub(super) fn channel() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (queue, lines) = mpsc::channel(64);
        (Self { queue }, lines)
    }

    /// Queues bytes if there is room for them.
    pub(super) fn queue_now(&self, bytes: Vec<u8>) -> bool {
        self.queue.try_send(bytes).is_ok()
    }

    /// Queues bytes; `false` when the process no longer reads.
    pub async fn write(&self, bytes: Vec<u8>) -> bool {
        self.queue.send(bytes).await.is_ok()
    }
}

/// Writes what an engine is given and closes its standard input. A broken pipe is the engine's
/// choice: its events and its exit status decide.
pub(super) async fn feed(mut stdin: pipe::Sender, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = lines.recv().await {
        if let Err(error) = stdin.write_all(&bytes).await {
            tracing::debug!(%error, "the engine does not read its input");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn once_the_child_is_gone_all_that_the_pipe_held_is_read_and_no_flood_behind_it() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (_exit, exited) = watch::channel(true);
        let mut reader = PipeReader::new(reader.into(), exited).unwrap();
        let capacity = pipe_capacity(&reader.pipe);
        writer.write_all(&vec![b'x'; capacity]).unwrap();
        let mut buffer = vec![0; 4096];
        let mut read = 0;
        loop {
            let count = reader.read(&mut buffer).await.unwrap();
            if count == 0 {
                break;
            }
            read += count;
            // Somebody else goes on writing for as long as somebody reads.
            writer.write_all(&buffer[..count]).unwrap();
        }
        assert!((capacity..capacity + buffer.len()).contains(&read), "{read} of {capacity}");
    }

    #[tokio::test]
    async fn reads_that_need_not_wait_let_others_have_their_turn_after_a_while() {
        for waits in [false, true] {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let (_exit, exited) = watch::channel(false);
            let mut reader = PipeReader::new(reader.into(), exited).unwrap();
            let mut buffer = vec![0; GREED_LIMIT / 16];
            for _ in 0..16 {
                writer.write_all(&vec![0; buffer.len()]).unwrap();
                let count = if waits {
                    reader.read(&mut buffer).await.unwrap()
                } else {
                    reader.pipe.readable().await.unwrap();
                    reader.try_read(&mut buffer).unwrap()
                };
                assert_eq!(count, buffer.len());
            }
            writer.write_all(b"more").unwrap();
            reader.pipe.readable().await.unwrap();
            assert_eq!(reader.try_read(&mut buffer), None, "it is the turn of others");
            assert_eq!(reader.read(&mut buffer).await.unwrap(), 4);
            writer.write_all(b"more").unwrap();
            reader.pipe.readable().await.unwrap();
            assert_eq!(reader.try_read(&mut buffer), Some(4));
        }
    }
}
