//! Every bound on hostile input, in one place.

use crate::error::{Kind, Result, WireError};

/// The largest field number protobuf allows.
pub const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

const BYTES_A_CHUNK: u64 = 4 << 10;
const FOUND_A_BYTE: u64 = 8;
/// Findings are numbered in 32 bits.
const MOST_FOUND: u64 = 1 << 30;

/// Limits on the work that the engine does for one input. No allocation is made from a declared length alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting of messages, groups included. The protobuf runtimes stop at 100 too.
    pub depth: u32,
    /// Fields and elements in an index.
    pub nodes: u64,
    /// Bytes of a path in UTF-8.
    pub path: usize,
    /// Bytes that one compressed riegeli chunk may decode to.
    pub decoded: u64,
    /// Bytes of memory for decoding one chunk: all of a chunk that cannot be decoded in pieces, or a codec's window.
    pub held: u64,
    /// Bytes that the compressed chunks of one chunked proto may decode to, all together.
    pub side: u64,
    /// Extents and literals in one rope.
    pub pieces: usize,
    /// Work for one mask: each element and field examined counts once for every selection that may match it.
    pub steps: u64,
    /// Bytes of a `.cpb`'s metadata record.
    pub metadata: u64,
    /// Chunks of a plan, in addition to one for every 4 KiB of the proto. Each takes about a kilobyte of memory.
    pub chunks: u64,
    /// Bytes of memory for the index of a stream of records.
    pub records: u64,
    /// Bytes of memory for the messages that a search finds, in addition to eight for each byte of the proto: a message
    /// of two bytes takes about fifty.
    pub found: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 100,
            nodes: 1 << 28,
            path: 4096,
            decoded: 1 << 31,
            held: 1 << 31,
            side: u64::MAX,
            pieces: 1 << 24,
            steps: 1 << 24,
            metadata: 256 << 20,
            chunks: 1 << 14,
            records: 1 << 32,
            found: 32 << 20,
        }
    }
}

impl Limits {
    /// The limits for a chunk that is decoded in memory as a whole.
    pub(crate) fn in_memory(self) -> Self {
        Self { decoded: self.decoded.min(self.held), ..self }
    }

    /// Most chunks in a plan for a proto of `size` bytes.
    pub(crate) const fn chunks_of(&self, size: u64) -> u64 {
        self.chunks.saturating_add(size / BYTES_A_CHUNK)
    }

    /// Most bytes of memory for what a search finds in a proto of `size` bytes.
    pub(crate) fn found_of(&self, size: u64) -> u64 {
        self.found.saturating_add(size.saturating_mul(FOUND_A_BYTE)).min(MOST_FOUND)
    }

    /// Fails unless `depth` is allowed.
    pub fn check_depth(&self, depth: u32, offset: u64) -> Result<()> {
        if depth <= self.depth {
            return Ok(());
        }
        let message =
            format!("messages are nested more than {} levels deep; raise the depth limit to read it", self.depth);
        Err(WireError::new(Kind::Limit, message).at(offset))
    }
}
