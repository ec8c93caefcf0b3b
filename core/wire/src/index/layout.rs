//! The serialized form of an index: a header, then sections of fixed-width records, with a CRC-32C for every page.
//!
//! `docs/explanation/index-format.md` describes this form. Every change here must be made there too, and needs a new
//! [`VERSION`].

use crate::error::{Kind, Result, WireError};
use crate::reader::Reader;

/// The first bytes of an index.
pub(super) const MAGIC: &[u8; 8] = b"pslindex";
/// The version of the serialized form.
pub const VERSION: u32 = 1;
/// Bytes of a page; each page has a checksum, which is verified at the first access.
pub(super) const PAGE: usize = 64 << 10;
/// The number of sections, which follow in the order of [`Section`].
pub(super) const SECTIONS: usize = 7;
/// Bytes of the header before the checksums of the pages.
pub(super) const HEADER: usize = 8 + 4 + 4 + 8 + 8 + SECTIONS * 8;
/// Entries in a full block.
pub(super) const BLOCK_ENTRIES: u32 = 128;

/// The sections of an index, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Types,
    Nodes,
    Blocks,
    Entries,
    Fields,
    FieldBlocks,
    Keys,
}

/// A record of fixed width in little-endian order.
pub(super) trait Record: Sized {
    /// The section with records of this kind.
    const SECTION: Section;
    const WIDTH: usize;
    fn write(&self, out: &mut Vec<u8>);
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
}

/// The record of one scanned message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node of the parent; for the root, its own number.
    pub parent: u32,
    /// The field number in the parent; 0 for the root.
    pub number: u32,
    /// The message type's position among the index's type names, counted from 1; 0 when unknown.
    pub type_name: u32,
    /// True for a group.
    pub group: bool,
    /// The position among the occurrences of its field in the parent.
    pub ordinal: u64,
    /// The offset of its tag.
    pub start: u64,
    /// The offset of the content.
    pub content: u64,
    /// The offset after the content.
    pub content_end: u64,
    /// The offset after the last byte.
    pub end: u64,
    pub(super) blocks_at: u64,
    pub(super) blocks_len: u32,
    pub(super) fields_len: u32,
    pub(super) fields_at: u64,
}

impl NodeRecord {
    /// The record of a message that was just entered, which is field `number` of its parent.
    pub fn opening(number: u32, group: bool, start: u64, content: u64) -> Self {
        Self { number, group, start, content, ..Self::default() }
    }
}

impl Record for NodeRecord {
    const SECTION: Section = Section::Nodes;
    const WIDTH: usize = 80;

    fn write(&self, out: &mut Vec<u8>) {
        for value in [self.parent, self.number, self.type_name, u32::from(self.group)] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.ordinal, self.start, self.content, self.content_end, self.end, self.blocks_at] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.blocks_len.to_le_bytes());
        out.extend_from_slice(&self.fields_len.to_le_bytes());
        out.extend_from_slice(&self.fields_at.to_le_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            parent: r.u32()?,
            number: r.u32()?,
            type_name: r.u32()?,
            group: r.u32()? != 0,
            ordinal: r.u64()?,
            start: r.u64()?,
            content: r.u64()?,
            content_end: r.u64()?,
            end: r.u64()?,
            blocks_at: r.u64()?,
            blocks_len: r.u32()?,
            fields_len: r.u32()?,
            fields_at: r.u64()?,
        })
    }
}

/// Up to [`BLOCK_ENTRIES`] consecutive entries of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRecord {
    /// The offset of the first entry's tag.
    pub(super) start: u64,
    /// The offset of the encoded entries in their section.
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) count: u32,
}

impl Record for BlockRecord {
    const SECTION: Section = Section::Blocks;
    const WIDTH: usize = 24;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { start: r.u64()?, at: r.u64()?, len: r.u32()?, count: r.u32()? })
    }
}

/// A summary of one field in one node: the number of occurrences, and the blocks that contain them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldRecord {
    pub(super) number: u32,
    pub(super) blocks_len: u32,
    pub(super) count: u64,
    /// The size of all occurrences in bytes, including tags and lengths.
    pub(super) bytes: u64,
    pub(super) blocks_at: u64,
    pub(super) keys_at: u64,
    /// The number of recorded keys; it is below `count` when some elements have no key.
    pub(super) keys_len: u64,
}

impl Record for FieldRecord {
    const SECTION: Section = Section::Fields;
    const WIDTH: usize = 48;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.blocks_len.to_le_bytes());
        for value in [self.count, self.bytes, self.blocks_at, self.keys_at, self.keys_len] {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            number: r.u32()?,
            blocks_len: r.u32()?,
            count: r.u64()?,
            bytes: r.u64()?,
            blocks_at: r.u64()?,
            keys_at: r.u64()?,
            keys_len: r.u64()?,
        })
    }
}

/// A block in which a field occurs, and the number of the field's occurrences before that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldBlock {
    pub(super) before: u64,
    /// The block's number, counted from the node's first block.
    pub(super) block: u32,
}

impl Record for FieldBlock {
    const SECTION: Section = Section::FieldBlocks;
    const WIDTH: usize = 12;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before.to_le_bytes());
        out.extend_from_slice(&self.block.to_le_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { before: r.u64()?, block: r.u32()? })
    }
}

/// The hash of an element's key and the element's ordinal. Records are sorted by hash, then by ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyRecord {
    pub(super) hash: u32,
    pub(super) ordinal: u32,
}

impl Record for KeyRecord {
    const SECTION: Section = Section::Keys;
    const WIDTH: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash.to_le_bytes());
        out.extend_from_slice(&self.ordinal.to_le_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { hash: r.u32()?, ordinal: r.u32()? })
    }
}

/// A writer of an index: the header, the checksums of pages, and the sections, each of which is dropped once written.
pub(super) struct Serializer {
    out: Vec<u8>,
    /// The offset of the body; the checksums are before it.
    body: usize,
}

impl Serializer {
    /// Starts an index whose sections have `lens` bytes; they must follow in order.
    pub(super) fn new(size: u64, floor: u64, lens: [usize; SECTIONS]) -> Self {
        let all: usize = lens.iter().sum();
        let body = HEADER + all.div_ceil(PAGE) * 4 + 4;
        let mut out = Vec::with_capacity(body + all);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(PAGE as u32).to_le_bytes());
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&floor.to_le_bytes());
        lens.iter().for_each(|len| out.extend_from_slice(&(*len as u64).to_le_bytes()));
        out.resize(body, 0);
        Self { out, body }
    }

    /// Appends a section of bytes.
    pub(super) fn bytes(&mut self, section: Vec<u8>) {
        self.out.extend_from_slice(&section);
    }

    /// Appends a section of records.
    pub(super) fn records<R: Record>(&mut self, records: Vec<R>) {
        records.iter().for_each(|record| record.write(&mut self.out));
    }

    /// The index with its checksums.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let (head, body) = self.out.split_at_mut(self.body);
        let (sums, last) = head.split_at_mut(self.body - 4);
        let slots = sums.get_mut(HEADER..).unwrap_or_default().chunks_exact_mut(4);
        slots.zip(body.chunks(PAGE)).for_each(|(slot, page)| slot.copy_from_slice(&crc32c::crc32c(page).to_le_bytes()));
        last.copy_from_slice(&crc32c::crc32c(sums).to_le_bytes());
        self.out
    }
}

/// The offsets of the sections, from a header whose checksum was verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) size: u64,
    pub(super) floor: u64,
    /// The offset of the body in the file.
    pub(super) body: usize,
    pub(super) pages: usize,
    /// The start of each section in the body, and the end of the last section.
    pub(super) bounds: [u64; SECTIONS + 1],
}

impl Layout {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, 0);
        if reader.take(8)? != MAGIC {
            return Err(WireError::corrupt(0, "this is not an index of protoslice"));
        }
        let (version, page) = (reader.u32()?, reader.u32()?);
        if version != VERSION || page as usize != PAGE {
            let message =
                format!("the index has version {version}, but this program reads {VERSION}: rebuild the index");
            return Err(WireError::new(Kind::Unsupported, message));
        }
        let (size, floor) = (reader.u64()?, reader.u64()?);
        let mut bounds = [0u64; SECTIONS + 1];
        let mut end = 0u64;
        for bound in bounds.iter_mut().skip(1) {
            end = end
                .checked_add(reader.u64()?)
                .ok_or_else(|| WireError::corrupt(reader.offset(), "the index's sections overflow"))?;
            *bound = end;
        }
        let pages = usize::try_from(end.div_ceil(PAGE as u64)).ok();
        let body = pages.and_then(|pages| pages.checked_mul(4)).and_then(|n| n.checked_add(HEADER + 4));
        let (Some(pages), Some(body)) = (pages, body) else {
            return Err(WireError::corrupt(32, "the index is too large to fit into memory"));
        };
        if bytes.len() as u64 != (body as u64).saturating_add(end) {
            let message =
                format!("the index is {} bytes long instead of {}", bytes.len(), (body as u64).saturating_add(end));
            return Err(WireError::corrupt(bytes.len() as u64, message));
        }
        let head = bytes.get(..body - 4).unwrap_or_default();
        let stored = Reader::new(bytes.get(body - 4..).unwrap_or_default(), 0).u32()?;
        if crc32c::crc32c(head) != stored {
            return Err(WireError::new(Kind::Checksum, "the index's header fails its checksum").at(0));
        }
        Ok(Self { size, floor, body, pages, bounds })
    }
}
