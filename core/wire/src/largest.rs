//! The largest parts of a proto, found with its index.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::document::{Document, Part};
use crate::entry::NodeId;
use crate::error::Result;
use crate::header::Wire;
use crate::schema::MISFIT;

/// One large part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Large {
    /// The path of the part; if this sums up the small elements of a field, the path of the field.
    pub path: String,
    /// The size of the content in bytes, or of all these elements.
    pub size: u64,
    /// The number of elements that are summed up; None for a single part.
    pub count: Option<u64>,
}

/// The ordinal that means all small elements of a field together.
const TOGETHER: u64 = u64::MAX;

/// A candidate: size, node, field, ordinal and count; ordered so that the smallest candidate is dropped first.
type Candidate = Reverse<(u64, NodeId, u32, u64, u64)>;

impl Document<'_> {
    /// Up to `limit` parts, the largest first. A part is a single field, or all small elements of one field together.
    pub fn largest(&self, limit: usize) -> Result<Vec<Large>> {
        let mut heap: BinaryHeap<Candidate> = BinaryHeap::new();
        let mut keep = |candidate: (u64, NodeId, u32, u64, u64)| {
            heap.push(Reverse(candidate));
            if heap.len() > limit {
                heap.pop();
            }
        };
        for id in 0..NodeId::try_from(self.index.node_count()).unwrap_or(NodeId::MAX) {
            // The sums over the small elements of each field: bytes and number.
            let mut small: HashMap<u32, (u64, u64)> = HashMap::new();
            let mut ordinals: HashMap<u32, u64> = HashMap::new();
            for entry in self.entries(&Part::Node(id))? {
                let entry = entry?;
                let ordinal = ordinals.entry(entry.number).or_default();
                if entry.node.is_none() && entry.wire == Wire::Len && entry.content_len() >= self.index.floor() {
                    keep((entry.content_len(), id, entry.number, *ordinal, 1));
                } else if entry.node.is_none() {
                    let sum = small.entry(entry.number).or_default();
                    *sum = (sum.0 + entry.end - entry.start, sum.1 + entry.count);
                }
                *ordinal += entry.count;
            }
            for (number, (size, count)) in small {
                keep((size, id, number, TOGETHER, count));
            }
        }
        let mut found = heap.into_sorted_vec();
        found.truncate(limit);
        found.into_iter().map(|Reverse(candidate)| self.large(candidate)).collect()
    }

    fn large(&self, (size, node, number, ordinal, count): (u64, NodeId, u32, u64, u64)) -> Result<Large> {
        let above = self.path_of(node)?;
        let type_id = self.index.node(node)?.message_type(self.schema);
        let field = self.schema.field(type_id, number);
        let name = field.map_or_else(|| (number & !MISFIT).to_string(), |field| field.name.clone());
        let list = match field {
            Some(field) => field.repeated && !field.kind.is_packable(),
            None => self.is_listed(node, number)?,
        };
        let step = if list && ordinal != TOGETHER { format!("{name}[{ordinal}]") } else { name };
        let in_map = self.schema.is_map_entry(type_id);
        let path = if in_map && number == 2 {
            above
        } else if in_map {
            // The key of a map entry has no path, so the map's path is used.
            self.field_path(node, 0)?
        } else if above.is_empty() {
            step
        } else {
            format!("{above}.{step}")
        };
        Ok(Large { path, size, count: Some(count).filter(|count| *count > 1) })
    }

    /// The path of a node of the index.
    pub fn path_of(&self, id: NodeId) -> Result<String> {
        self.path_from(id, 0)
    }

    /// The path of a node. The recursion `depth` is limited, because a damaged index may make a node its own ancestor.
    fn path_from(&self, id: NodeId, depth: u32) -> Result<String> {
        if id == 0 {
            return Ok(String::new());
        }
        let record = self.index.node(id)?.record;
        self.limits.check_depth(depth, record.start)?;
        let parent = self.index.node(record.parent)?.message_type(self.schema);
        if self.schema.is_map_entry(parent) && record.number == 2 {
            return self.path_from(record.parent, depth + 1);
        }
        let path = self.field_path(id, depth)?;
        match self.schema.field(parent, record.number) {
            Some(field) if self.schema.is_map(field) => Ok(format!("{path}[{}]", self.map_key_of(id, field.target)?)),
            Some(field) if field.repeated => Ok(format!("{path}[{}]", record.ordinal)),
            None if self.is_listed(record.parent, record.number)? => Ok(format!("{path}[{}]", record.ordinal)),
            _ => Ok(path),
        }
    }

    /// The path of the field that the node `id` belongs to, without the element's step.
    fn field_path(&self, id: NodeId, depth: u32) -> Result<String> {
        let record = self.index.node(id)?.record;
        let above = self.path_from(record.parent, depth + 1)?;
        let parent = self.index.node(record.parent)?.message_type(self.schema);
        let field = self.schema.field(parent, record.number);
        let name = field.map_or_else(|| (record.number & !MISFIT).to_string(), |field| field.name.clone());
        Ok(if above.is_empty() { name } else { format!("{above}.{name}") })
    }

    /// True if the unknown field `number` of `node` occurs more than once.
    fn is_listed(&self, node: NodeId, number: u32) -> Result<bool> {
        Ok(self.index.node(node)?.field(number)?.is_some_and(|field| field.count() > 1))
    }

    fn map_key_of(&self, id: NodeId, type_id: u32) -> Result<String> {
        let record = self.index.node(id)?.record;
        let entry = crate::entry::Entry {
            number: record.number,
            wire: Wire::Len,
            start: record.start,
            content: record.content,
            content_end: record.content_end,
            end: record.end,
            count: 1,
            node: Some(id),
        };
        self.entry_key(&entry, type_id)
    }
}
