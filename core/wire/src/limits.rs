//! All limits on hostile input.

use crate::error::{Kind, Result, WireError};

/// The largest field number that protobuf allows.
pub const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

const BYTES_A_CHUNK: u64 = 4 << 10;
const FOUND_A_BYTE: u64 = 8;
/// Most bytes of findings, so that positions in them fit in 32 bits.
const MOST_FOUND: u64 = 1 << 30;

/// Limits on the work for one input. No memory is allocated because of a declared length alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most nested messages, including groups. The protobuf runtimes have the same limit, 100.
    pub depth: u32,
    /// Most fields and elements in an index.
    pub nodes: u64,
    /// Most bytes of a path in UTF-8.
    pub path: usize,
    /// Most bytes to which one compressed riegeli chunk may decode.
    pub decoded: u64,
    /// Most bytes of memory for decoding one chunk: the whole chunk if it cannot be decoded in pieces, else the codec's
    /// window.
    pub held: u64,
    /// Most bytes to which all compressed chunks of one chunked proto may decode.
    pub side: u64,
    /// Most extents and literals in one rope.
    pub pieces: usize,
    /// Most work for one mask: each examined element or field counts once for every selection that may match it.
    pub steps: u64,
    /// Most bytes of a chunked proto's metadata record.
    pub metadata: u64,
    /// Most chunks of a plan, in addition to one for every 4 KiB of the proto. Each takes about a kilobyte of memory.
    pub chunks: u64,
    /// Most bytes of memory for the index of a stream of records.
    pub records: u64,
    /// Most bytes of memory for the messages that a search finds, in addition to eight for each byte of the proto. A
    /// message of two bytes takes about fifty bytes.
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
    /// The limits for a chunk that is decoded as a whole in memory.
    pub(crate) fn in_memory(self) -> Self {
        Self { decoded: self.decoded.min(self.held), ..self }
    }

    /// Most chunks in a plan for a proto of `size` bytes.
    pub(crate) const fn chunks_of(&self, size: u64) -> u64 {
        self.chunks.saturating_add(size / BYTES_A_CHUNK)
    }

    /// Most bytes of memory for the findings of a search in a proto of `size` bytes.
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
