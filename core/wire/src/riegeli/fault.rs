//! Damage in a file, and the position at which reading may go on after it.

use super::layout::{block_of, left_in_block};
use crate::error::WireError;

/// Position at which reading may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Nowhere: it is not the file that failed.
    Never,
    /// At this position, where the next chunk begins.
    At(u64),
    /// At the first chunk that a block header from this position on tells of.
    SearchFrom(u64),
}

/// An error of a file together with where reading may go on.
#[derive(Debug)]
pub struct Fault {
    /// The error.
    pub error: WireError,
    /// The place to go on at.
    pub resume: Resume,
    /// True if the only fault is that the file ends too soon.
    pub truncated: bool,
}

impl Fault {
    pub(super) fn new(error: WireError, resume: Resume) -> Self {
        Self { error, resume, truncated: false }
    }

    /// Hashes that differ; `offset` is where the bytes end that were read for it.
    pub(super) fn mismatch(what: &str, (computed, stored): (u64, u64), place: &str, offset: u64) -> WireError {
        let message = format!(
            "Corrupted Riegeli/records file: {what} hash mismatch (computed {computed:#018x}, stored {stored:#018x}), {place}"
        );
        WireError::corrupt(offset, message)
    }

    /// A chunk of which only the first bytes are there.
    pub(super) fn truncated(begin: u64, end: Option<u64>, size: u64) -> Self {
        let length = size.saturating_sub(begin);
        let wanted = end.map(|end| format!(" < {}", end.saturating_sub(begin))).unwrap_or_default();
        let message =
            format!("Truncated Riegeli/records file, incomplete chunk at {begin} with length {length}{wanted}");
        let error = WireError::corrupt(size, message);
        Self { error, resume: Resume::At(size), truncated: true }
    }

    /// Headers that are sound but contradict each other or cannot be.
    pub(super) fn invalid(message: &str, offset: u64, resume: Resume) -> Self {
        Self::new(WireError::corrupt(offset, format!("Invalid Riegeli/records file: {message}")), resume)
    }
}

impl From<WireError> for Fault {
    /// A failure that skipping does not mend.
    fn from(error: WireError) -> Self {
        Self::new(error, Resume::Never)
    }
}

impl From<Fault> for WireError {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}

/// The first block that begins at or after `position`; none past 2^64.
pub(super) fn next_block(position: u64) -> Option<u64> {
    debug_assert!(block_of(position) <= position);
    position.checked_add(left_in_block(position))
}
