//! Batches of a rope: a part of the rope that one round of reads fetches, and the spans of sources to read.

use std::ops::Range;

use super::{Piece, Rope, SourceId};
use crate::error::{Result, WireError};

/// The limits of a batch, which ends as soon as one of them is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of the rope.
    pub bytes: u64,
    /// Most pieces of the rope.
    pub pieces: usize,
    /// Most spans of sources to read.
    pub spans: usize,
    /// Most bytes of these spans; only a single larger piece may exceed this.
    pub covered: u64,
    /// Largest gap between two spans of a source that are read together.
    pub gap: u64,
}

/// A part of a rope, and the spans that must be read for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The end of the batch in the rope.
    pub end: u64,
    /// The spans to read, which are disjoint and sorted by source and offset.
    pub spans: Vec<(SourceId, Range<u64>)>,
}

/// Bytes read from a source: the source, the offset of the first byte, and the bytes.
pub type Found<'a> = (SourceId, u64, &'a [u8]);

impl Rope {
    /// The batch that begins at `range.start` and ends at or before `range.end`. If the range is not empty, the batch
    /// has at least one byte, regardless of the limits.
    pub fn batch(&self, range: Range<u64>, bounds: &Bounds) -> Batch {
        let stop = range.end.min(range.start.saturating_add(bounds.bytes.max(1)));
        let mut batch = Batch { end: range.start, spans: Vec::new() };
        let mut covered = 0u64;
        for (count, piece) in self.slice(range.start..stop).pieces().enumerate() {
            if count > 0 && count >= bounds.pieces {
                break;
            }
            if let Piece::Extent { source, offset, len } = piece {
                let wider = widened(&batch.spans, source, offset..offset.saturating_add(len), bounds.gap);
                let grown = covered + (wider.span.end - wider.span.start) - wider.replaced;
                let spans = batch.spans.len() + 1 - wider.places.len();
                if count > 0 && (spans > bounds.spans || grown > bounds.covered) {
                    break;
                }
                covered = grown;
                batch.spans.splice(wider.places, [(source, wider.span)]);
            }
            batch.end += piece.len();
        }
        batch
    }

    /// Fills `out` with the bytes from `start` on. `found` must contain the spans of [`Rope::batch`], sorted by source
    /// and offset.
    pub fn gather(&self, start: u64, found: &[Found<'_>], mut out: &mut [u8]) -> Result<()> {
        let rope = self.slice(start..start.saturating_add(out.len() as u64));
        if rope.len() != out.len() as u64 {
            return Err(WireError::corrupt(start, "fewer bytes are available than requested"));
        }
        for piece in rope.pieces() {
            let bytes = match piece {
                Piece::Literal(bytes) => Some(bytes),
                Piece::Extent { source, offset, len } => part_of(found, source, offset, len),
            };
            let bytes =
                bytes.ok_or_else(|| WireError::corrupt(start, "a part of the requested bytes has not been read"))?;
            let len = bytes.len().min(out.len());
            let (part, rest) = std::mem::take(&mut out).split_at_mut(len);
            part.copy_from_slice(bytes.get(..len).unwrap_or_default());
            out = rest;
        }
        Ok(())
    }
}

/// A span that replaces several spans near it.
struct Wider {
    places: Range<usize>,
    span: Range<u64>,
    /// The number of bytes in the replaced spans.
    replaced: u64,
}

fn widened(spans: &[(SourceId, Range<u64>)], source: SourceId, span: Range<u64>, gap: u64) -> Wider {
    let first = spans.partition_point(|(of, at)| (*of, at.end.saturating_add(gap)) < (source, span.start));
    let near = |(of, at): &&(SourceId, Range<u64>)| *of == source && at.start <= span.end.saturating_add(gap);
    let mut wider = Wider { places: first..first, span: span.clone(), replaced: 0 };
    for (_, at) in spans.iter().skip(first).take_while(near) {
        wider.places.end += 1;
        wider.replaced += at.end - at.start;
        wider.span = wider.span.start.min(at.start)..wider.span.end.max(at.end);
    }
    wider
}

fn part_of<'a>(found: &[Found<'a>], source: SourceId, offset: u64, len: u64) -> Option<&'a [u8]> {
    let behind = found.partition_point(|(of, start, _)| (*of, *start) <= (source, offset));
    let (of, start, bytes) = found.get(behind.checked_sub(1)?)?;
    let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
    let part = bytes.get(from..from.checked_add(usize::try_from(len).ok()?)?);
    part.filter(|_| *of == source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::RopeBuilder;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { bytes: 100, pieces: 8, spans: 4, covered: 64, gap: 3 };

    fn rope(pieces: &[(u32, u64, u64)]) -> Rope {
        let mut builder = RopeBuilder::default();
        for (source, offset, len) in pieces {
            match source {
                2 => builder.literal(&vec![b'x'; *len as usize]),
                _ => builder.extent(SourceId(*source), *offset, *len),
            }
        }
        builder.finish()
    }

    fn byte(source: u32, at: u64) -> u8 {
        (at * 7 + u64::from(source) * 131) as u8
    }

    #[test]
    fn far_extents_end_a_batch_and_near_ones_share_a_span() {
        let far = rope(&[(0, 0, 1), (0, 10, 1), (0, 20, 1), (0, 30, 1), (0, 40, 1)]);
        assert_eq!(far.batch(0..5, &BOUNDS).end, 4);
        let near = rope(&[(0, 10, 1), (0, 8, 1), (0, 6, 1), (0, 12, 1), (1, 9, 1)]);
        assert_eq!(
            near.batch(0..5, &BOUNDS),
            Batch { end: 5, spans: vec![(SourceId(0), 6..13), (SourceId(1), 9..10)] }
        );
    }

    #[test]
    fn one_piece_may_have_more_than_the_bounds() {
        let long = rope(&[(0, 0, 90), (0, 200, 90)]);
        assert_eq!(long.batch(0..180, &BOUNDS), Batch { end: 90, spans: vec![(SourceId(0), 0..90)] });
    }

    #[test]
    fn bytes_that_were_not_read_are_an_error() {
        let wanted = rope(&[(0, 5, 4)]);
        let mut out = [0; 4];
        assert!(wanted.gather(0, &[(SourceId(0), 6, b"abc")], &mut out).is_err());
        assert!(wanted.gather(0, &[(SourceId(1), 5, b"abcd")], &mut out).is_err());
        assert!(wanted.gather(1, &[(SourceId(0), 5, b"abcd")], &mut out).is_err());
        assert!(wanted.gather(0, &[(SourceId(0), 4, b"-abcd")], &mut out).is_ok());
        assert_eq!(&out, b"abcd");
    }

    proptest! {
        #[test]
        fn batches_are_bounded_and_make_up_the_whole(
            pieces in prop::collection::vec((0u32..3, 0u64..500, 1u64..40), 1..60),
            bounds in (1u64..120, 1usize..9, 1usize..5, 1u64..80, 0u64..20),
        ) {
            let (bytes, most, spans, covered, gap) = bounds;
            let bounds = Bounds { bytes, pieces: most, spans, covered, gap };
            let whole = rope(&pieces);
            let mut expected = Vec::new();
            for piece in whole.pieces() {
                match piece {
                    Piece::Literal(bytes) => expected.extend_from_slice(bytes),
                    Piece::Extent { source, offset, len } => expected.extend((offset..offset + len).map(|at| byte(source.0, at))),
                }
            }
            let (mut at, mut gathered) = (0, Vec::new());
            while at < whole.len() {
                let batch = whole.batch(at..whole.len(), &bounds);
                prop_assert!(at < batch.end && batch.end - at <= bytes);
                let count = whole.slice(at..batch.end).piece_count();
                prop_assert!(count <= most && batch.spans.len() <= spans);
                let read: u64 = batch.spans.iter().map(|(_, span)| span.end - span.start).sum();
                let first = whole.slice(at..batch.end).pieces().next().map_or(0, |piece| piece.len());
                prop_assert!(read <= covered.max(first));
                for pair in batch.spans.windows(2) {
                    prop_assert!((pair[0].0, pair[0].1.end + gap) < (pair[1].0, pair[1].1.start) || pair[0].0 < pair[1].0);
                }
                let data: Vec<Vec<u8>> =
                    batch.spans.iter().map(|(of, span)| span.clone().map(|at| byte(of.0, at)).collect()).collect();
                let found: Vec<Found<'_>> =
                    batch.spans.iter().zip(&data).map(|((of, span), data)| (*of, span.start, data.as_slice())).collect();
                let mut out = vec![0; (batch.end - at) as usize];
                whole.gather(at, &found, &mut out).unwrap();
                gathered.extend(out);
                at = batch.end;
            }
            prop_assert_eq!(gathered, expected);
        }
    }
}
