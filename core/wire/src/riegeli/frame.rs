//! The framing of ropes as a riegeli file of uncompressed chunks.

use super::header::{BlockHeader, ChunkHeader, ChunkKind, Hasher, hash, signature};
use super::layout::{self, CHUNK_HEADER};
use crate::error::{Kind, Result, WireError};
use crate::limits::Limits;
use crate::rope::{Piece, Rope, RopeBuilder};
use crate::varint;

/// The bytes before the record in the data of a chunk whose only record has `len` bytes.
pub fn prefix(len: u64) -> Vec<u8> {
    let mut sizes = Vec::new();
    varint::write(len, &mut sizes);
    front(&sizes)
}

/// The bytes before the records in a chunk's data: the mark for no compression, and the records' sizes as varints.
fn front(sizes: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    varint::write(sizes.len() as u64, &mut bytes);
    bytes.extend_from_slice(sizes);
    bytes
}

/// A hasher that got the bytes before a record of `len` bytes. The caller must add the record; [`Hasher::finish`] then
/// returns the hash for [`Framer::push`].
pub fn record_hasher(len: u64) -> Hasher {
    let mut hasher = Hasher::default();
    hasher.update(&prefix(len));
    hasher
}

/// Builds a file of records as a rope. Records are extents; everything else is a literal: the signature, the headers of
/// blocks and chunks, and the few bytes before each record.
#[derive(Debug)]
pub struct Framer {
    rope: RopeBuilder,
}

impl Framer {
    /// Starts a file without records.
    pub fn new(limits: &Limits) -> Self {
        let mut rope = RopeBuilder::new(limits);
        rope.literal(&signature());
        Self { rope }
    }

    /// Appends `record` and returns its numeric position. `hash` is the hash of its chunk's data; see
    /// [`record_hasher`].
    pub fn push(&mut self, record: &Rope, hash: u64) -> Result<u64> {
        self.chunk(ChunkKind::Simple, &prefix(record.len()), record, 1, hash)
    }

    /// Appends a chunk of `count` records and returns its position. `sizes` are the records' lengths as varints, and
    /// `bytes` are the bytes of the rope `records`.
    pub fn push_all(&mut self, count: u64, sizes: &[u8], records: &Rope, bytes: &[u8]) -> Result<u64> {
        let front = front(sizes);
        let mut hasher = Hasher::default();
        hasher.update(&front);
        hasher.update(bytes);
        self.chunk(ChunkKind::Simple, &front, records, count, hasher.finish())
    }

    /// Appends a chunk of `records` records and returns its position. The chunk's data are `front` followed by
    /// `values`, and `hash` is the hash of the data.
    fn chunk(&mut self, kind: ChunkKind, front: &[u8], values: &Rope, records: u64, hash: u64) -> Result<u64> {
        let begin = layout::round_up(self.rope.len()).ok_or_else(too_long)?;
        let data_size = values.len().checked_add(front.len() as u64).ok_or_else(too_long)?;
        let decoded_size = if kind == ChunkKind::Simple { values.len() } else { 0 };
        let header = ChunkHeader { data_size, data_hash: hash, kind, records, decoded_size };
        let end = layout::chunk_end(begin, data_size, records).ok_or_else(too_long)?;
        let mut chunk = Chunk { rope: &mut self.rope, begin, end };
        chunk.literal(&header.encode())?;
        chunk.literal(front)?;
        for piece in values.pieces() {
            chunk.piece(piece)?;
        }
        // Each record takes a position of the file. So a chunk with many short records, or with an empty record at a
        // block's end, must be longer than its data.
        let rest = layout::distance(begin, end).saturating_sub(data_size.saturating_add(CHUNK_HEADER));
        chunk.literal(&vec![0; usize::try_from(rest).unwrap_or(0)])?;
        Ok(begin)
    }

    /// Appends padding up to the start of the next block.
    pub fn pad_to_block(&mut self) -> Result<()> {
        let at = self.rope.len();
        let end = layout::padded(at, layout::BLOCK).ok_or_else(too_long)?;
        let zeros = vec![0; usize::try_from(layout::distance(at, end).saturating_sub(CHUNK_HEADER)).unwrap_or(0)];
        self.chunk(ChunkKind::Padding, &zeros, &Rope::default(), 0, hash(&zeros)).map(|_| ())
    }

    /// The length of the file so far.
    pub fn len(&self) -> u64 {
        self.rope.len()
    }

    /// True before anything is written; a file is never empty.
    pub fn is_empty(&self) -> bool {
        self.rope.is_empty()
    }

    /// The rope of the file.
    pub fn finish(self) -> Rope {
        self.rope.finish()
    }
}

fn too_long() -> WireError {
    WireError::new(Kind::Unsupported, "the file would be longer than 2^64 bytes")
}

struct Chunk<'a> {
    rope: &'a mut RopeBuilder,
    begin: u64,
    end: u64,
}

impl Chunk<'_> {
    fn literal(&mut self, bytes: &[u8]) -> Result<()> {
        self.piece(Piece::Literal(bytes))
    }

    /// Appends `piece`, split at block boundaries.
    fn piece(&mut self, piece: Piece<'_>) -> Result<()> {
        let mut done = 0;
        while done < piece.len() {
            let at = self.rope.len();
            if at.is_multiple_of(layout::BLOCK) {
                self.rope.literal(&BlockHeader { previous: at - self.begin, next: self.end - at }.encode());
            }
            let room = layout::left_in_block(self.rope.len());
            let len = room.min(piece.len() - done);
            self.rope.piece(cut(piece, done, len));
            self.rope.check()?;
            done += len;
        }
        Ok(())
    }
}

fn cut(piece: Piece<'_>, from: u64, len: u64) -> Piece<'_> {
    match piece {
        Piece::Extent { source, offset, .. } => Piece::Extent { source, offset: offset + from, len },
        Piece::Literal(bytes) => {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            let bytes = bytes.get(from..).unwrap_or_default();
            Piece::Literal(bytes.get(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or_default())
        }
    }
}
