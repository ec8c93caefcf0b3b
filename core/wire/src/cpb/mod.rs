//! Chunked protos (`.cpb`): riegeli files whose records are the chunks of a proto, followed by their metadata.
//!
//! Reading gives an image, which is indexed like any proto. The image is the merged proto as a rope of the records'
//! bytes and of rewritten lengths. Writing gives a rope of the file. XLA's split protos are read in the same way; their
//! first record is a manifest of the other records.

mod kept;
mod merge;
mod order;
mod placing;
mod records;
mod tree;
mod values;
mod xla_split;

use crate::error::Result;
use crate::limits::Limits;
use crate::metadata::{ChunkInfo, Metadata};
use crate::plan::Plan;
use crate::riegeli::{Framer, Hasher, record_hasher};
use crate::rope::Rope;
use crate::source::Source;

pub use merge::image;
pub use records::{Chunked, FILE, SIDE, Side, open, read_metadata};

/// Bytes that a file of any size may have beyond a limit that is a multiple of its size.
const FREE_BYTES: u64 = 1 << 20;

/// A writer of a `.cpb` file: its chunks and the hashes of their data.
#[derive(Debug)]
pub struct Writing<'a> {
    plan: &'a Plan,
    framer: Framer,
    chunks: Vec<ChunkInfo>,
}

impl<'a> Writing<'a> {
    /// Makes a writer for the chunks of `plan`.
    pub fn new(plan: &'a Plan, limits: &Limits) -> Self {
        Self { plan, framer: Framer::new(limits), chunks: Vec::new() }
    }

    /// A hasher for the data of a chunk of `len` bytes, which must get all bytes of the chunk.
    pub fn hasher(len: u64) -> Hasher {
        record_hasher(len)
    }

    /// Appends the next chunk; `hash` is the result of the chunk's hasher.
    pub fn push(&mut self, hash: u64) -> Result<()> {
        let Some(chunk) = self.plan.chunks.get(self.chunks.len()) else { return Ok(()) };
        let offset = self.framer.push(&chunk.rope, hash)?;
        self.chunks.push(ChunkInfo { kind: chunk.kind, size: chunk.rope.len(), offset });
        Ok(())
    }

    /// Ends the file with the metadata as the last record, and returns the file.
    pub fn finish(mut self) -> Result<Rope> {
        let metadata = Metadata { chunks: self.chunks, message: self.plan.message.clone() }.encode();
        let mut hasher = record_hasher(metadata.len() as u64);
        hasher.update(&metadata);
        self.framer.push(&Rope::literal(&metadata), hasher.finish())?;
        Ok(self.framer.finish())
    }
}

/// The metadata of the `.cpb` file for `plan`, which depends only on the sizes of the chunks.
pub fn metadata(plan: &Plan, limits: &Limits) -> Result<Metadata> {
    let mut writing = Writing::new(plan, limits);
    for _ in &plan.chunks {
        writing.push(0)?;
    }
    Ok(Metadata { chunks: writing.chunks, message: plan.message.clone() })
}

/// Most bytes of metadata for `source`, because decoded metadata takes many times as much memory.
fn description(source: &dyn Source) -> u64 {
    source.len().saturating_add(FREE_BYTES)
}
