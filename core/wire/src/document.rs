//! A proto with its index: messages as protobuf means them, found without reading more than the bytes concerned.
//!
//! A message may lie in several pieces, because a singular field that occurs many times is merged. A piece that the
//! index has no node for is scanned on demand.

use std::ops::Range;

use crate::entry::{Entry, NodeId};
use crate::error::{Kind, Result, WireError};
use crate::header::{Fields, Wire};
use crate::index::{Entries, Index};
use crate::key::{self, Key};
use crate::limits::Limits;
use crate::ondemand::{OnDemand, SCANNED_ENTRIES};
use crate::schema::{FieldKind, Schema, TypeId};
use crate::source::Source;

/// A proto that can be asked for its parts.
pub struct Document<'a> {
    /// Where its parts lie.
    pub index: &'a Index,
    bytes: OnDemand<'a>,
}

impl<'a> std::ops::Deref for Document<'a> {
    type Target = OnDemand<'a>;

    fn deref(&self) -> &OnDemand<'a> {
        &self.bytes
    }
}

/// A message: its type, and the pieces that merge into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its type, where known.
    pub type_id: Option<TypeId>,
    /// Its pieces, in order. None for a message of which only the default is there.
    pub parts: Vec<Part>,
}

/// Elements of a repeated field or map, told by one of their fields.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The repeated field.
    pub number: u32,
    /// The type of its elements.
    pub type_id: Option<TypeId>,
    /// The field of theirs to look at.
    pub key: u32,
    /// What kind that field is.
    pub kind: FieldKind,
    /// What it must be.
    pub value: Key<'a>,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A node of the index.
    Node(NodeId),
    /// The content that lies here, of this type, which the index has no node for.
    Span(Range<u64>, Option<TypeId>),
}

impl Part {
    /// The content of `entry`, a message of type `type_id`.
    pub fn of(entry: &Entry, type_id: Option<TypeId>) -> Self {
        entry.node.map_or_else(|| Self::Span(entry.content_span(), type_id), Self::Node)
    }
}

impl<'a> Document<'a> {
    /// The proto of `index`, whose bytes `source` has.
    pub fn new(index: &'a Index, schema: &'a Schema, source: &'a dyn Source, limits: Limits) -> Result<Self> {
        if index.size() != source.len() {
            let message = format!("the index is of a proto of {} bytes, the source has {}", index.size(), source.len());
            return Err(WireError::new(Kind::Corrupt, message));
        }
        Ok(Self { index, bytes: OnDemand::new(schema, source, limits) })
    }

    /// The whole proto.
    pub fn root(&self) -> Result<Message> {
        let type_id = self.index.node(0)?.message_type(self.schema);
        Ok(Message { type_id, parts: vec![Part::Node(0)] })
    }

    /// Where the content of `part` lies.
    pub fn span(&self, part: &Part) -> Result<Range<u64>> {
        match part {
            Part::Span(span, _) => Ok(span.clone()),
            Part::Node(id) => self.index.node(*id).map(|node| node.record.content..node.record.content_end),
        }
    }

    /// The fields of `part`, in order. Runs of scalars may stand as one.
    pub fn entries(&self, part: &Part) -> Result<PartEntries<'a>> {
        self.carry_on()?;
        match part {
            Part::Node(id) => Ok(PartEntries::Indexed(self.index.node(*id)?.entries())),
            Part::Span(span, type_id) => {
                self.scan(span.clone(), *type_id).map(|entries| PartEntries::Scanned(entries.into_iter()))
            }
        }
    }

    /// The occurrences of field `number` in `part` from element `from` on, each with its position there, as long as
    /// `visit` says to go on. Runs come whole.
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
            if ordinal > from && !visit(at, &entry)? {
                break;
            }
        }
        Ok(())
    }

    /// How often field `number` occurs in `part`.
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

    /// The occurrences that make up the singular field `number` of `message`: those that a oneof has not taken back.
    pub fn singular(&self, message: &Message, number: u32) -> Result<Vec<Entry>> {
        let oneof = self.schema.field(message.type_id, number).map_or(0, |field| field.oneof);
        let mut found = Vec::new();
        for part in &message.parts {
            if oneof == 0 {
                self.visit(part, number, 0, &mut |_, entry| {
                    found.push(*entry);
                    Ok(found.len() < SCANNED_ENTRIES)
                })?;
                continue;
            }
            for entry in self.entries(part)? {
                let entry = entry?;
                if entry.number == number {
                    found.push(entry);
                } else if self.schema.field(message.type_id, entry.number).is_some_and(|field| field.oneof == oneof) {
                    found.clear();
                }
            }
        }
        Ok(found)
    }

    /// The occurrence at position `ordinal` of field `number`; a run is taken apart.
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
            let place = place.ok_or_else(|| WireError::corrupt(entry.start, "the index counts elements wrongly"))?;
            return self.of_run(&entry, place).map(Some);
        }
        Ok(None)
    }

    /// The entry of the map `field` of `message` with this key: the last one, which is the one that counts.
    pub fn map_entry(&self, message: &Message, wanted: &Wanted<'_>) -> Result<Option<(u64, Entry)>> {
        let mut found = None;
        let mut before = 0;
        for part in &message.parts {
            self.with_key(part, wanted, &mut |ordinal, entry| {
                found = Some((before + ordinal, *entry));
                Ok(true)
            })?;
            before += self.count(part, wanted.number)?;
        }
        Ok(found)
    }

    /// The first element of `message` that is `wanted`, and its position.
    pub fn element_where(&self, message: &Message, wanted: &Wanted<'_>) -> Result<Option<(u64, Entry)>> {
        let mut before = 0;
        for part in &message.parts {
            let mut first = None;
            self.with_key(part, wanted, &mut |ordinal, entry| {
                first = Some((before + ordinal, *entry));
                Ok(false)
            })?;
            if first.is_some() {
                return Ok(first);
            }
            before += self.count(part, wanted.number)?;
        }
        Ok(None)
    }

    /// The elements in `part` that are `wanted`: by the index's keys where it has them, one after the other where not.
    fn with_key(
        &self,
        part: &Part,
        wanted: &Wanted<'_>,
        visit: &mut dyn FnMut(u64, &Entry) -> Result<bool>,
    ) -> Result<()> {
        let mut matching = |ordinal: u64, entry: &Entry| -> Result<bool> {
            if entry.wire == Wire::Len && self.is_wanted(Part::of(entry, wanted.type_id), wanted)? {
                return visit(ordinal, entry);
            }
            Ok(true)
        };
        if let Part::Node(id) = part {
            let node = self.index.node(*id)?;
            let Some(summary) = node.field(wanted.number)? else { return Ok(()) };
            let message = wanted.type_id.and_then(|id| self.schema.message(id));
            if summary.has_keys() && message.and_then(|message| message.key()) == Some(wanted.key) {
                for ordinal in node.with_key_hash(&summary, wanted.value.hash())? {
                    let found = node.occurrences(&summary, ordinal)?.next_occurrence()?;
                    if let Some((at, entry)) = found
                        && !matching(at, &entry)?
                    {
                        break;
                    }
                }
                return Ok(());
            }
        }
        self.visit(part, wanted.number, 0, &mut matching)
    }

    fn is_wanted(&self, element: Part, wanted: &Wanted<'_>) -> Result<bool> {
        let default = key::default_key(wanted.kind);
        let element = Message { type_id: wanted.type_id, parts: vec![element] };
        let last =
            self.singular(&element, wanted.key)?.last().map(|run| self.of_run(run, run.count - 1)).transpose()?;
        let Some(entry) = last else { return Ok(default == wanted.value) };
        if let Key::Text(text) = wanted.value
            && text.len() as u64 != entry.content_len()
        {
            return Ok(false);
        }
        let bytes = self.read_span(&entry.span())?;
        let field = Fields::new(&bytes, entry.start, self.limits.depth).next_field()?;
        Ok(field.and_then(|field| key::of_field(wanted.kind, &field)).unwrap_or(default) == wanted.value)
    }

    /// The last occurrence of field `number` in `part`.
    fn last(&self, part: &Part, number: u32) -> Result<Option<Entry>> {
        let mut last = None;
        self.visit(part, number, 0, &mut |_, entry| {
            last = Some(*entry);
            Ok(true)
        })?;
        last.map(|run| self.of_run(&run, run.count - 1)).transpose()
    }

    /// The key of the element `entry`, by which people know it; `None` where its type has none or it is long.
    pub fn key_text(&self, entry: &Entry, type_id: TypeId, longest: u64) -> Result<Option<(FieldKind, Vec<u8>)>> {
        let Some(field) = self.schema.message(type_id).and_then(|message| message.field(message.key()?)) else {
            return Ok(None);
        };
        let last = self.last(&Part::of(entry, Some(type_id)), field.number)?;
        let Some(found) = last.filter(|found| found.content_len() <= longest) else { return Ok(None) };
        let bytes = self.read_span(&found.span())?;
        let in_memory = Fields::new(&bytes, found.start, self.limits.depth).next_field()?;
        Ok(match in_memory.and_then(|in_memory| key::of_field(field.kind, &in_memory)) {
            Some(Key::Text(text)) => Some((field.kind, text.to_vec())),
            Some(Key::Number(number)) => Some((field.kind, number.to_le_bytes().to_vec())),
            None => None,
        })
    }
}

/// The fields of one piece of a message.
#[derive(Debug)]
pub enum PartEntries<'a> {
    /// As the index has them.
    Indexed(Entries<'a>),
    /// As a scan gave them.
    Scanned(std::vec::IntoIter<Entry>),
}

impl Iterator for PartEntries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        match self {
            Self::Indexed(entries) => entries.next(),
            Self::Scanned(entries) => entries.next().map(Ok),
        }
    }
}
