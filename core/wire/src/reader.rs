//! A bounded cursor over bytes in memory: it cannot pass the end, and it knows its offset.

use crate::error::{Result, WireError};
use crate::varint::{self, Varint};

/// Reads from the front of `bytes`; errors contain the offset.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Reader<'a> {
    /// Makes a reader of `bytes`, whose first byte is at the offset `base`.
    pub fn new(bytes: &'a [u8], base: u64) -> Self {
        Self { bytes, offset: base }
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// True when no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let parts = usize::try_from(n).ok().and_then(|n| self.bytes.split_at_checked(n));
        let Some((taken, rest)) = parts else {
            let message = format!("{n} bytes are needed, but only {} are left", self.bytes.len());
            return Err(WireError::corrupt(self.offset, message));
        };
        self.bytes = rest;
        self.offset += n;
        Ok(taken)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        let taken = std::mem::take(&mut self.bytes);
        self.offset += taken.len() as u64;
        taken
    }

    /// A reader of only the next `n` bytes.
    #[inline]
    pub fn sub(&mut self, n: u64) -> Result<Reader<'a>> {
        let base = self.offset;
        Ok(Reader::new(self.take(n)?, base))
    }

    /// The next varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        // Most varints have one byte.
        if let [first @ 0..0x80, rest @ ..] = self.bytes {
            self.bytes = rest;
            self.offset += 1;
            return Ok(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64> {
        match varint::read(self.bytes) {
            Varint::Value(value, n) => self.take(n as u64).map(|_| value),
            Varint::Truncated => Err(WireError::corrupt(self.offset, "a varint is cut off")),
            Varint::Overlong => Err(WireError::corrupt(self.offset, "a varint has more than 64 bits")),
        }
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let offset = self.offset;
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| WireError::corrupt(offset, "a fixed-width value is cut off"))
    }

    /// Fails unless everything was read.
    pub fn finish(self, what: &str) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(WireError::corrupt(self.offset, format!("{} bytes are left after {what}", self.bytes.len())))
    }
}
