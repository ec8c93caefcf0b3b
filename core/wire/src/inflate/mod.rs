//! Gzip and zlib files, inflated while their bytes arrive, or from any of the points that were saved earlier.
//!
//! [`Inflater`] reads nothing itself and takes pieces that may end anywhere. If it begins with the start of the file,
//! it also compares the checksums. [`Points`] are places between two blocks from which a file can be inflated without
//! the bytes before. [`Inflated`] is a source that uses them.

mod head;
mod points;
mod source;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress_with_limit};

use head::Sum;
pub use head::Wrapper;
pub use points::{Point, Points};
pub use source::Inflated;

use crate::error::{Result, WireError};

/// How many bytes of earlier output a match may refer to.
const WINDOW: usize = 1 << 15;
/// Bytes of the output buffer, which is a ring; a power of two.
const RING: usize = 1 << 17;

/// Inflates one file. Gzip files may have several members.
pub struct Inflater {
    wrapper: Wrapper,
    decoder: Box<DecompressorOxide>,
    ring: Vec<u8>,
    /// The position of the next byte in the ring.
    at: usize,
    phase: Phase,
    taken: u64,
    made: u64,
    /// The checksum of the member; None when a part of the member was not seen.
    sum: Option<Sum>,
}

enum Phase {
    /// In a header; these bytes of it have arrived.
    Head(Vec<u8>),
    Body,
    /// In a trailer; these bytes of it have arrived.
    Tail(Vec<u8>),
    Ended,
}

/// The result of a step.
pub struct Step<'a> {
    /// Bytes taken from the front of the input.
    pub used: usize,
    /// The inflated bytes.
    pub bytes: &'a [u8],
    /// True between two blocks, where a point can be saved.
    pub boundary: bool,
    /// True if more bytes can be inflated without further input.
    pub more: bool,
}

impl Inflater {
    /// Makes an inflater for the start of a file.
    pub fn new(wrapper: Wrapper) -> Self {
        let phase = Phase::Head(Vec::new());
        Self { wrapper, decoder: Box::default(), ring: vec![0; RING], at: 0, phase, taken: 0, made: 0, sum: None }
    }

    /// Bytes of the file that were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that were inflated.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// True at a position where a file may end.
    pub fn is_whole(&self) -> bool {
        match &self.phase {
            Phase::Head(seen) => seen.is_empty() && self.taken > 0,
            phase => matches!(phase, Phase::Ended),
        }
    }

    /// Inflates up to `most` bytes of `input`. Damaged input fails with a `Corrupt` error and its offset in the file.
    pub fn step(&mut self, input: &[u8], most: usize) -> Result<Step<'_>> {
        match &mut self.phase {
            Phase::Head(seen) => {
                let before = seen.len();
                seen.extend(input.iter().take(head::MOST - before));
                let found = head::length(self.wrapper, seen, self.taken)?;
                let used = found.unwrap_or(seen.len()) - before;
                if found.is_some() {
                    self.phase = Phase::Body;
                    self.sum = Some(Sum::new(self.wrapper));
                    *self.decoder = DecompressorOxide::default();
                }
                Ok(self.passed(used))
            }
            Phase::Body => self.inflate(input, most),
            Phase::Tail(seen) => {
                let before = seen.len();
                seen.extend(input.iter().take(self.wrapper.tail() - before));
                let used = seen.len() - before;
                if seen.len() == self.wrapper.tail() {
                    if self.sum.as_ref().is_some_and(|sum| !sum.agrees(seen)) {
                        let message = "the compressed data does not match its checksum: its records cannot be trusted";
                        return Err(WireError::corrupt(self.taken, message));
                    }
                    self.phase = self.wrapper.behind();
                }
                Ok(self.passed(used))
            }
            Phase::Ended if input.is_empty() => Ok(self.passed(0)),
            Phase::Ended => Err(WireError::corrupt(self.taken, "extra bytes follow the end of the compressed data")),
        }
    }

    fn passed(&mut self, used: usize) -> Step<'_> {
        self.taken += used as u64;
        Step { used, bytes: &[], boundary: false, more: false }
    }

    fn inflate(&mut self, input: &[u8], most: usize) -> Result<Step<'_>> {
        let flags = TINFL_FLAG_HAS_MORE_INPUT | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;
        let at = self.at;
        let (status, used, made) =
            decompress_with_limit(&mut self.decoder, input, &mut self.ring, at, most.min(RING - at), flags);
        if (status as i8) < 0 {
            return Err(WireError::corrupt(self.taken, "the compressed data is damaged"));
        }
        if status == TINFLStatus::Done {
            self.phase = Phase::Tail(Vec::new());
        }
        self.at = (at + made) % RING;
        self.taken += used as u64;
        self.made += made as u64;
        let bytes = self.ring.get(at..at + made).unwrap_or_default();
        if let Some(sum) = &mut self.sum {
            sum.update(bytes);
        }
        let boundary = status == TINFLStatus::BlockBoundary;
        Ok(Step { used, bytes, boundary, more: boundary || status == TINFLStatus::HasMoreOutput })
    }
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").field("taken", &self.taken).field("made", &self.made).finish_non_exhaustive()
    }
}
