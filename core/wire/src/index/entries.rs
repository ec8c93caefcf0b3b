//! Iterators over the entries of a node, which are decoded from its blocks.

use super::broken;
use super::coding::decode;
use super::layout::{BlockRecord, FieldBlock, FieldRecord, NodeRecord, Section};
use super::node::{FieldSummary, Node};
use crate::entry::Entry;
use crate::error::Result;
use crate::reader::Reader;

impl<'a> Node<'a> {
    /// All fields of the message, in order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { node: *self, next_block: 0, block: Block::default() }
    }

    /// The occurrences of `field` from element `ordinal` on. If this element is in a run, the whole run comes first.
    pub fn occurrences(&self, field: &FieldSummary, ordinal: u64) -> Result<Occurrences<'a>> {
        let record = field.record;
        let after = |block: &FieldBlock| block.before <= ordinal;
        let len = u64::from(record.blocks_len);
        let at = self.index.partition(record.blocks_at, len, after)?;
        let next = at.saturating_sub(1);
        Ok(Occurrences { node: *self, record, next, seen: 0, from: ordinal, block: Block::default() })
    }

    fn block(&self, block: u64) -> Result<Block<'a>> {
        if block >= u64::from(self.record.blocks_len) {
            return Err(broken("a node has fewer blocks than it declares"));
        }
        let record: BlockRecord = self.index.record(self.record.blocks_at.saturating_add(block))?;
        let bytes = self.index.section(Section::Entries, record.at, u64::from(record.len))?;
        Ok(Block { reader: Some(Reader::new(bytes, 0)), left: record.count, position: record.start, number: 0 })
    }
}

/// The unread entries of one block.
#[derive(Clone, Debug, Default)]
struct Block<'a> {
    reader: Option<Reader<'a>>,
    left: u32,
    position: u64,
    number: u32,
}

impl Block<'_> {
    fn next(&mut self, node: &Node<'_>) -> Result<Option<Entry>> {
        let Some(reader) = self.reader.as_mut().filter(|_| self.left > 0) else { return Ok(None) };
        self.left -= 1;
        let entry = decode(reader, self.position, self.number)?;
        if entry.start < node.record.content || entry.end > node.record.content_end {
            return Err(broken("a field is outside of its message"));
        }
        if entry.count == 0 || entry.count > entry.end - entry.start {
            return Err(broken("a field has fewer bytes than occurrences"));
        }
        if let Some(child) = entry.node {
            let NodeRecord { start, content, content_end, end, .. } = node.index.node(child)?.record;
            if (start, content, content_end, end) != (entry.start, entry.content, entry.content_end, entry.end) {
                return Err(broken("a field and its node have different positions"));
            }
        }
        (self.position, self.number) = (entry.end, entry.number);
        Ok(Some(entry))
    }
}

/// All entries of a node.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    node: Node<'a>,
    next_block: u64,
    block: Block<'a>,
}

impl<'a> Entries<'a> {
    /// Returns `block` after a check that it begins at the end of the previous block.
    fn after(&self, block: Block<'a>) -> Result<Block<'a>> {
        let due = if self.next_block == 0 { self.node.record.content } else { self.block.position };
        if block.position == due { Ok(block) } else { Err(broken("the fields of a message are not consecutive")) }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        loop {
            match self.block.next(&self.node) {
                Ok(None) if self.next_block < u64::from(self.node.record.blocks_len) => {
                    match self.node.block(self.next_block).and_then(|block| self.after(block)) {
                        Ok(block) => self.block = block,
                        Err(error) => {
                            self.next_block = u64::MAX;
                            return Some(Err(error));
                        }
                    }
                    self.next_block += 1;
                }
                Ok(None) => return None,
                Ok(Some(entry)) => return Some(Ok(entry)),
                Err(error) => {
                    (self.block.left, self.next_block) = (0, u64::MAX);
                    return Some(Err(error));
                }
            }
        }
    }
}

/// An iterator over the occurrences of one field of a node.
#[derive(Clone, Debug)]
pub struct Occurrences<'a> {
    node: Node<'a>,
    record: FieldRecord,
    next: u64,
    seen: u64,
    from: u64,
    block: Block<'a>,
}

impl Occurrences<'_> {
    /// The next occurrence and its ordinal (for a run, that of its first element); None at the end.
    pub fn next_occurrence(&mut self) -> Result<Option<(u64, Entry)>> {
        loop {
            while let Some(entry) = self.block.next(&self.node)? {
                if entry.number == self.record.number {
                    let ordinal = self.seen;
                    self.seen = self.seen.saturating_add(entry.count);
                    if self.seen > self.from {
                        return Ok(Some((ordinal, entry)));
                    }
                }
            }
            if self.next >= u64::from(self.record.blocks_len) {
                return Ok(None);
            }
            let at = self.record.blocks_at.saturating_add(self.next);
            let place: FieldBlock = self.node.index.record(at)?;
            if place.before > self.record.count {
                return Err(broken("a field occurs more often in its blocks than in total"));
            }
            self.block = self.node.block(u64::from(place.block))?;
            self.seen = place.before;
            self.next += 1;
        }
    }
}
