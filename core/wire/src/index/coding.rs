//! The coding of one entry in a block.

use super::broken;
use crate::entry::{Entry, NodeId};
use crate::error::Result;
use crate::header::Wire;
use crate::reader::Reader;
use crate::varint;

/// The flags in an encoded entry's first byte; its low three bits are the wire type.
mod flag {
    pub(super) const SAME_NUMBER: u8 = 1 << 3;
    pub(super) const HAS_NODE: u8 = 1 << 4;
    pub(super) const ODD_HEAD: u8 = 1 << 5;
    pub(super) const RUN: u8 = 1 << 6;
}

/// Appends `entry`; the entry before it is of field `last_number`.
pub(super) fn encode(entry: &Entry, last_number: u32, out: &mut Vec<u8>) {
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

/// Reads the entry that [`encode`] wrote; its tag is at offset `start`.
pub(super) fn decode(reader: &mut Reader<'_>, start: u64, last_number: u32) -> Result<Entry> {
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
        _ => Err(broken("a field extends past 2^64")),
    }
}
