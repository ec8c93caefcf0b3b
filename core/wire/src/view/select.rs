//! Which fields of a message a mask selects.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::document::{Document, Message, Wanted};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::header::Wire;
use crate::key::Key;
use crate::mask::{Mask, Pick};
use crate::path::Select;
use crate::resolve::map_key;
use crate::schema::{Field, FieldKind};

/// Fields that a mask selects in one piece of a message, by offset, each with what to keep of it.
pub(super) type Selected<'m> = BTreeMap<u64, (Entry, Vec<&'m Mask>)>;

impl Document<'_> {
    /// Adds the occurrences that `pick` selects in `message`.
    pub(super) fn select<'m>(&self, message: &Message, pick: &'m Pick, selected: &mut [Selected<'m>]) -> Result<()> {
        let (number, field) = self.field_of(message, &pick.name).map_err(|error| error.on(pick.name.to_string()))?;
        let mut add = |part: usize, entry: Entry| {
            if let Some(selected) = selected.get_mut(part) {
                selected.entry(entry.start).or_insert_with(|| (entry, Vec::new())).1.push(&pick.mask);
            }
        };
        let Some(select) = &pick.select else {
            if field.is_some_and(|field| !field.repeated) {
                for entry in self.singular(message, number)? {
                    add(self.part_at(message, entry.start)?, entry);
                }
                return Ok(());
            }
            return self.each(message, number, &(0..u64::MAX), &mut add);
        };
        match (field, select) {
            (Some(field), _) if !field.repeated => {
                let text = format!("{} is not repeated: there is nothing to pick with [{select}]", field.name);
                Err(WireError::new(Kind::NotFound, text))
            }
            (_, Select::Slice(from, to)) => {
                self.each(message, number, &(from.unwrap_or(0)..to.unwrap_or(u64::MAX)), &mut add)
            }
            (_, Select::All) => self.each(message, number, &(0..u64::MAX), &mut add),
            (field, select) => {
                if let Some(entry) = self.one(message, number, field, select)? {
                    add(self.part_at(message, entry.start)?, entry);
                }
                Ok(())
            }
        }
    }

    /// The one element that `select` picks, if it is there.
    fn one(&self, message: &Message, number: u32, field: Option<&Field>, select: &Select) -> Result<Option<Entry>> {
        let type_id = field.filter(|field| field.kind == FieldKind::Message).map(|field| field.target);
        let map = field.filter(|field| self.schema.is_map(field));
        let (key, kind, value) = match select {
            Select::Where(name, value) => {
                let (key, kind) = self.condition(type_id, name)?;
                (key, kind, Key::Text(value))
            }
            Select::Integer(at) if map.is_none() => {
                self.refuse_packed(message, number, field)?;
                let at = u64::try_from(*at).ok();
                return at.map(|at| self.element(message, number, at)).transpose().map(Option::flatten);
            }
            select => {
                let kind = map.and_then(|_| self.schema.field(type_id, 1)).map_or(FieldKind::String, |key| key.kind);
                (1, kind, map_key(kind, select)?)
            }
        };
        let wanted = Wanted { number, type_id, key, kind, value };
        let found = if matches!(select, Select::Where(..)) {
            self.element_where(message, &wanted)?
        } else {
            self.map_entry(message, &wanted)?
        };
        Ok(found.map(|(_, entry)| entry))
    }

    /// Gives `add` each occurrence of field `number` at the positions `range`, and the piece it lies in.
    fn each(
        &self,
        message: &Message,
        number: u32,
        range: &Range<u64>,
        add: &mut dyn FnMut(usize, Entry),
    ) -> Result<()> {
        let all = *range == (0..u64::MAX);
        if !all {
            self.refuse_packed(message, number, self.schema.field(message.type_id, number))?;
        }
        let mut before = 0u64;
        for (i, part) in message.parts.iter().enumerate() {
            self.visit(part, number, range.start.saturating_sub(before), &mut |at, entry| {
                let first = before + at;
                if all || (range.start <= first && first + entry.count <= range.end) {
                    add(i, *entry);
                } else if first < range.end {
                    let from = range.start.saturating_sub(first);
                    let to = entry.count.min(range.end - first);
                    self.run_part(entry, from..to)?.into_iter().for_each(|entry| add(i, entry));
                }
                Ok(first + entry.count < range.end)
            })?;
            before += self.count(part, number)?;
        }
        Ok(())
    }

    /// The occurrences at the positions `range` of a run.
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

    /// An error when elements of field `number` stand packed: they cannot be told apart without rewriting them.
    fn refuse_packed(&self, message: &Message, number: u32, field: Option<&Field>) -> Result<()> {
        if !field.is_some_and(|field| field.kind.is_packable()) {
            return Ok(());
        }
        for part in &message.parts {
            self.visit(part, number, 0, &mut |_, entry| {
                if entry.wire != Wire::Len {
                    return Ok(true);
                }
                let text = "a mask cannot take single numbers out of a packed field; keep all of it";
                Err(WireError::new(Kind::Unsupported, text))
            })?;
        }
        Ok(())
    }

    /// Which piece of `message` the byte at `offset` lies in.
    fn part_at(&self, message: &Message, offset: u64) -> Result<usize> {
        for (i, part) in message.parts.iter().enumerate() {
            if self.span(part)?.contains(&offset) {
                return Ok(i);
            }
        }
        Ok(0)
    }
}
