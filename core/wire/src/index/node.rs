//! The messages of an index, and summaries of their fields.

use super::broken;
use super::layout::{FieldRecord, KeyRecord, NodeRecord};
use super::read::Index;
use crate::entry::NodeId;
use crate::error::Result;
use crate::schema::{Schema, TypeId};

/// One scanned message of an index.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(super) index: &'a Index,
    id: NodeId,
    /// The record of the message.
    pub record: NodeRecord,
}

/// A summary of one field of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSummary {
    pub(super) record: FieldRecord,
}

impl FieldSummary {
    /// Field number.
    pub fn number(&self) -> u32 {
        self.record.number
    }

    /// Number of occurrences.
    pub fn count(&self) -> u64 {
        self.record.count
    }

    /// The size of all occurrences in bytes, including tags and lengths.
    pub fn bytes(&self) -> u64 {
        self.record.bytes
    }

    /// True if the keys of all elements are recorded.
    pub fn has_keys(&self) -> bool {
        self.record.keys_len == self.record.count
    }
}

impl Index {
    /// The node with the number `id`; 0 is the root.
    pub fn node(&self, id: NodeId) -> Result<Node<'_>> {
        let record: NodeRecord = self.record(u64::from(id))?;
        let ordered = record.start <= record.content && record.content <= record.content_end;
        if !ordered || record.content_end > record.end || record.end > self.size() {
            return Err(broken(&format!("node {id} lies beyond the end of the proto")));
        }
        Ok(Node { index: self, id, record })
    }
}

impl<'a> Node<'a> {
    /// Number of the node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The message type in `schema`; None when the index or `schema` does not know it.
    pub fn message_type(&self, schema: &Schema) -> Option<TypeId> {
        schema.type_named(self.index.type_name(self.record.type_name)?)
    }

    /// The summaries of all fields that occur, sorted by number.
    pub fn fields(&self) -> impl Iterator<Item = Result<FieldSummary>> + use<'a> {
        let (index, record) = (self.index, self.record);
        (0..u64::from(record.fields_len))
            .map(move |i| index.record(record.fields_at.saturating_add(i)).and_then(|field| summary(&record, field)))
    }

    /// The summary of field `number`; None when it does not occur.
    pub fn field(&self, number: u32) -> Result<Option<FieldSummary>> {
        let NodeRecord { fields_at, fields_len, .. } = self.record;
        let len = u64::from(fields_len);
        let at = self.index.partition(fields_at, len, |field: &FieldRecord| field.number < number)?;
        if at == len {
            return Ok(None);
        }
        let record: FieldRecord = self.index.record(fields_at.saturating_add(at))?;
        if record.number == number { summary(&self.record, record).map(Some) } else { Ok(None) }
    }

    /// The ordinals of the elements of `field` whose key has this hash, in order.
    pub fn with_key_hash(&self, field: &FieldSummary, hash: u32) -> Result<Vec<u64>> {
        let FieldRecord { keys_at, keys_len, .. } = field.record;
        let mut at = self.index.partition(keys_at, keys_len, |key: &KeyRecord| key.hash < hash)?;
        let mut found = Vec::new();
        while at < keys_len {
            let key: KeyRecord = self.index.record(keys_at.saturating_add(at))?;
            if key.hash != hash {
                break;
            }
            found.push(u64::from(key.ordinal));
            at += 1;
        }
        Ok(found)
    }
}

/// The summary of `field`, after a check against the size of `node`: each occurrence takes at least one byte.
fn summary(node: &NodeRecord, field: FieldRecord) -> Result<FieldSummary> {
    if field.count <= field.bytes && field.bytes <= node.content_end - node.content {
        return Ok(FieldSummary { record: field });
    }
    Err(broken("a field has more occurrences than fit into its message"))
}
