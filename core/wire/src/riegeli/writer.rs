//! A writer of chunks: their headers, their data, and a block header at every block.

use super::fault::next_block;
use super::header::{BlockHeader, ChunkHeader, ChunkKind, Hasher};
use super::layout::{self, BLOCK_HEADER, CHUNK_HEADER};
use crate::error::{Kind, Result, WireError};

/// A destination of written bytes, provided by the caller.
pub trait Sink {
    /// Appends all of `parts`, in order.
    fn write(&mut self, parts: &[&[u8]]) -> Result<()>;
}

/// Writes the chunk of `header` and `data` to `sink`, whose position is the boundary `begin`; returns the chunk's end.
pub fn put_chunk<S: Sink + ?Sized>(header: &ChunkHeader, data: &[&[u8]], begin: u64, sink: &mut S) -> Result<u64> {
    let end = layout::chunk_end(begin, header.data_size, header.records).ok_or_else(too_long)?;
    let blocks = block_headers(begin, end);
    let head = header.encode();
    let padding = padding(begin, header, end);
    let mut cutter = Cutter { position: begin, blocks: blocks.chunks_exact(24), parts: Vec::new() };
    cutter.push(&head);
    data.iter().for_each(|part| cutter.push(part));
    // Zeros fill the rest of the chunk, because the chunk must be at least as long as its number of records.
    for part in &padding {
        cutter.push(part);
    }
    sink.write(&cutter.parts)?;
    Ok(end)
}

fn too_long() -> WireError {
    WireError::new(Kind::Unsupported, "the file would be longer than 2^64 bytes")
}

const ZEROS: &[u8] = &[0; 4096];

fn padding(begin: u64, header: &ChunkHeader, end: u64) -> Vec<&'static [u8]> {
    let mut left = layout::distance(begin, end).saturating_sub(header.data_size.saturating_add(CHUNK_HEADER));
    let mut parts = Vec::new();
    while left > 0 {
        let len = left.min(ZEROS.len() as u64);
        parts.push(ZEROS.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default());
        left -= len;
    }
    parts
}

/// The headers of the blocks that begin in `begin..end`, concatenated.
fn block_headers(begin: u64, end: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut block = next_block(begin);
    while let Some(at) = block.filter(|&at| at < end) {
        bytes.extend_from_slice(&BlockHeader { previous: at - begin, next: end - at }.encode());
        block = at.checked_add(layout::BLOCK);
    }
    bytes
}

/// Splits parts at block boundaries and inserts the block headers.
struct Cutter<'a> {
    position: u64,
    blocks: std::slice::ChunksExact<'a, u8>,
    parts: Vec<&'a [u8]>,
}

impl<'a> Cutter<'a> {
    fn push(&mut self, mut part: &'a [u8]) {
        while !part.is_empty() {
            if self.position.is_multiple_of(layout::BLOCK) {
                self.parts.extend(self.blocks.next());
                self.position += BLOCK_HEADER;
            }
            let room = usize::try_from(layout::left_in_block(self.position)).unwrap_or(part.len());
            let (now, later) = part.split_at(room.min(part.len()));
            self.parts.push(now);
            self.position += now.len() as u64;
            part = later;
        }
    }
}

/// The header of a chunk of the given kind with `data`.
pub fn header_of(kind: ChunkKind, data: &[&[u8]], records: u64, decoded_size: u64) -> ChunkHeader {
    let mut hasher = Hasher::default();
    data.iter().for_each(|part| hasher.update(part));
    let data_size = data.iter().map(|part| part.len() as u64).sum();
    ChunkHeader { data_size, data_hash: hasher.finish(), kind, records, decoded_size }
}
