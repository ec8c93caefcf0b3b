//! Source of the bytes that algorithms read, provided by the caller: a file, a bucket, a slice.

use std::borrow::Cow;

use crate::error::{Kind, Result, WireError};
use crate::rope::{Piece, Rope};

/// Random access to bytes that do not change.
pub trait Source {
    /// Number of bytes.
    fn len(&self) -> u64;

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exactly the `len` bytes at `offset`, or an error.
    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>>;

    /// Bytes to ask for at once when many are needed; smaller when a read costs little.
    fn stride(&self) -> u64 {
        1 << 20
    }

    /// Stored bytes that these bytes are made of: their own number, unless they are computed.
    fn stored(&self) -> u64 {
        self.len()
    }

    /// Checkpoint that long work calls periodically; an error cancels the work.
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

/// Bytes of a rope, read from its sources: `SourceId(n)` is number `n` of them.
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
        for piece in self.slice(offset, buffer.len())?.pieces() {
            let len = usize::try_from(piece.len()).unwrap_or(usize::MAX).min(buffer.len());
            let (part, rest) = std::mem::take(&mut buffer).split_at_mut(len);
            match piece {
                Piece::Literal(bytes) => part.copy_from_slice(bytes),
                Piece::Extent { source, offset, .. } => {
                    let source = self.sources.get(source.0 as usize);
                    source
                        .ok_or_else(|| WireError::corrupt(offset, "the source of a byte range is missing"))?
                        .read_into(offset, part)?;
                }
            }
            buffer = rest;
        }
        Ok(())
    }
}

impl RopeSource<'_> {
    /// The `len` bytes at `offset` as a rope; an error when the rope ends before.
    fn slice(&self, offset: u64, len: usize) -> Result<Rope> {
        let slice = self.rope.slice(offset..offset.saturating_add(len as u64));
        if slice.len() == len as u64 {
            return Ok(slice);
        }
        let message = format!("{len} bytes are needed, but only {} are available", self.rope.len());
        Err(WireError::corrupt(offset, message))
    }
}
