//! Building an index while a scan goes on: one open node per message on the way down, flushed as it closes.

pub(crate) mod saved;

use std::collections::HashMap;

use super::layout::{self, BLOCK_ENTRIES, BlockRecord, FieldBlock, FieldRecord, KeyRecord, NodeRecord, Record};
use crate::entry::{Entry, NodeId};
use crate::error::{Kind, Result, WireError};
use crate::header::Wire;
use crate::limits::Limits;
use crate::varint;

/// A run of scalars is cut here, so that finding one of them reads no more than this.
const RUN_BYTES: u64 = 4096;
/// What a field that occurs for the first time in a node costs against the limit of nodes.
const FIELD_COST: u64 = 16;
const DENSE: usize = 64;

/// Collects nodes and entries, and gives the serialized index.
#[derive(Debug)]
pub struct Builder {
    open: Vec<OpenNode>,
    nodes: Vec<NodeRecord>,
    blocks: Vec<BlockRecord>,
    entries: Vec<u8>,
    fields: Vec<FieldRecord>,
    field_blocks: Vec<FieldBlock>,
    keys: Vec<KeyRecord>,
    types: Vec<String>,
    type_ids: HashMap<String, u32>,
    spent: u64,
    limit: u64,
}

#[derive(Debug)]
struct OpenNode {
    id: NodeId,
    record: NodeRecord,
    blocks: Vec<BlockRecord>,
    block: Vec<u8>,
    block_start: u64,
    block_count: u32,
    last_number: u32,
    run: Option<Entry>,
    fields: Vec<OpenField>,
    last_field: usize,
    dense: [u8; DENSE],
    sparse: HashMap<u32, usize>,
    entries_mark: usize,
}

#[derive(Debug, Default)]
struct OpenField {
    record: FieldRecord,
    blocks: Vec<FieldBlock>,
    /// Hash and ordinal in one number, which sorts as the records do.
    keys: Vec<u64>,
}

impl Builder {
    /// An empty index.
    pub fn new(limits: &Limits) -> Self {
        Self {
            open: Vec::new(),
            nodes: Vec::new(),
            blocks: Vec::new(),
            entries: Vec::new(),
            fields: Vec::new(),
            field_blocks: Vec::new(),
            keys: Vec::new(),
            types: Vec::new(),
            type_ids: HashMap::new(),
            spent: 0,
            limit: limits.nodes,
        }
    }

    /// Opens the node that begins with `record` (its ends may be unknown yet), of the type named `type_name`.
    pub fn open(&mut self, mut record: NodeRecord, type_name: Option<&str>) -> Result<()> {
        self.spend(FIELD_COST, record.start)?;
        let id = NodeId::try_from(self.nodes.len());
        let id = id.map_err(|_| WireError::new(Kind::Limit, "the index has more than 2^32 nodes"))?;
        record.type_name = type_name.map_or(0, |name| self.type_number(name));
        if let Some(parent) = self.open.last_mut() {
            record.parent = parent.id;
            record.ordinal = parent.field(record.number).record.count;
        }
        self.nodes.push(record);
        self.open.push(OpenNode::new(id, record, self.entries.len()));
        Ok(())
    }

    /// Which occurrence of its field each open node is, from the root down.
    pub fn ordinals(&self) -> impl Iterator<Item = u64> {
        self.open.iter().map(|node| node.record.ordinal)
    }

    /// Adds the next field of the innermost open node, with the hash of its key where it has one.
    #[inline]
    pub fn push(&mut self, entry: Entry, key: Option<u32>) -> Result<()> {
        self.spend(1, entry.start)?;
        let Some(node) = self.open.last_mut() else { return Ok(()) };
        if matches!(entry.wire, Wire::Len | Wire::Group) {
            node.flush_run(&mut self.entries);
            if node.add(&entry, key, &mut self.entries) {
                self.spend(FIELD_COST, entry.start)?;
            }
            return Ok(());
        }
        match &mut node.run {
            Some(run) if run.number == entry.number && run.wire == entry.wire && entry.end - run.start <= RUN_BYTES => {
                run.end = entry.end;
                run.content_end = entry.end;
                run.count += 1;
            }
            _ => {
                node.flush_run(&mut self.entries);
                node.run = Some(entry);
            }
        }
        Ok(())
    }

    /// Closes the innermost open node, whose ends are known now. With `keep` false all that was recorded of it and
    /// below it is forgotten. Returns its number where it was kept.
    pub fn close(&mut self, content_end: u64, end: u64, keep: bool) -> Option<NodeId> {
        let mut node = self.open.pop()?;
        if !keep {
            self.nodes.truncate(node.id as usize);
            self.entries.truncate(node.entries_mark);
            return None;
        }
        node.flush_run(&mut self.entries);
        node.flush_block(&mut self.entries);
        let mut record = node.record;
        (record.content_end, record.end) = (content_end, end);
        record.blocks_at = self.blocks.len() as u64;
        record.blocks_len = node.blocks.len() as u32;
        record.fields_at = self.fields.len() as u64;
        record.fields_len = node.fields.len() as u32;
        self.blocks.append(&mut node.blocks);
        node.fields.sort_by_key(|field| field.record.number);
        for field in &mut node.fields {
            self.close_field(field);
        }
        if let Some(slot) = self.nodes.get_mut(node.id as usize) {
            *slot = record;
        }
        Some(node.id)
    }

    /// The serialized index of a proto of `size` bytes. Every node must be closed.
    pub fn finish(self, size: u64, floor: u64) -> Vec<u8> {
        let mut types = Vec::new();
        for name in &self.types {
            varint::write(name.len() as u64, &mut types);
            types.extend_from_slice(name.as_bytes());
        }
        let sections = [
            types,
            records(&self.nodes),
            records(&self.blocks),
            self.entries,
            records(&self.fields),
            records(&self.field_blocks),
            records(&self.keys),
        ];
        layout::assemble(size, floor, sections)
    }

    fn close_field(&mut self, field: &mut OpenField) {
        let record = &mut field.record;
        record.blocks_at = self.field_blocks.len() as u64;
        record.blocks_len = field.blocks.len() as u32;
        record.keys_at = self.keys.len() as u64;
        record.keys_len = field.keys.len() as u64;
        field.keys.sort_unstable();
        self.field_blocks.append(&mut field.blocks);
        let records = field.keys.iter().map(|key| KeyRecord { hash: (key >> 32) as u32, ordinal: *key as u32 });
        self.keys.extend(records);
        self.fields.push(*record);
    }

    fn type_number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.type_ids.get(name) {
            return *number;
        }
        self.types.push(name.to_owned());
        let number = self.types.len() as u32;
        self.type_ids.insert(name.to_owned(), number);
        number
    }

    #[inline]
    fn spend(&mut self, cost: u64, offset: u64) -> Result<()> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent <= self.limit {
            return Ok(());
        }
        let message =
            format!("the proto has more parts than the index may hold ({}): raise the limit of nodes", self.limit);
        Err(WireError::new(Kind::Limit, message).at(offset))
    }
}

fn records<R: Record>(records: &[R]) -> Vec<u8> {
    let mut out = Vec::with_capacity(records.len() * R::WIDTH);
    records.iter().for_each(|record| record.write(&mut out));
    out
}

impl OpenNode {
    fn new(id: NodeId, record: NodeRecord, entries_mark: usize) -> Self {
        Self {
            id,
            record,
            blocks: Vec::new(),
            block: Vec::new(),
            block_start: record.content,
            block_count: 0,
            last_number: 0,
            run: None,
            fields: Vec::new(),
            last_field: 0,
            dense: [0; DENSE],
            sparse: HashMap::new(),
            entries_mark,
        }
    }

    /// The open field `number`, made where it is new.
    fn field(&mut self, number: u32) -> &mut OpenField {
        let at = self.field_at(number);
        self.last_field = at;
        if at == self.fields.len() {
            self.fields
                .push(OpenField { record: FieldRecord { number, ..FieldRecord::default() }, ..Default::default() });
            match self.dense.get_mut(number as usize) {
                Some(slot) if at < 255 => *slot = at as u8 + 1,
                _ => drop(self.sparse.insert(number, at)),
            }
        }
        // `at` is an index that was there or has just been pushed; the first element stands in for the impossible.
        let at = at.min(self.fields.len() - 1);
        #[allow(clippy::indexing_slicing, reason = "bounded by the line above")]
        &mut self.fields[at]
    }

    #[inline]
    fn field_at(&self, number: u32) -> usize {
        if self.fields.get(self.last_field).is_some_and(|field| field.record.number == number) {
            return self.last_field;
        }
        match self.dense.get(number as usize) {
            Some(slot) if *slot > 0 => usize::from(*slot) - 1,
            _ => self.sparse.get(&number).copied().unwrap_or(self.fields.len()),
        }
    }

    /// Adds `entry`; true when its field is new in this node.
    fn add(&mut self, entry: &Entry, key: Option<u32>, entries: &mut Vec<u8>) -> bool {
        if self.block_count == BLOCK_ENTRIES {
            self.flush_block(entries);
        }
        if self.block_count == 0 {
            self.block_start = entry.start;
            self.last_number = 0;
        }
        let block = self.blocks.len() as u32;
        let field = self.field(entry.number);
        let ordinal = field.record.count;
        if field.blocks.last().is_none_or(|last| last.block != block) {
            field.blocks.push(FieldBlock { before: ordinal, block });
        }
        // No proto has so many: but a saved scan may say so.
        field.record.count = field.record.count.saturating_add(entry.count);
        field.record.bytes = field.record.bytes.saturating_add(entry.end - entry.start);
        if let (Some(hash), Ok(ordinal)) = (key, u32::try_from(ordinal)) {
            field.keys.push(u64::from(hash) << 32 | u64::from(ordinal));
        }
        encode(entry, self.last_number, &mut self.block);
        self.last_number = entry.number;
        self.block_count += 1;
        ordinal == 0
    }

    fn flush_run(&mut self, entries: &mut Vec<u8>) {
        if let Some(run) = self.run.take() {
            self.add(&run, None, entries);
        }
    }

    fn flush_block(&mut self, entries: &mut Vec<u8>) {
        if self.block_count == 0 {
            return;
        }
        let (at, len) = (entries.len() as u64, self.block.len() as u32);
        self.blocks.push(BlockRecord { start: self.block_start, at, len, count: self.block_count });
        entries.append(&mut self.block);
        self.block_count = 0;
    }
}

/// Flags of an encoded entry's first byte; its low three bits are the wire type.
pub(super) mod flag {
    pub(in crate::index) const SAME_NUMBER: u8 = 1 << 3;
    pub(in crate::index) const HAS_NODE: u8 = 1 << 4;
    pub(in crate::index) const ODD_HEAD: u8 = 1 << 5;
    pub(in crate::index) const RUN: u8 = 1 << 6;
}

fn encode(entry: &Entry, last_number: u32, out: &mut Vec<u8>) {
    let head = entry.content - entry.start;
    let odd = entry.wire == Wire::Group
        || (entry.wire == Wire::Len && head != Entry::minimal_head(entry.number, entry.content_len()));
    let same = entry.number == last_number;
    let flags = [
        (same, flag::SAME_NUMBER),
        (entry.node.is_some(), flag::HAS_NODE),
        (odd, flag::ODD_HEAD),
        (entry.count > 1, flag::RUN),
    ];
    out.push(flags.iter().fold(entry.wire as u8, |byte, (set, flag)| if *set { byte | flag } else { byte }));
    if !same {
        varint::write(u64::from(entry.number), out);
    }
    match entry.wire {
        Wire::Len | Wire::Group => varint::write(entry.content_len(), out),
        _ => varint::write(entry.end - entry.start, out),
    }
    if odd {
        varint::write(head, out);
        varint::write(entry.end - entry.content_end, out);
    } else if entry.count > 1 {
        varint::write(entry.count, out);
    } else if entry.wire == Wire::Varint {
        varint::write(head, out);
    }
    if let Some(node) = entry.node {
        varint::write(u64::from(node), out);
    }
}
