//! Entry of a field: its place on the wire, without its content. Indexes and on-demand scans consist of entries.

use std::ops::Range;

use crate::header::{self, Header, Wire};
use crate::varint;

/// The number of a node in its index.
pub type NodeId = u32;

/// One field occurrence, or a run of scalar ones, within a message. Entries tile the message: each begins where
/// the one before ends.
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
    /// The offset past the content; less than `end` only for groups.
    pub content_end: u64,
    /// The offset past the last byte.
    pub end: u64,
    /// Number of occurrences: above 1 only for a run of one scalar field.
    pub count: u64,
    /// The index node of the content, for a message that has one.
    pub node: Option<NodeId>,
}

/// Fields of one number that follow each other in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The field number.
    pub number: u32,
    /// Range of the fields.
    pub span: Range<u64>,
}

impl Entry {
    /// The entry of a field that begins at `start` and is no group.
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

    /// Bytes of the shortest tag and length of a length-delimited field.
    pub fn minimal_head(number: u32, content_len: u64) -> u64 {
        (varint::len(header::tag(number, Wire::Len)) + varint::len(content_len)) as u64
    }
}
