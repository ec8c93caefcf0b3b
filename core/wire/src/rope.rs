//! Ropes, which describe bytes instead of containing them. A rope is a list of extents of sources and of short
//! literals. Its length is known without a read, a slice costs a binary search, and adjacent extents are joined.

mod batch;
mod builder;
mod serialized;

use std::ops::Range;
use std::sync::Arc;

pub use batch::{Batch, Bounds, Found};
pub use builder::RopeBuilder;

/// The number of a source, assigned by the caller; an extent refers to its source by this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// The source to which an index refers: the whole proto as one sequence of bytes.
pub const IMAGE: SourceId = SourceId(0);

/// One piece of a rope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// `len` bytes of `source` from `offset` on.
    Extent {
        /// The source of the bytes.
        source: SourceId,
        /// The offset of the first byte in `source`.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Bytes that are not in any source.
    Literal(&'a [u8]),
}

impl Piece<'_> {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Extent { len, .. } => *len,
            Self::Literal(bytes) => bytes.len() as u64,
        }
    }

    /// True for a piece without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A segment of a rope. `end` is its end in the rope, and `at` is its start in its source or among the literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    end: u64,
    at: u64,
    source: Option<SourceId>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Shared {
    segments: Vec<Segment>,
    literals: Vec<u8>,
}

/// A sequence of bytes made of extents and literals. Clones and slices share the underlying data.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    shared: Arc<Shared>,
    start: u64,
    end: u64,
}

impl Rope {
    /// A rope of `len` bytes of `source` from `offset` on.
    pub fn extent(source: SourceId, offset: u64, len: u64) -> Self {
        let mut builder = RopeBuilder::default();
        builder.extent(source, offset, len);
        builder.finish()
    }

    /// A rope of `bytes`.
    pub fn literal(bytes: &[u8]) -> Self {
        let mut builder = RopeBuilder::default();
        builder.literal(bytes);
        builder.finish()
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// True for a rope without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes `range` of the rope, as far as they exist.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Self {
        let start = self.start.saturating_add(range.start).min(self.end);
        let end = self.start.saturating_add(range.end).clamp(start, self.end);
        Self { shared: Arc::clone(&self.shared), start, end }
    }

    /// The pieces in order; none of them is empty.
    pub fn pieces(&self) -> Pieces<'_> {
        let at = self.shared.segments.partition_point(|segment| segment.end <= self.start);
        Pieces { shared: &self.shared, at, position: self.start, end: self.end }
    }

    /// The ranges of `source` to which extents of at least `least` bytes refer, in the order of the rope.
    pub fn extents(&self, source: SourceId, least: u64) -> impl Iterator<Item = Range<u64>> {
        self.pieces().filter_map(move |piece| match piece {
            Piece::Extent { source: of, offset, len } if of == source && len >= least => {
                Some(offset..offset.saturating_add(len))
            }
            _ => None,
        })
    }

    /// Number of pieces.
    pub fn piece_count(&self) -> usize {
        let segments = &self.shared.segments;
        let first = segments.partition_point(|segment| segment.end <= self.start);
        let last = segments.partition_point(|segment| segment.end < self.end);
        if self.is_empty() { 0 } else { last + 1 - first }
    }

    /// The same bytes, but extents of `source` are replaced with parts of `base`, the rope of which `source` consists.
    pub fn through(&self, source: SourceId, base: &Rope) -> Self {
        let mut builder = RopeBuilder::default();
        for piece in self.pieces() {
            match piece {
                Piece::Extent { source: of, offset, len } if of == source => {
                    builder.rope(&base.slice(offset..offset.saturating_add(len)));
                }
                other => builder.piece(other),
            }
        }
        builder.finish()
    }
}

impl PartialEq for Rope {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.pieces().eq(other.pieces())
    }
}

impl Eq for Rope {}

/// The pieces of a rope, in order.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    shared: &'a Shared,
    at: usize,
    position: u64,
    end: u64,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.position >= self.end {
            return None;
        }
        let segment = self.shared.segments.get(self.at)?;
        let before = self.at.checked_sub(1).and_then(|i| self.shared.segments.get(i)).map_or(0, |s| s.end);
        let at = segment.at + (self.position - before);
        let len = segment.end.min(self.end) - self.position;
        self.at += 1;
        self.position += len;
        match segment.source {
            Some(source) => Some(Piece::Extent { source, offset: at, len }),
            None => {
                let range = usize::try_from(at).ok()?..usize::try_from(at + len).ok()?;
                self.shared.literals.get(range).map(Piece::Literal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::reader::Reader;
    use proptest::prelude::*;

    const SOURCES: [[u8; 64]; 2] = [[b'a'; 64], [b'b'; 64]];

    fn sources() -> [Vec<u8>; 2] {
        SOURCES.map(|bytes| bytes.iter().zip(0u8..).map(|(b, i)| b ^ i).collect())
    }

    fn bytes_of(rope: &Rope) -> Vec<u8> {
        let sources = sources();
        let mut out = Vec::new();
        for piece in rope.pieces() {
            match piece {
                Piece::Extent { source, offset, len } => {
                    let offset = offset as usize;
                    out.extend_from_slice(&sources[source.0 as usize][offset..offset + len as usize]);
                }
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
            }
        }
        out
    }

    fn rope() -> impl Strategy<Value = Rope> {
        let extent = (0u32..2, 0u64..60, 0u64..5).prop_map(|(s, o, n)| Rope::extent(SourceId(s), o, n));
        let literal = prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| Rope::literal(&bytes));
        prop::collection::vec(prop_oneof![extent, literal], 0..12).prop_map(|parts| {
            let mut builder = RopeBuilder::default();
            parts.iter().for_each(|part| builder.rope(part));
            builder.finish()
        })
    }

    proptest! {
        #[test]
        fn a_slice_is_the_slice_of_the_bytes(rope in rope(), a in 0u64..70, b in 0u64..70, c in 0u64..70, d in 0u64..70) {
            let bytes = bytes_of(&rope);
            prop_assert_eq!(rope.len(), bytes.len() as u64);
            let slice = rope.slice(a.min(b)..a.max(b));
            let n = bytes.len() as u64;
            let (from, to) = (a.min(b).min(n) as usize, a.max(b).min(n) as usize);
            prop_assert_eq!(bytes_of(&slice), &bytes[from..to]);
            let again = slice.slice(c.min(d)..c.max(d));
            let n = slice.len();
            let (c, d) = (c.min(d).min(n) as usize, c.max(d).min(n) as usize);
            prop_assert_eq!(bytes_of(&again), &bytes[from..to][c..d]);
            prop_assert_eq!(again.pieces().count(), again.piece_count());
        }

        #[test]
        fn what_is_encoded_decodes(rope in rope()) {
            let mut bytes = Vec::new();
            rope.encode(&mut bytes);
            let mut reader = Reader::new(&bytes, 0);
            prop_assert_eq!(Rope::decode(&mut reader, &Limits::default()).unwrap(), rope);
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn through_a_base_are_the_bases_bytes(base in rope(), a in 0u64..70, b in 0u64..70) {
            let bytes = bytes_of(&base);
            let (from, to) = (a.min(b).min(base.len()), a.max(b).min(base.len()));
            let mut builder = RopeBuilder::default();
            builder.literal(b"<");
            builder.extent(SourceId(9), from, to - from);
            let mapped = builder.finish().through(SourceId(9), &base);
            prop_assert_eq!(bytes_of(&mapped), [b"<", &bytes[from as usize..to as usize]].concat());
        }
    }

    #[test]
    fn neighbours_become_one_piece() {
        let mut builder = RopeBuilder::default();
        builder.extent(SourceId(1), 10, 5);
        builder.extent(SourceId(1), 15, 5);
        builder.literal(b"x");
        builder.literal(b"");
        builder.literal(b"y");
        builder.extent(SourceId(1), 20, 1);
        let rope = builder.finish();
        let expected = [
            Piece::Extent { source: SourceId(1), offset: 10, len: 10 },
            Piece::Literal(b"xy"),
            Piece::Extent { source: SourceId(1), offset: 20, len: 1 },
        ];
        assert_eq!(rope.pieces().collect::<Vec<_>>(), expected);
    }
}
