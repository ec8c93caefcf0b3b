//! Damage in a file, and the position at which reading can continue.

use super::layout::{block_of, left_in_block};
use crate::error::WireError;

/// The position at which reading can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Nowhere, because the file is not the cause.
    Never,
    /// At this position, where the next chunk begins.
    At(u64),
    /// At the first chunk to which a block header from this position on points.
    SearchFrom(u64),
}

/// An error of a file, and the position at which reading can continue.
#[derive(Debug)]
pub struct Fault {
    /// The error.
    pub error: WireError,
    /// The position at which to continue.
    pub resume: Resume,
    /// True if the only problem is that the file ends too early.
    pub truncated: bool,
}

impl Fault {
    pub(super) fn new(error: WireError, resume: Resume) -> Self {
        Self { error, resume, truncated: false }
    }

    /// The error for different hashes; `offset` is the end of the hashed bytes.
    pub(super) fn mismatch(what: &str, (computed, stored): (u64, u64), place: &str, offset: u64) -> WireError {
        let message = format!(
            "Corrupted Riegeli/records file: {what} hash mismatch (computed {computed:#018x}, stored {stored:#018x}), {place}"
        );
        WireError::corrupt(offset, message)
    }

    /// The fault of a chunk of which the file only has the beginning.
    pub(super) fn truncated(begin: u64, end: Option<u64>, size: u64) -> Self {
        let length = size.saturating_sub(begin);
        let wanted = end.map(|end| format!(" < {}", end.saturating_sub(begin))).unwrap_or_default();
        let message =
            format!("Truncated Riegeli/records file, incomplete chunk at {begin} with length {length}{wanted}");
        let error = WireError::corrupt(size, message);
        Self { error, resume: Resume::At(size), truncated: true }
    }

    /// The fault of headers whose hashes are valid but whose content is contradictory or impossible.
    pub(super) fn invalid(message: &str, offset: u64, resume: Resume) -> Self {
        Self::new(WireError::corrupt(offset, format!("Invalid Riegeli/records file: {message}")), resume)
    }
}

impl From<WireError> for Fault {
    /// Wraps an error that cannot be avoided by skipping.
    fn from(error: WireError) -> Self {
        Self::new(error, Resume::Never)
    }
}

impl From<Fault> for WireError {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}

/// The start of the first block at or after `position`; None beyond 2^64.
pub(super) fn next_block(position: u64) -> Option<u64> {
    debug_assert!(block_of(position) <= position);
    position.checked_add(left_in_block(position))
}
