//! A proto with its index. Messages are found as protobuf defines them, and only the bytes of the result are read.
//!
//! A message may consist of several pieces, because the occurrences of a singular field are merged. Pieces without a
//! node in the index are scanned on demand.

mod keyed;

use std::ops::Range;
use std::rc::Rc;

use crate::entry::{Entry, NodeId};
use crate::error::{Kind, Result, WireError};
use crate::index::{Entries, Index};
use crate::limits::Limits;
use crate::ondemand::{OnDemand, SCANNED_ENTRIES};
use crate::schema::{Schema, TypeId};
use crate::source::Source;

pub use keyed::Wanted;

/// An indexed proto.
pub struct Document<'a> {
    /// The index of the proto, which has the offsets of its messages and fields.
    pub index: &'a Index,
    bytes: OnDemand<'a>,
}

impl<'a> std::ops::Deref for Document<'a> {
    type Target = OnDemand<'a>;

    fn deref(&self) -> &OnDemand<'a> {
        &self.bytes
    }
}

/// A message: its type, and the pieces that are merged into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message type; None when unknown.
    pub type_id: Option<TypeId>,
    /// The pieces in order; empty for a default message that has no bytes on the wire.
    pub parts: Vec<Part>,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A node of the index.
    Node(NodeId),
    /// The range and type of a message's content for which the index has no node.
    Span(Range<u64>, Option<TypeId>),
}

impl Part {
    /// The content of `entry` as a piece of a message of type `type_id`.
    pub fn of(entry: &Entry, type_id: Option<TypeId>) -> Self {
        entry.node.map_or_else(|| Self::Span(entry.content_span(), type_id), Self::Node)
    }
}

impl<'a> Document<'a> {
    /// Opens the proto of `index`, which is read from `source`.
    pub fn new(index: &'a Index, schema: &'a Schema, source: &'a dyn Source, limits: Limits) -> Result<Self> {
        if index.size() != source.len() {
            let message =
                format!("the index is for a proto of {} bytes, but the source has {}", index.size(), source.len());
            return Err(WireError::new(Kind::Corrupt, message));
        }
        Ok(Self { index, bytes: OnDemand::new(schema, source, limits) })
    }

    /// The whole proto.
    pub fn root(&self) -> Result<Message> {
        let type_id = self.index.node(0)?.message_type(self.schema);
        Ok(Message { type_id, parts: vec![Part::Node(0)] })
    }

    /// The range of the content of `part`.
    pub fn span(&self, part: &Part) -> Result<Range<u64>> {
        match part {
            Part::Span(span, _) => Ok(span.clone()),
            Part::Node(id) => self.index.node(*id).map(|node| node.record.content..node.record.content_end),
        }
    }

    /// The fields of `part`, in order. A run of one scalar field may be a single entry.
    pub fn entries(&self, part: &Part) -> Result<PartEntries<'a>> {
        self.carry_on()?;
        match part {
            Part::Node(id) => Ok(PartEntries::Indexed(self.index.node(*id)?.entries())),
            Part::Span(span, type_id) => {
                self.scanned(span.clone(), *type_id).map(|entries| PartEntries::Scanned(entries, 0))
            }
        }
    }

    /// Calls `visit` with each occurrence of field `number` in `part` and its position, from element `from` on, until
    /// `visit` returns false. A run is passed as a whole, even if it begins before `from`.
    pub fn visit(
        &self,
        part: &Part,
        number: u32,
        from: u64,
        visit: &mut dyn FnMut(u64, &Entry) -> Result<bool>,
    ) -> Result<()> {
        if let Part::Node(id) = part {
            let node = self.index.node(*id)?;
            let Some(field) = node.field(number)? else { return Ok(()) };
            let mut occurrences = node.occurrences(&field, from)?;
            while let Some((ordinal, entry)) = occurrences.next_occurrence()? {
                self.spend(1)?;
                if !visit(ordinal, &entry)? {
                    break;
                }
            }
            return Ok(());
        }
        let mut ordinal = 0u64;
        for entry in self.entries(part)? {
            let entry = entry?;
            if entry.number != number {
                continue;
            }
            let at = ordinal;
            ordinal += entry.count;
            self.spend(1)?;
            if ordinal > from && !visit(at, &entry)? {
                break;
            }
        }
        Ok(())
    }

    /// The number of occurrences of field `number` in `part`.
    pub fn count(&self, part: &Part, number: u32) -> Result<u64> {
        if let Part::Node(id) = part {
            return Ok(self.index.node(*id)?.field(number)?.map_or(0, |field| field.count()));
        }
        let mut count = 0;
        self.visit(part, number, 0, &mut |_, entry| {
            count += entry.count;
            Ok(true)
        })?;
        Ok(count)
    }

    /// The occurrences that form the value of the singular field `number`, without those that a later member of the
    /// oneof has replaced. Fails for more than `SCANNED_ENTRIES` occurrences.
    pub fn singular(&self, message: &Message, number: u32) -> Result<Vec<Entry>> {
        let oneof = self.schema.field(message.type_id, number).map_or(0, |field| field.oneof);
        let mut found = Vec::new();
        for part in &message.parts {
            if oneof == 0 {
                self.visit(part, number, 0, &mut |_, entry| {
                    keep(&mut found, *entry)?;
                    Ok(true)
                })?;
                continue;
            }
            for entry in self.entries(part)? {
                let entry = entry?;
                self.spend(1)?;
                if entry.number == number {
                    keep(&mut found, entry)?;
                } else if self.schema.field(message.type_id, entry.number).is_some_and(|field| field.oneof == oneof) {
                    found.clear();
                }
            }
        }
        Ok(found)
    }

    /// The occurrence at position `ordinal` of field `number`, taken out of its run; None after the last occurrence.
    pub fn element(&self, message: &Message, number: u32, ordinal: u64) -> Result<Option<Entry>> {
        let mut before = 0u64;
        for part in &message.parts {
            let count = self.count(part, number)?;
            if ordinal - before >= count {
                before += count;
                continue;
            }
            let mut found = None;
            self.visit(part, number, ordinal - before, &mut |at, entry| {
                found = Some((at, *entry));
                Ok(false)
            })?;
            let Some((at, entry)) = found else { return Ok(None) };
            let place = (ordinal - before).checked_sub(at);
            let place = place.ok_or_else(|| WireError::corrupt(entry.start, "the index has wrong element counts"))?;
            return self.of_run(&entry, place).map(Some);
        }
        Ok(None)
    }
}

/// Adds `entry` to the occurrences of a singular field, each of which takes memory. Fails if there are too many: the
/// field's value depends on all occurrences, so none may be dropped.
fn keep(found: &mut Vec<Entry>, entry: Entry) -> Result<()> {
    if found.len() < SCANNED_ENTRIES {
        found.push(entry);
        return Ok(());
    }
    let message =
        format!("the singular field {} occurs more than {SCANNED_ENTRIES} times, which is the limit", entry.number);
    Err(WireError::new(Kind::Limit, message).at(entry.start))
}

/// The fields of one piece of a message.
#[derive(Debug)]
pub enum PartEntries<'a> {
    /// Read from the index.
    Indexed(Entries<'a>),
    /// Scanned entries, and the number of entries already returned.
    Scanned(Rc<[Entry]>, usize),
}

impl Iterator for PartEntries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        match self {
            Self::Indexed(entries) => entries.next(),
            Self::Scanned(entries, taken) => {
                let entry = entries.get(*taken).copied();
                *taken += 1;
                entry.map(Ok)
            }
        }
    }
}
