//! Sorted tables in LevelDB's layout: blocks of keys and values, an index block that lists them, and a footer.
//!
//! A table is walked from front to back, one block at a time. The checksum of each block is verified before its data
//! are used.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::error::{Kind, Result, WireError};
use crate::reader::Reader;
use crate::source::Source;

/// Bytes of the footer, which ends with [`MAGIC`].
pub const FOOTER: u64 = 48;
/// The last eight bytes of every table.
pub const MAGIC: [u8; 8] = 0xdb47_7524_8b80_fb57_u64.to_le_bytes();
/// Most bytes of a block, either compressed or decompressed.
pub const MAX_BLOCK: u64 = 64 << 20;

/// Bytes after each block: the compression type and the checksum.
const TRAILER: u64 = 5;
/// Bound on the expansion by snappy: a copy of three bytes gives at most 64 bytes.
const SNAPPY_RATIO: u64 = 32;

/// A key and its value.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The offset of the value in the table; if the block is compressed, the offset of the block.
    pub offset: u64,
}

/// The offset and size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle {
    offset: u64,
    size: u64,
}

/// Calls `visit` with every entry of the table in `source`, in the order of keys.
pub fn walk(source: &dyn Source, mut visit: impl FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
    let end = source.len().saturating_sub(FOOTER);
    let index = Block::read(source, footer(source)?, end)?;
    let mut entries = index.entries()?;
    let (mut floor, mut above) = (0, None);
    while let Some(entry) = entries.next_entry()? {
        let place = Handle::read(&mut Reader::new(entry.value, entry.offset))?;
        // All writers leave blocks in order and without overlap. With this check, no byte is decompressed twice.
        if place.offset < floor {
            return Err(WireError::corrupt(entry.offset, "the index of the table names a block twice or out of order"));
        }
        let block = Block::read(source, place, end)?;
        floor = block.end();
        block.walk(above.as_deref(), entry.key, &mut visit)?;
        above = Some(entry.key.to_vec());
    }
    Ok(())
}

/// The place of the index block.
fn footer(source: &dyn Source) -> Result<Handle> {
    let Some(start) = source.len().checked_sub(FOOTER) else {
        let message = format!("{} bytes are too few for a table: its footer has {FOOTER}", source.len());
        return Err(WireError::corrupt(0, message));
    };
    let bytes = source.read(start, FOOTER as usize)?;
    let mut reader = Reader::new(&bytes, start);
    let mut handles = reader.sub(FOOTER - MAGIC.len() as u64)?;
    if reader.rest() != MAGIC {
        let message = "the end of the file is not that of a table: it is cut off, or is not a table";
        return Err(WireError::corrupt(source.len() - MAGIC.len() as u64, message));
    }
    Handle::read(&mut handles)?;
    Handle::read(&mut handles)
}

impl Handle {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { offset: reader.varint()?, size: reader.varint()? })
    }
}

/// A block whose checksum was verified.
struct Block<'a> {
    content: Cow<'a, [u8]>,
    place: Handle,
    packed: bool,
}

impl<'a> Block<'a> {
    /// Reads the block at `place`; it must end before `end`.
    fn read(source: &'a dyn Source, place: Handle, end: u64) -> Result<Self> {
        let Handle { offset, size } = place;
        let next = offset.checked_add(size).and_then(|end| end.checked_add(TRAILER)).filter(|next| *next <= end);
        if next.is_none() {
            let message =
                format!("a table block of {size} bytes extends past byte {end}, where the blocks of the table end");
            return Err(WireError::corrupt(offset, message));
        }
        check_size(size, offset)?;
        let mut bytes = source.read(offset, (size + TRAILER) as usize)?;
        let mut reader = Reader::new(&bytes, offset);
        reader.take(size)?;
        let packing = reader.u8()?;
        let stored = reader.u32()?;
        if masked(bytes.get(..size as usize + 1).unwrap_or_default()) != stored {
            let message = "the checksum of a table block does not match: the file is damaged";
            return Err(WireError::corrupt(offset, message));
        }
        match &mut bytes {
            Cow::Borrowed(all) => *all = all.get(..size as usize).unwrap_or_default(),
            Cow::Owned(all) => all.truncate(size as usize),
        }
        let content = match packing {
            0 => bytes,
            1 => Cow::Owned(unsnap(&bytes, offset)?),
            other => {
                let message = format!("a table block has the unknown compression {other}");
                return Err(WireError::new(Kind::Unsupported, message).at(offset));
            }
        };
        Ok(Self { content, place, packed: packing != 0 })
    }

    fn entries(&self) -> Result<Entries<'_>> {
        let at = self.place.offset;
        let broken = || WireError::corrupt(at, "a table block is too short for its restart points");
        let (rest, count) = self.content.split_last_chunk().ok_or_else(broken)?;
        let restarts = usize::try_from(u32::from_le_bytes(*count)).ok().and_then(|count| count.checked_mul(4));
        let len = restarts.and_then(|restarts| rest.len().checked_sub(restarts)).ok_or_else(broken)?;
        let reader = Reader::new(rest.get(..len).unwrap_or_default(), if self.packed { 0 } else { at });
        Ok(Entries { reader, key: Vec::new(), packed_at: self.packed.then_some(at), fresh: true })
    }

    /// Visits the entries; their keys must be greater than `above` and not greater than `last`.
    fn walk(&self, above: Option<&[u8]>, last: &[u8], visit: &mut impl FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let mut entries = self.entries()?;
        let mut low = above;
        while let Some(entry) = entries.next_entry()? {
            if low.take().is_some_and(|low| entry.key <= low) {
                return Err(out_of_order(entry.offset));
            }
            visit(entry)?;
        }
        if entries.key.as_slice() > last { Err(out_of_order(self.place.offset)) } else { Ok(()) }
    }

    /// The offset after the trailer.
    fn end(&self) -> u64 {
        self.place.offset + self.place.size + TRAILER
    }
}

/// The entries of a block.
struct Entries<'a> {
    reader: Reader<'a>,
    key: Vec<u8>,
    packed_at: Option<u64>,
    fresh: bool,
}

impl<'a> Entries<'a> {
    fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let packed_at = self.packed_at;
        self.step().map(Some).map_err(|error| match packed_at {
            Some(at) => WireError::new(
                error.kind(),
                format!("a table block is damaged after decompression: {}", error.message()),
            )
            .at(at),
            None => error,
        })
    }

    fn step(&mut self) -> Result<Entry<'_>> {
        let start = self.reader.offset();
        let (shared, fresh, len) = (self.reader.varint()?, self.reader.varint()?, self.reader.varint()?);
        let suffix = self.reader.take(fresh)?;
        let kept = usize::try_from(shared).ok().and_then(|shared| self.key.get(shared..)).ok_or_else(|| {
            let message = format!(
                "a key of the table refers to {shared} bytes of the previous key, which has {}",
                self.key.len()
            );
            WireError::corrupt(start, message)
        })?;
        if !self.fresh && suffix.cmp(kept) != Ordering::Greater {
            return Err(out_of_order(start));
        }
        self.fresh = false;
        self.key.truncate(shared as usize);
        self.key.extend_from_slice(suffix);
        let offset = self.reader.offset();
        let value = self.reader.take(len)?;
        Ok(Entry { key: &self.key, value, offset: self.packed_at.unwrap_or(offset) })
    }
}

fn check_size(size: u64, offset: u64) -> Result<()> {
    if size <= MAX_BLOCK {
        return Ok(());
    }
    let message = format!("a table block has {size} bytes; at most {MAX_BLOCK} are read");
    Err(WireError::new(Kind::Limit, message).at(offset))
}

/// Decompresses the snappy data of a block at `offset`.
fn unsnap(packed: &[u8], offset: u64) -> Result<Vec<u8>> {
    let broken = |_| WireError::corrupt(offset, "a compressed table block cannot be decompressed");
    let size = snap::raw::decompress_len(packed).map_err(broken)? as u64;
    check_size(size, offset)?;
    if size > SNAPPY_RATIO.saturating_mul(packed.len() as u64) {
        let message =
            format!("{} bytes of snappy data claim to decompress to {size} bytes, which is impossible", packed.len());
        return Err(WireError::corrupt(offset, message));
    }
    snap::raw::Decoder::new().decompress_vec(packed).map_err(broken)
}

fn out_of_order(offset: u64) -> WireError {
    WireError::corrupt(offset, "the keys of the table are out of order")
}

/// The masked CRC-32C of `bytes`, rotated and shifted as in LevelDB, so that checksums of checksums stay reliable.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
