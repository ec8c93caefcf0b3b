//! The skeleton of a message: the message without its large fields.
//!
//! A parsed skeleton equals the parsed message after its large fields were cleared. A value can replace earlier values
//! of a singular field, or of other members of its oneof. If the value is omitted, these earlier values must be omitted
//! too, because they would reappear. For this reason, all occurrences of a singular message are handled together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::Result;
use crate::header::Wire;
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::TypeId;

/// The fields that a view leaves out: large fields, and fields at certain places.
#[derive(Clone, Debug, Default)]
pub struct Omit {
    larger_than: Option<u64>,
    /// The spans of fields to leave out, in order and without overlap.
    dropped: Rc<[Range<u64>]>,
}

impl Omit {
    /// Leaves out fields larger than `larger_than` bytes and fields at the spans `dropped`.
    pub fn new(larger_than: Option<u64>, mut dropped: Vec<Range<u64>>) -> Self {
        dropped.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        // A field inside an omitted field needs no separate span.
        let mut end = 0;
        dropped.retain(|span| {
            let apart = span.start >= end;
            end = end.max(span.end);
            apart
        });
        Self { larger_than, dropped: dropped.into() }
    }

    /// True if nothing is omitted.
    pub fn is_empty(&self) -> bool {
        self.larger_than.is_none() && self.dropped.is_empty()
    }

    /// The spans to leave out that begin in `span`.
    fn within(&self, span: &Range<u64>) -> &[Range<u64>] {
        let from = self.dropped.partition_point(|dropped| dropped.start < span.start);
        let to = self.dropped.partition_point(|dropped| dropped.start < span.end);
        self.dropped.get(from..to).unwrap_or_default()
    }

    /// True if `entry` as a whole is at an omitted place.
    pub(crate) fn drops(&self, entry: &Entry) -> bool {
        self.within(&entry.span()).first().is_some_and(|dropped| *dropped == entry.span())
    }

    /// True if a field in `span` may be omitted.
    fn touches(&self, span: &Range<u64>) -> bool {
        self.larger_than.is_some_and(|limit| span.end - span.start > limit) || !self.within(span).is_empty()
    }
}

/// A place in a message that holds one value at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    /// A singular field.
    Field(u32),
    /// A oneof.
    Oneof(u32),
}

/// The offset of the last large value in each slot.
#[derive(Debug, Default)]
pub(crate) struct Hidden(BTreeMap<Slot, u64>);

/// Facts about the slots that are set more than once.
#[derive(Default)]
struct Repeats {
    hidden: Hidden,
    /// The skeletons of repeated occurrences of singular messages, by offset.
    messages: BTreeMap<u64, Rope>,
}

impl Document<'_> {
    /// The skeleton of `message`, without the fields that `omit` selects, as a rope for each of its pieces.
    pub(crate) fn without_large(&self, message: &Message, omit: &Omit, depth: u32) -> Result<Vec<Rope>> {
        let spans = message.parts.iter().map(|part| self.span(part)).collect::<Result<Vec<_>>>()?;
        if !spans.iter().any(|span| omit.touches(span)) {
            return Ok(spans.iter().map(|span| Rope::extent(IMAGE, span.start, span.end - span.start)).collect());
        }
        self.limits.check_depth(depth, spans.first().map_or(0, |span| span.start))?;
        let repeats = self.repeats(message, omit, depth)?;
        let mut ropes = Vec::new();
        for part in &message.parts {
            let mut out = RopeBuilder::new(&self.limits);
            for entry in self.entries(part)? {
                let entry = entry?;
                match repeats.messages.get(&entry.start) {
                    _ if self.is_hidden(&entry, message.type_id, &repeats.hidden) => {}
                    Some(rope) => self.rewrap(&entry, rope, &mut out)?,
                    None => self.kept_small(&entry, message.type_id, omit, depth, &mut out)?,
                }
            }
            ropes.push(out.finish());
        }
        Ok(ropes)
    }

    /// Appends `entry` without the parts that `omit` selects; appends nothing when `entry` itself is omitted.
    pub(crate) fn kept_small(
        &self,
        entry: &Entry,
        type_id: Option<TypeId>,
        omit: &Omit,
        depth: u32,
        out: &mut RopeBuilder,
    ) -> Result<()> {
        if self.is_omitted(entry, type_id, omit) {
            return Ok(());
        }
        if !self.has_parts(entry, type_id) {
            let mut at = entry.start;
            for dropped in omit.within(&entry.span()) {
                out.extent(IMAGE, at, dropped.start - at);
                at = dropped.end;
            }
            out.extent(IMAGE, at, entry.end.saturating_sub(at));
            return out.check();
        }
        if !omit.touches(&entry.content_span()) {
            out.extent(IMAGE, entry.start, entry.end - entry.start);
            return out.check();
        }
        let child = self.child_type(entry, type_id);
        let message = Message { type_id: child, parts: vec![Part::of(entry, child)] };
        let rope = self.without_large(&message, omit, depth + 1)?.pop().unwrap_or_default();
        self.rewrap(entry, &rope, out)
    }

    /// The offset of the last omitted value in each slot; `entries` are the fields of a message in order.
    pub(crate) fn hidden<'e>(
        &self,
        entries: impl Iterator<Item = &'e Entry>,
        type_id: Option<TypeId>,
        omit: &Omit,
    ) -> Hidden {
        let large = entries.filter(|entry| self.is_omitted(entry, type_id, omit));
        Hidden(large.filter_map(|entry| Some((self.slot(type_id, entry.number)?, entry.start))).collect())
    }

    /// True if a later, omitted value replaces `entry`.
    pub(crate) fn is_hidden(&self, entry: &Entry, type_id: Option<TypeId>, hidden: &Hidden) -> bool {
        !hidden.0.is_empty()
            && self.slot(type_id, entry.number).and_then(|slot| hidden.0.get(&slot)).is_some_and(|at| entry.start < *at)
    }

    fn repeats(&self, message: &Message, omit: &Omit, depth: u32) -> Result<Repeats> {
        let given = self.given_again(message)?;
        let mut repeats = Repeats::default();
        let mut messages: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
        for part in message.parts.iter().filter(|_| !given.is_empty()) {
            for entry in self.entries(part)? {
                let entry = entry?;
                let slot = self.slot(message.type_id, entry.number);
                let Some(slot) = slot.filter(|slot| given.contains_key(slot)) else { continue };
                if self.is_omitted(&entry, message.type_id, omit) {
                    repeats.hidden.0.insert(slot, entry.start);
                } else if self.child_type(&entry, message.type_id).is_some() {
                    messages.entry(entry.number).or_default().push(entry);
                }
            }
        }
        for group in messages.values().filter(|group| group.len() > 1) {
            let type_id = group.first().and_then(|entry| self.child_type(entry, message.type_id));
            let parts = group.iter().map(|entry| Part::of(entry, type_id)).collect();
            let ropes = self.without_large(&Message { type_id, parts }, omit, depth + 1)?;
            repeats.messages.extend(group.iter().map(|entry| entry.start).zip(ropes));
        }
        Ok(repeats)
    }

    /// The slots of `message` that are set more than once, with their counts.
    fn given_again(&self, message: &Message) -> Result<BTreeMap<Slot, u64>> {
        let mut given = BTreeMap::new();
        let mut add = |number, count| {
            if let Some(slot) = self.slot(message.type_id, number) {
                *given.entry(slot).or_insert(0u64) += count;
            }
        };
        for part in &message.parts {
            if let Part::Node(id) = part {
                for field in self.index.node(*id)?.fields() {
                    let field = field?;
                    add(field.number(), field.count());
                }
            } else {
                for entry in self.entries(part)? {
                    let entry = entry?;
                    add(entry.number, entry.count);
                }
            }
        }
        given.retain(|_, count| *count > 1);
        Ok(given)
    }

    /// The slot of field `number`; None for repeated and unknown fields.
    fn slot(&self, type_id: Option<TypeId>, number: u32) -> Option<Slot> {
        let field = self.schema.field(type_id, number).filter(|field| !field.repeated)?;
        Some(if field.oneof == 0 { Slot::Field(number) } else { Slot::Oneof(field.oneof) })
    }

    /// True if `entry` is omitted because of its place or its size. Only length-delimited fields that are neither
    /// messages nor map keys are omitted because of their size.
    fn is_omitted(&self, entry: &Entry, type_id: Option<TypeId>, omit: &Omit) -> bool {
        let is_large = omit.larger_than.is_some_and(|limit| entry.content_len() > limit);
        let is_map_key = entry.number == 1 && self.schema.is_map_entry(type_id);
        omit.drops(entry) || (entry.wire == Wire::Len && is_large && !is_map_key && !self.has_parts(entry, type_id))
    }

    fn has_parts(&self, entry: &Entry, type_id: Option<TypeId>) -> bool {
        entry.wire == Wire::Group || self.child_type(entry, type_id).is_some()
    }

    /// The type of the message in `entry`; None for other fields and for unknown types.
    fn child_type(&self, entry: &Entry, type_id: Option<TypeId>) -> Option<TypeId> {
        let field = self.schema.field(type_id, entry.number);
        field.filter(|field| field.kind.is_message()).map(|field| field.target)
    }
}
