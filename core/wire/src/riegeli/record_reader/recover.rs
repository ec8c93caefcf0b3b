//! The recovery from damage.

use super::super::fault::{Fault, Resume, next_block};
use super::super::layout::{self, BLOCK_HEADER};
use super::super::walk::any_block_header;
use super::RecordReader;
use crate::source::Source;

/// A region of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The start of the region.
    pub begin: u64,
    /// The position at which reading continued.
    pub end: u64,
    /// The reason for skipping the region.
    pub message: String,
}

impl<S: Source> RecordReader<S> {
    /// Continues after the damage that the last call reported; None without damage or if recovery is impossible.
    pub fn recover(&mut self) -> Option<Skipped> {
        let (resume, message) = self.fault.take()?;
        let begin = self.begin;
        let end = self.resume(resume)?;
        (self.open, self.index) = (None, 0);
        Some(Skipped { begin, end, message })
    }

    /// Moves to the position at which reading can continue. Returns the end of the damage, which is not after the end
    /// of the file.
    fn resume(&mut self, mut resume: Resume) -> Option<u64> {
        let size = self.source.len();
        loop {
            let from = match resume {
                Resume::Never => return None,
                Resume::At(next) if layout::is_boundary(next) || next > size => {
                    self.begin = next;
                    return Some(next.min(size));
                }
                Resume::At(next) | Resume::SearchFrom(next) => next,
            };
            let Some(block) = next_block(from).filter(|&block| block <= size) else {
                self.begin = next_block(from).unwrap_or(u64::MAX);
                return Some(size);
            };
            resume = self.after_block(block)?;
        }
    }

    /// The position at which a chunk begins according to the header of `block`.
    fn after_block(&self, block: u64) -> Option<Resume> {
        if self.source.len() - block < BLOCK_HEADER {
            return Some(Resume::At(block));
        }
        let header = self.source.read(block, 24).map_err(Fault::from);
        match header.and_then(|bytes| any_block_header(block, &bytes)) {
            Ok(header) if header.previous == 0 => Some(Resume::At(block)),
            Ok(header) => block.checked_add(header.next).map(Resume::At),
            Err(fault) => Some(fault.resume),
        }
    }
}
