//! Look-up of elements in repeated fields and maps by key.

use super::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::Result;
use crate::fields::Fields;
use crate::header::Wire;
use crate::key::{self, Key};
use crate::schema::{FieldKind, TypeId};

/// A search for elements of a repeated field or map in which one field has a given value.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The repeated field.
    pub number: u32,
    /// The type of the elements.
    pub type_id: Option<TypeId>,
    /// The number of the field that is compared.
    pub key: u32,
    /// The kind of this field.
    pub kind: FieldKind,
    /// The value of this field.
    pub value: Key<'a>,
}

impl Document<'_> {
    /// The last entry with this key in the map and its position; the last entry is in effect. None without an entry.
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

    /// Calls `take` with every entry that has this key in the map; the last entry is in effect.
    pub fn map_entries(
        &self,
        message: &Message,
        wanted: &Wanted<'_>,
        take: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        message
            .parts
            .iter()
            .try_for_each(|part| self.with_key(part, wanted, &mut |_, entry| take(*entry).map(|()| true)))
    }

    /// The entries of the map in `part` that have the wanted key.
    fn with_key(
        &self,
        part: &Part,
        wanted: &Wanted<'_>,
        visit: &mut dyn FnMut(u64, &Entry) -> Result<bool>,
    ) -> Result<()> {
        self.candidates(part, wanted, &mut |ordinal, entry| {
            if entry.wire == Wire::Len && self.is_wanted(Part::of(entry, wanted.type_id), wanted)? {
                return visit(ordinal, entry);
            }
            Ok(true)
        })
    }

    /// The elements in `part` that may match: the index's keys select them if it has keys; else all elements.
    pub(crate) fn candidates(
        &self,
        part: &Part,
        wanted: &Wanted<'_>,
        visit: &mut dyn FnMut(u64, &Entry) -> Result<bool>,
    ) -> Result<()> {
        if let Part::Node(id) = part {
            let node = self.index.node(*id)?;
            let Some(summary) = node.field(wanted.number)? else { return Ok(()) };
            let message = wanted.type_id.and_then(|id| self.schema.message(id));
            let key = message.and_then(|message| message.key());
            if summary.has_keys() && key.is_some_and(|key| key.number == wanted.key) {
                for ordinal in node.with_key_hash(&summary, wanted.value.hash())? {
                    let found = node.occurrences(&summary, ordinal)?.next_occurrence()?;
                    if let Some((at, entry)) = found
                        && !visit(at, &entry)?
                    {
                        break;
                    }
                }
                return Ok(());
            }
        }
        self.visit(part, wanted.number, 0, visit)
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

    /// The key of the element `entry`; None when it has no key or when the key is longer than `longest` bytes.
    pub fn key_text(&self, entry: &Entry, type_id: TypeId, longest: u64) -> Result<Option<(FieldKind, Vec<u8>)>> {
        let Some(field) = self.schema.message(type_id).and_then(|message| message.key()) else {
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
