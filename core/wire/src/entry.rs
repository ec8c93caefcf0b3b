//! Entries: the place of a field on the wire, without its content. Indexes and on-demand scans consist of entries.

use std::ops::Range;

use crate::header::{self, Header, Wire};
use crate::varint;

/// The number of a node in its index.
pub type NodeId = u32;

/// One occurrence of a field in a message, or a run of scalar occurrences. The entries cover the whole message: each
/// begins where the previous entry ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The field number.
    pub number: u32,
    /// The wire type.
    pub wire: Wire,
    /// The offset of the tag.
    pub start: u64,
    /// The offset of the content.
    pub content: u64,
    /// The offset after the content; only for groups, this is less than `end`.
    pub content_end: u64,
    /// The offset after the last byte.
    pub end: u64,
    /// The number of occurrences; it is above 1 only for a run of one scalar field.
    pub count: u64,
    /// The index node of the content, for a message that has one.
    pub node: Option<NodeId>,
}

/// Consecutive fields of a message that have the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The field number.
    pub number: u32,
    /// The range of the fields.
    pub span: Range<u64>,
}

impl Entry {
    /// Makes the entry of a field that begins at `start` and is not a group.
    pub fn new(header: &Header, start: u64) -> Self {
        let content = start.saturating_add(u64::from(header.head_len));
        let end = content.saturating_add(header.content_len);
        let Header { number, wire, .. } = *header;
        Self { number, wire, start, content, content_end: end, end, count: 1, node: None }
    }

    /// Length of the content in bytes.
    pub fn content_len(&self) -> u64 {
        self.content_end - self.content
    }

    /// Range of the whole field.
    pub fn span(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Range of the content.
    pub fn content_span(&self) -> Range<u64> {
        self.content..self.content_end
    }

    /// The size in bytes of the shortest tag and length for a length-delimited field.
    pub fn minimal_head(number: u32, content_len: u64) -> u64 {
        (varint::len(header::tag(number, Wire::Len)) + varint::len(content_len)) as u64
    }
}
