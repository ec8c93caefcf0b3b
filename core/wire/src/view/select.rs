//! The selection of fields by a mask.

use std::ops::Range;
use std::rc::Rc;

use super::resolved::{Group, Stretch};
use crate::document::{Document, Message, Part, Wanted};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::header::Wire;
use crate::mask::Mask;
use crate::path::Select;
use crate::resolve::map_key;
use crate::schema::{Field, FieldKind};

/// Longest gap between stretches, in elements, that is walked instead of looked up in the index.
const NEAR: u64 = 64;

/// The callback for a selected field; its arguments are the piece of the message that contains it, the field, and the
/// mask.
pub(super) type Take<'t> = dyn FnMut(usize, Entry, &Rc<Mask>) -> Result<()> + 't;

impl Document<'_> {
    /// Calls `take` with the elements that `group` selects by key or condition, and with a singular field.
    pub(super) fn select_told(
        &self,
        message: &Message,
        number: u32,
        group: &Group<'_>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        if let Some(mask) = &group.singular {
            for entry in self.singular(message, number)? {
                take(self.part_at(message, entry.start)?, entry, mask)?;
            }
        }
        for (select, mask) in &group.keyed {
            if let Some(entry) = self.keyed(message, number, group.field, select)? {
                take(self.part_at(message, entry.start)?, entry, mask)?;
            }
        }
        Ok(())
    }

    /// Calls `take` with the elements in `stretches` of field `number`, in order.
    pub(super) fn select_placed(
        &self,
        message: &Message,
        number: u32,
        group: &Group<'_>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        if group.in_part {
            self.refuse_packed(message, number, group.field)?;
        }
        let mut before = 0u64;
        for (i, part) in message.parts.iter().enumerate().filter(|_| !group.stretches.is_empty()) {
            self.placed_in(part, number, before, &group.stretches, &mut |entry, mask| take(i, entry, mask))?;
            before += self.count(part, number)?;
        }
        Ok(())
    }

    /// Does the same for one piece of a message; `before` is the number of elements in earlier pieces.
    fn placed_in(
        &self,
        part: &Part,
        number: u32,
        before: u64,
        stretches: &[Stretch],
        take: &mut dyn FnMut(Entry, &Rc<Mask>) -> Result<()>,
    ) -> Result<()> {
        // If the piece has a node, the index finds the next stretch quickly. Otherwise, all elements are walked anyway.
        let near = if matches!(part, Part::Node(_)) { NEAR } else { u64::MAX };
        let end = before.saturating_add(self.count(part, number)?);
        let mut at = stretches.partition_point(|stretch| stretch.places.end <= before);
        while let Some(first) = stretches.get(at).filter(|stretch| stretch.places.start < end) {
            let mut left = false;
            self.visit(part, number, first.places.start.saturating_sub(before), &mut |ordinal, entry| {
                let from = before + ordinal;
                let places = from..from.saturating_add(entry.count);
                while let Some(stretch) = stretches.get(at).filter(|stretch| stretch.places.start < places.end) {
                    self.taken(entry, &places, stretch, take)?;
                    if stretch.places.end > places.end {
                        return Ok(true);
                    }
                    at += 1;
                }
                left = stretches.get(at).is_none_or(|next| next.places.start - places.end > near);
                Ok(!left)
            })?;
            if !left {
                break;
            }
        }
        Ok(())
    }

    /// Calls `take` with those occurrences of `entry` at the positions `places` that are in `stretch`.
    fn taken(
        &self,
        entry: &Entry,
        places: &Range<u64>,
        stretch: &Stretch,
        take: &mut dyn FnMut(Entry, &Rc<Mask>) -> Result<()>,
    ) -> Result<()> {
        let from = stretch.places.start.max(places.start) - places.start;
        let to = stretch.places.end.min(places.end).saturating_sub(places.start);
        if from >= to {
            return Ok(());
        }
        if to - from == entry.count {
            return take(*entry, &stretch.mask);
        }
        self.run_part(entry, from..to)?.into_iter().try_for_each(|entry| take(entry, &stretch.mask))
    }

    /// The element that `select` identifies by key or condition; None when it does not exist.
    fn keyed(&self, message: &Message, number: u32, field: Option<&Field>, select: &Select) -> Result<Option<Entry>> {
        if let Select::Where(conditions) = select {
            return self.element_where(message, number, field, conditions);
        }
        Ok(self.map_entry(message, &self.wanted(number, field, select)?)?.map(|(_, entry)| entry))
    }

    /// The entries of a map that `select` identifies by key.
    pub(super) fn wanted<'s>(&self, number: u32, field: Option<&Field>, select: &'s Select) -> Result<Wanted<'s>> {
        let type_id = field.filter(|field| field.kind == FieldKind::Message).map(|field| field.target);
        let map = field.filter(|field| self.schema.is_map(field));
        let kind = map.and_then(|_| self.schema.field(type_id, 1)).map_or(FieldKind::String, |key| key.kind);
        Ok(Wanted { number, type_id, key: 1, kind, value: map_key(kind, select)? })
    }

    /// The occurrences of a run at the positions `range`.
    fn run_part(&self, run: &Entry, range: Range<u64>) -> Result<Vec<Entry>> {
        let bytes = self.read_span(&run.span())?;
        let mut fields = Fields::new(&bytes, run.start, self.limits.depth);
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(field) = fields.next_field()? {
            if range.contains(&at) {
                let mut entry = Entry::new(&field.header, field.start);
                entry.number = run.number;
                found.push(entry);
            }
            at += 1;
        }
        Ok(found)
    }

    /// Fails when elements of field `number` are packed, because selecting some of them would require rewriting the
    /// field.
    fn refuse_packed(&self, message: &Message, number: u32, field: Option<&Field>) -> Result<()> {
        if !field.is_some_and(|field| field.kind.is_packable()) {
            return Ok(());
        }
        for part in &message.parts {
            self.visit(part, number, 0, &mut |_, entry| {
                if entry.wire != Wire::Len {
                    return Ok(true);
                }
                let text = "single numbers of a packed field cannot be selected: select the whole field";
                Err(WireError::new(Kind::Unsupported, text))
            })?;
        }
        Ok(())
    }

    /// The number of the piece of `message` that contains the byte at `offset`.
    fn part_at(&self, message: &Message, offset: u64) -> Result<usize> {
        for (i, part) in message.parts.iter().enumerate() {
            if self.span(part)?.contains(&offset) {
                return Ok(i);
            }
        }
        Ok(0)
    }
}
