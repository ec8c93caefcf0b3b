//! An open message of a scan: its fields so far, and the block for its next entry.

use std::collections::HashMap;

use crate::entry::{Entry, NodeId};
use crate::index::coding::encode;
use crate::index::layout::{BLOCK_ENTRIES, BlockRecord, FieldBlock, FieldRecord, NodeRecord};

/// Fields with lower numbers are found without hashing.
const DENSE: usize = 64;

#[derive(Debug)]
pub(super) struct OpenNode {
    pub(super) id: NodeId,
    pub(super) record: NodeRecord,
    pub(super) blocks: Vec<BlockRecord>,
    pub(super) block: Vec<u8>,
    pub(super) block_start: u64,
    pub(super) block_count: u32,
    pub(super) last_number: u32,
    pub(super) run: Option<Entry>,
    pub(super) fields: Vec<OpenField>,
    last_field: usize,
    dense: [u8; DENSE],
    sparse: HashMap<u32, usize>,
    pub(super) entries_mark: usize,
}

#[derive(Debug, Default)]
pub(super) struct OpenField {
    pub(super) record: FieldRecord,
    pub(super) blocks: Vec<FieldBlock>,
    /// The hash and ordinal of each key in one number, so that they sort like the records.
    pub(super) keys: Vec<u64>,
}

impl OpenNode {
    pub(super) fn new(id: NodeId, record: NodeRecord, entries_mark: usize) -> Self {
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

    /// The open field `number`, created if it is new.
    pub(super) fn field(&mut self, number: u32) -> &mut OpenField {
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
        // `at` is a valid index or was just pushed. The clamp only prevents a panic that cannot occur.
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

    /// Adds `entry`; returns true when its field is new in this node.
    pub(super) fn add(&mut self, entry: &Entry, key: Option<u32>, entries: &mut Vec<u8>) -> bool {
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
        // No proto has so many occurrences, but a damaged saved scan may claim it.
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

    pub(super) fn flush_run(&mut self, entries: &mut Vec<u8>) {
        if let Some(run) = self.run.take() {
            self.add(&run, None, entries);
        }
    }

    pub(super) fn flush_block(&mut self, entries: &mut Vec<u8>) {
        if self.block_count == 0 {
            return;
        }
        let (at, len) = (entries.len() as u64, self.block.len() as u32);
        self.blocks.push(BlockRecord { start: self.block_start, at, len, count: self.block_count });
        entries.append(&mut self.block);
        self.block_count = 0;
    }
}
