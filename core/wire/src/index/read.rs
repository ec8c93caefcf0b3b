//! Reading an index lazily: opening it reads the header, a look-up the few records concerned. A page's checksum is
//! verified when the page is first touched.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::build::flag;
use super::layout::{BlockRecord, FieldBlock, FieldRecord, KeyRecord, Layout, NodeRecord, PAGE, Record, Section};
use crate::entry::{Entry, NodeId};
use crate::error::{Kind, Result, WireError};
use crate::header::Wire;
use crate::reader::Reader;
use crate::schema::{Schema, TypeId};

/// The bytes an index lies in: memory, or a mapped file.
pub type IndexBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An index, ready to be asked.
pub struct Index {
    data: IndexBytes,
    layout: Layout,
    verified: Vec<AtomicBool>,
    types: Vec<String>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index of {} bytes, {} nodes", self.size(), self.node_count())
    }
}

impl Index {
    /// Opens the index that `data` holds. Nothing is read yet but its header.
    pub fn open(data: IndexBytes) -> Result<Self> {
        let layout = Layout::parse((*data).as_ref())?;
        let verified = (0..layout.pages).map(|_| AtomicBool::new(false)).collect();
        let mut index = Self { data, layout, verified, types: Vec::new() };
        index.types = index.type_names()?;
        Ok(index)
    }

    /// The serialized form.
    pub fn bytes(&self) -> &[u8] {
        (*self.data).as_ref()
    }

    /// Bytes of the proto that it is the index of.
    pub fn size(&self) -> u64 {
        self.layout.size
    }

    /// Messages below this size have no node.
    pub fn floor(&self) -> u64 {
        self.layout.floor
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> u64 {
        self.section_len(Section::Nodes) / NodeRecord::WIDTH as u64
    }

    /// Verifies every page; an index that passes is the one that was written.
    pub fn verify(&self) -> Result<()> {
        let end = self.layout.bounds.last().copied().unwrap_or(0);
        self.body(0..end).map(drop)
    }

    /// The node numbered `id`; 0 is the root.
    pub fn node(&self, id: NodeId) -> Result<Node<'_>> {
        let record: NodeRecord = self.record(Section::Nodes, u64::from(id))?;
        let ordered = record.start <= record.content && record.content <= record.content_end;
        if !ordered || record.content_end > record.end || record.end > self.size() {
            return Err(broken(&format!("node {id} lies outside of the proto")));
        }
        Ok(Node { index: self, id, record })
    }

    /// The name of the message type numbered `number` in a node record.
    pub fn type_name(&self, number: u32) -> Option<&str> {
        let at = (number as usize).checked_sub(1)?;
        self.types.get(at).map(String::as_str)
    }

    fn type_names(&self) -> Result<Vec<String>> {
        let mut reader = Reader::new(self.section(Section::Types, 0, self.section_len(Section::Types))?, 0);
        let mut names = Vec::new();
        while !reader.is_empty() {
            let len = reader.varint()?;
            let name = std::str::from_utf8(reader.take(len)?);
            names.push(name.map_err(|_| broken("a type's name is not text"))?.to_owned());
        }
        Ok(names)
    }

    fn section_len(&self, section: Section) -> u64 {
        let at = section as usize;
        let bound = |i: usize| self.layout.bounds.get(i).copied().unwrap_or(0);
        bound(at + 1) - bound(at)
    }

    /// `len` bytes of a section, from `at`.
    fn section(&self, section: Section, at: u64, len: u64) -> Result<&[u8]> {
        let base = self.layout.bounds.get(section as usize).copied().unwrap_or(0);
        let inside = at.checked_add(len).is_some_and(|end| end <= self.section_len(section));
        if !inside {
            return Err(broken("a record points outside of its section"));
        }
        self.body(base + at..base + at + len)
    }

    fn body(&self, range: Range<u64>) -> Result<&[u8]> {
        let body = self.bytes().get(self.layout.body..).unwrap_or_default();
        let (start, end) = (range.start as usize, range.end as usize);
        if start < end {
            for page in start / PAGE..=(end - 1) / PAGE {
                self.verify_page(page, body)?;
            }
        }
        body.get(start..end).ok_or_else(|| broken("a record points outside of the index"))
    }

    fn verify_page(&self, page: usize, body: &[u8]) -> Result<()> {
        let Some(done) = self.verified.get(page) else { return Err(broken("a page is missing")) };
        if done.load(Ordering::Relaxed) {
            return Ok(());
        }
        let from = page * PAGE;
        let bytes = body.get(from..body.len().min(from + PAGE)).unwrap_or_default();
        let sums = super::layout::HEADER + page * 4;
        let stored = Reader::new(self.bytes().get(sums..).unwrap_or_default(), 0).u32()?;
        if crc32c::crc32c(bytes) != stored {
            let message = "a page of the index fails its checksum: make the index anew";
            return Err(WireError::new(Kind::Checksum, message).at((self.layout.body + from) as u64));
        }
        done.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn record<R: Record>(&self, section: Section, at: u64) -> Result<R> {
        let start = at.checked_mul(R::WIDTH as u64).ok_or_else(|| broken("a record's number overflows"))?;
        R::read(&mut Reader::new(self.section(section, start, R::WIDTH as u64)?, 0))
    }

    /// The first of `len` records from `at` for which `before` is false.
    fn partition<R: Record>(&self, section: Section, at: u64, len: u64, before: impl Fn(&R) -> bool) -> Result<u64> {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            let record: R = self.record(section, at.saturating_add(middle))?;
            if before(&record) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

/// `field` of `node`, when it can be: an occurrence takes a byte at least.
fn summary(node: &NodeRecord, field: FieldRecord) -> Result<FieldSummary> {
    if field.count <= field.bytes && field.bytes <= node.content_end - node.content {
        return Ok(FieldSummary { record: field });
    }
    Err(broken("a field has more occurrences than fit into its message"))
}

fn broken(what: &str) -> WireError {
    WireError::new(Kind::Corrupt, format!("the index is broken: {what}; make it anew"))
}

/// One scanned message of an index.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    index: &'a Index,
    id: NodeId,
    /// Where it lies.
    pub record: NodeRecord,
}

/// How one field occurs in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSummary {
    record: FieldRecord,
}

impl FieldSummary {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.record.number
    }

    /// How often it occurs.
    pub fn count(&self) -> u64 {
        self.record.count
    }

    /// Bytes of all occurrences, tags and lengths included.
    pub fn bytes(&self) -> u64 {
        self.record.bytes
    }

    /// Whether the keys of all its elements can be looked up.
    pub fn has_keys(&self) -> bool {
        self.record.keys_len == self.record.count
    }
}

impl<'a> Node<'a> {
    /// Its number.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its message type in `schema`, when the index and `schema` know it.
    pub fn message_type(&self, schema: &Schema) -> Option<TypeId> {
        schema.type_named(self.index.type_name(self.record.type_name)?)
    }

    /// All its fields, one after the other.
    pub fn entries(&self) -> Entries<'a> {
        Entries { node: *self, next_block: 0, block: Block::default() }
    }

    /// What fields occur, by number.
    pub fn fields(&self) -> impl Iterator<Item = Result<FieldSummary>> + use<'a> {
        let (index, record) = (self.index, self.record);
        (0..u64::from(record.fields_len)).map(move |i| {
            index.record(Section::Fields, record.fields_at.saturating_add(i)).and_then(|field| summary(&record, field))
        })
    }

    /// How field `number` occurs.
    pub fn field(&self, number: u32) -> Result<Option<FieldSummary>> {
        let NodeRecord { fields_at, fields_len, .. } = self.record;
        let len = u64::from(fields_len);
        let at = self.index.partition(Section::Fields, fields_at, len, |field: &FieldRecord| field.number < number)?;
        if at == len {
            return Ok(None);
        }
        let record: FieldRecord = self.index.record(Section::Fields, fields_at.saturating_add(at))?;
        if record.number == number { summary(&self.record, record).map(Some) } else { Ok(None) }
    }

    /// The occurrences of `field` from the one numbered `ordinal` on. A run that holds it comes first, whole.
    pub fn occurrences(&self, field: &FieldSummary, ordinal: u64) -> Result<Occurrences<'a>> {
        let record = field.record;
        let after = |block: &FieldBlock| block.before <= ordinal;
        let len = u64::from(record.blocks_len);
        let at = self.index.partition(Section::FieldBlocks, record.blocks_at, len, after)?;
        let next = at.saturating_sub(1);
        Ok(Occurrences { node: *self, record, next, seen: 0, from: ordinal, block: Block::default() })
    }

    /// The elements of `field` whose key has this hash, in order.
    pub fn with_key_hash(&self, field: &FieldSummary, hash: u32) -> Result<Vec<u64>> {
        let FieldRecord { keys_at, keys_len, .. } = field.record;
        let mut at = self.index.partition(Section::Keys, keys_at, keys_len, |key: &KeyRecord| key.hash < hash)?;
        let mut found = Vec::new();
        while at < keys_len {
            let key: KeyRecord = self.index.record(Section::Keys, keys_at.saturating_add(at))?;
            if key.hash != hash {
                break;
            }
            found.push(u64::from(key.ordinal));
            at += 1;
        }
        Ok(found)
    }

    fn block(&self, block: u64) -> Result<Block<'a>> {
        if block >= u64::from(self.record.blocks_len) {
            return Err(broken("a node has fewer blocks than it says"));
        }
        let record: BlockRecord = self.index.record(Section::Blocks, self.record.blocks_at.saturating_add(block))?;
        let bytes = self.index.section(Section::Entries, record.at, u64::from(record.len))?;
        Ok(Block { reader: Some(Reader::new(bytes, 0)), left: record.count, position: record.start, number: 0 })
    }
}

/// The entries of one block, as far as they have not been read.
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
            return Err(broken("a field lies outside of its message"));
        }
        if entry.count == 0 || entry.count > entry.end - entry.start {
            return Err(broken("a field has fewer bytes than occurrences"));
        }
        if let Some(child) = entry.node {
            let NodeRecord { start, content, content_end, end, .. } = node.index.node(child)?.record;
            if (start, content, content_end, end) != (entry.start, entry.content, entry.content_end, entry.end) {
                return Err(broken("a field and its node lie at different places"));
            }
        }
        (self.position, self.number) = (entry.end, entry.number);
        Ok(Some(entry))
    }
}

fn decode(reader: &mut Reader<'_>, start: u64, last_number: u32) -> Result<Entry> {
    let flags = reader.u8()?;
    let wire = Wire::from_number(flags & 7).ok_or_else(|| broken("a field has no wire type"))?;
    let number = if flags & flag::SAME_NUMBER != 0 { last_number } else { reader.varint()? as u32 };
    let len = reader.varint()?;
    let (mut count, mut tail) = (1, 0);
    let mut content_len = len;
    let head = if flags & flag::ODD_HEAD != 0 {
        let head = reader.varint()?;
        tail = reader.varint()?;
        head
    } else if flags & flag::RUN != 0 {
        count = reader.varint()?;
        0
    } else if wire == Wire::Len {
        Entry::minimal_head(number, len)
    } else {
        let width = if wire == Wire::Fixed64 { 8 } else { 4 };
        let head = if wire == Wire::Varint { reader.varint()? } else { len.saturating_sub(width) };
        content_len = len.saturating_sub(head);
        head
    };
    let node = if flags & flag::HAS_NODE != 0 { Some(reader.varint()? as NodeId) } else { None };
    let content = start.checked_add(head);
    let content_end = content.and_then(|at| at.checked_add(content_len));
    let end = content_end.and_then(|at| at.checked_add(tail));
    match (content, content_end, end) {
        (Some(content), Some(content_end), Some(end)) => {
            Ok(Entry { number, wire, start, content, content_end, end, count, node })
        }
        _ => Err(broken("a field runs past 2^64")),
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
    /// `block`, which must begin where the one before it ends.
    fn after(&self, block: Block<'a>) -> Result<Block<'a>> {
        let due = if self.next_block == 0 { self.node.record.content } else { self.block.position };
        if block.position == due { Ok(block) } else { Err(broken("the fields of a message do not follow each other")) }
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

/// The occurrences of one field of a node, from some element on.
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
    /// The next one, and which element of the field it is (for a run, its first).
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
            let place: FieldBlock = self.node.index.record(Section::FieldBlocks, at)?;
            if place.before > self.record.count {
                return Err(broken("a field occurs more often in its blocks than in all"));
            }
            self.block = self.node.block(u64::from(place.block))?;
            self.seen = place.before;
            self.next += 1;
        }
    }
}
