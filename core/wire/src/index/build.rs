//! The building of an index during a scan, with a stack of open nodes; each node is written when it closes.

mod open_node;
pub(crate) mod saved;

use std::collections::HashMap;

use open_node::{OpenField, OpenNode};

use super::layout::{self, BlockRecord, FieldBlock, FieldRecord, KeyRecord, NodeRecord, Record};
use crate::entry::{Entry, NodeId};
use crate::error::{Kind, Result, WireError};
use crate::header::Wire;
use crate::limits::Limits;
use crate::varint;

/// Longest run of scalars in bytes, and thus the most bytes that a look-up of one scalar reads.
const RUN_BYTES: u64 = 4096;
/// The cost of a node, or of a field's first occurrence in a node, for the limit on nodes.
const FIELD_COST: u64 = 16;

/// Collects nodes and entries, and serializes the index.
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

impl Builder {
    /// Makes an empty builder.
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

    /// Opens the node that begins with `record`, of the type named `type_name`; the node's ends may be unknown.
    pub fn open(&mut self, mut record: NodeRecord, type_name: Option<&str>) -> Result<()> {
        self.spend(FIELD_COST, record.start)?;
        let id = NodeId::try_from(self.nodes.len());
        let id = id.map_err(|_| {
            WireError::new(Kind::Limit, "the proto has too many messages for an index, which holds up to 2^32")
        })?;
        record.type_name = type_name.map_or(0, |name| self.type_number(name));
        if let Some(parent) = self.open.last_mut() {
            record.parent = parent.id;
            record.ordinal = parent.field(record.number).record.count;
        }
        self.nodes.push(record);
        self.open.push(OpenNode::new(id, record, self.entries.len()));
        Ok(())
    }

    /// The positions of the open nodes in their fields, from the root down.
    pub fn ordinals(&self) -> impl Iterator<Item = u64> {
        self.open.iter().map(|node| node.record.ordinal)
    }

    /// Adds the next field of the innermost open node, with its key's hash if it has a key.
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

    /// Closes the innermost open node, whose ends are now known, and returns its number. If `keep` is false, the node
    /// and all nodes below it are discarded, and the result is None.
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

    /// The serialized index of a proto of `size` bytes; all nodes must be closed.
    pub fn finish(self, size: u64, floor: u64) -> Vec<u8> {
        let mut types = Vec::new();
        for name in &self.types {
            varint::write(name.len() as u64, &mut types);
            types.extend_from_slice(name.as_bytes());
        }
        let lens = [
            types.len(),
            width(&self.nodes),
            width(&self.blocks),
            self.entries.len(),
            width(&self.fields),
            width(&self.field_blocks),
            width(&self.keys),
        ];
        let mut index = layout::Serializer::new(size, floor, lens);
        index.bytes(types);
        index.records(self.nodes);
        index.records(self.blocks);
        index.bytes(self.entries);
        index.records(self.fields);
        index.records(self.field_blocks);
        index.records(self.keys);
        index.finish()
    }

    fn close_field(&mut self, field: &mut OpenField) {
        let record = &mut field.record;
        record.blocks_at = self.field_blocks.len() as u64;
        record.blocks_len = field.blocks.len() as u32;
        record.keys_at = self.keys.len() as u64;
        record.keys_len = field.keys.len() as u64;
        field.keys.sort_unstable();
        self.field_blocks.append(&mut field.blocks);
        let keys = std::mem::take(&mut field.keys);
        let records = keys.iter().map(|key| KeyRecord { hash: (key >> 32) as u32, ordinal: *key as u32 });
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
        let message = format!(
            "the proto has more fields and elements than the index may hold ({}): raise the nodes limit",
            self.limit
        );
        Err(WireError::new(Kind::Limit, message).at(offset))
    }
}

fn width<R: Record>(records: &[R]) -> usize {
    records.len() * R::WIDTH
}
