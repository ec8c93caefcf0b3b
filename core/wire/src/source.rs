//! The source of the bytes that algorithms read; the caller provides it, for example a file, a bucket or a slice.

use std::borrow::Cow;

use crate::error::{Kind, Result, WireError};
use crate::rope::{Piece, Rope, SourceId};

/// Random access to bytes that do not change.
pub trait Source {
    /// The number of bytes.
    fn len(&self) -> u64;

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns exactly the `len` bytes at `offset`, or fails.
    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>>;

    /// How many bytes to read at once when many are needed; this is smaller when a read costs little.
    fn stride(&self) -> u64 {
        1 << 20
    }

    /// The number of stored bytes from which these bytes are made. For bytes that are not computed, it is their own
    /// number.
    fn stored(&self) -> u64 {
        self.len()
    }

    /// A checkpoint that long work calls periodically; an error cancels the work.
    fn carry_on(&self) -> Result<()> {
        Ok(())
    }

    /// Fills `buffer` with the bytes at `offset`, or fails.
    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.read(offset, buffer.len())?;
        if bytes.len() != buffer.len() {
            let message = format!("a source returned {} bytes instead of {}", bytes.len(), buffer.len());
            return Err(WireError::new(Kind::Source, message).at(offset));
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

impl Source for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.get(start..start.checked_add(len)?));
        bytes.map(Cow::Borrowed).ok_or_else(|| {
            let message = format!("{len} bytes are needed, but the source ends at byte {}", <[u8]>::len(self));
            WireError::corrupt(offset, message)
        })
    }
}

/// The bytes of a rope, read from its sources; `SourceId(n)` refers to number `n` of these.
pub struct RopeSource<'a> {
    rope: &'a Rope,
    sources: &'a [&'a dyn Source],
}

impl<'a> RopeSource<'a> {
    /// The bytes of `rope`.
    pub fn new(rope: &'a Rope, sources: &'a [&'a dyn Source]) -> Self {
        Self { rope, sources }
    }
}

impl Source for RopeSource<'_> {
    fn len(&self) -> u64 {
        self.rope.len()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.slice(offset, len)?;
        let mut out = vec![0; len];
        self.read_into(offset, &mut out)?;
        Ok(Cow::Owned(out))
    }

    fn read_into(&self, offset: u64, mut buffer: &mut [u8]) -> Result<()> {
        let slice = self.slice(offset, buffer.len())?;
        let mut pieces = slice.pieces();
        let mut window = Window::default();
        while let Some(piece) = pieces.next() {
            let len = usize::try_from(piece.len()).unwrap_or(usize::MAX).min(buffer.len());
            let (part, rest) = std::mem::take(&mut buffer).split_at_mut(len);
            match piece {
                Piece::Literal(bytes) => part.copy_from_slice(bytes),
                Piece::Extent { source: id, offset, .. } => {
                    let source = self.sources.get(id.0 as usize);
                    let source =
                        source.ok_or_else(|| WireError::corrupt(offset, "the source of a byte range is missing"))?;
                    // The next extent is at most one literal away, because the builder joins adjacent literals.
                    let next = pieces.clone().take(2).find_map(|next| match next {
                        Piece::Extent { source, offset, .. } if source == id => Some(offset),
                        _ => None,
                    });
                    if !window.read(id, *source, offset, next, part) {
                        source.read_into(offset, part)?;
                    }
                }
            }
            buffer = rest;
        }
        Ok(())
    }
}

/// The bytes of a source around small extents that are close together; they are read at once.
#[derive(Default)]
struct Window {
    source: Option<SourceId>,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// The largest size of small extents in bytes.
    const SMALL: usize = 1 << 12;
    /// Bytes that are read at once.
    const LEN: u64 = 1 << 16;

    /// Fills `part` with the bytes at `offset` if they are buffered, or if one read also serves the extent at `next`.
    fn read(&mut self, id: SourceId, source: &dyn Source, offset: u64, next: Option<u64>, part: &mut [u8]) -> bool {
        if part.len() > Self::SMALL {
            return false;
        }
        if self.copy(id, offset, part) {
            return true;
        }
        let near = next.and_then(|next| next.checked_sub(offset)).is_some_and(|apart| apart < Self::LEN / 2);
        if !near || source.stored() != source.len() {
            return false;
        }
        let len = Self::LEN.min(source.len().saturating_sub(offset));
        let Ok(len) = usize::try_from(len) else { return false };
        self.bytes.resize(len, 0);
        (self.source, self.start) = (Some(id), offset);
        // If the larger read fails, only the extent is read.
        if source.read_into(offset, &mut self.bytes).is_err() {
            self.source = None;
        }
        self.copy(id, offset, part)
    }

    fn copy(&self, id: SourceId, offset: u64, part: &mut [u8]) -> bool {
        let start = offset.checked_sub(self.start).and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| self.bytes.get(start..start.checked_add(part.len())?));
        match found {
            Some(found) if self.source == Some(id) => part.copy_from_slice(found),
            _ => return false,
        }
        true
    }
}

impl RopeSource<'_> {
    /// The `len` bytes at `offset` as a rope; fails when the rope ends earlier.
    fn slice(&self, offset: u64, len: usize) -> Result<Rope> {
        let slice = self.rope.slice(offset..offset.saturating_add(len as u64));
        if slice.len() == len as u64 {
            return Ok(slice);
        }
        let message = format!("{len} bytes are needed, but only {} are available", self.rope.len());
        Err(WireError::corrupt(offset, message))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::rope::RopeBuilder;

    /// A source that counts its reads and fails beyond `good`.
    struct Counted {
        bytes: Vec<u8>,
        good: u64,
        reads: RefCell<Vec<(u64, usize)>>,
    }

    impl Source for Counted {
        fn len(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
            self.reads.borrow_mut().push((offset, len));
            if offset + len as u64 > self.good {
                return Err(WireError::new(Kind::Source, "damaged"));
            }
            self.bytes.as_slice().read(offset, len)
        }
    }

    fn source(good: u64) -> Counted {
        Counted { bytes: (0..200_000u32).map(|at| (at % 251) as u8).collect(), good, reads: RefCell::default() }
    }

    /// The reads that a rope of `extents` causes; the rope's bytes are compared with the source's.
    fn reads(from: &Counted, extents: &[(u64, u64)]) -> Vec<(u64, usize)> {
        let mut rope = RopeBuilder::default();
        let mut expected = Vec::new();
        for (offset, len) in extents {
            rope.literal(b"-");
            expected.push(b'-');
            rope.extent(SourceId(0), *offset, *len);
            expected.extend(&from.bytes[*offset as usize..(offset + len) as usize]);
        }
        let sources: [&dyn Source; 1] = [from];
        let rope = rope.finish();
        assert_eq!(*RopeSource::new(&rope, &sources).read(0, expected.len()).unwrap(), *expected);
        from.reads.take()
    }

    #[test]
    fn small_extents_that_lie_close_are_read_at_once() {
        let names: Vec<_> = (0..100).map(|n| (1000 + 150 * n, 20)).collect();
        assert_eq!(reads(&source(u64::MAX), &names), [(1000, 1 << 16)]);
    }

    #[test]
    fn other_extents_are_read_alone() {
        let apart = [(0, 20), (100_000, 20), (199_990, 10), (5, 5000), (9000, 20)];
        assert_eq!(reads(&source(u64::MAX), &apart), apart.map(|(offset, len)| (offset, len as usize)));
    }

    #[test]
    fn what_was_not_asked_for_may_be_unreadable() {
        let names = [(1000, 20), (1100, 20)];
        assert_eq!(reads(&source(1120), &names), [(1000, 1 << 16), (1000, 20), (1100, 20)]);
    }
}
