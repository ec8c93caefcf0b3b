//! The planning of map entries: a tag identifies an entry by its key, and the entry's value becomes a chunk.

use super::planner::{Outcome, Planned, Planner};
use super::rules::{Active, Wish};
use crate::document::{Message, Part, Wanted};
use crate::entry::Entry;
use crate::error::Result;
use crate::key::{self, Key};
use crate::metadata::{MapKey, Tag};
use crate::path::quote;
use crate::rope::{IMAGE, RopeBuilder};
use crate::schema::{Field, FieldKind};

/// Longest key of an entry that becomes a chunk, in bytes.
const KEY_BYTES: u64 = 4096;

/// A map entry that a tag can identify: its value, the key for the tag, and the key as written in paths.
struct MapValue {
    value: Entry,
    key: MapKey,
    label: String,
}

impl Planner<'_, '_> {
    /// Plans an entry of a map; returns None when the entry stays unchanged.
    #[allow(clippy::too_many_arguments, reason = "a step of a recursion")]
    pub(super) fn map_entry(
        &self,
        message: &Message,
        field: &Field,
        entry: &Entry,
        label: &str,
        depth: u32,
        wish: Wish,
        planned: &mut Planned,
    ) -> Result<Option<Outcome>> {
        let type_id = Some(field.target);
        let Some(value_field) = self.doc.schema.field(type_id, 2).filter(|value| value.kind == FieldKind::Message)
        else {
            return Ok(None);
        };
        let Some(found) = self.map_value(message, field, entry)? else { return Ok(None) };
        let tags = vec![Tag::Field(field.number), Tag::Key(found.key)];
        let path = format!("{label}[{}]", found.label);
        let Some(left) = self.child(value_field, &found.value, tags, &path, depth + 1, wish, planned)? else {
            return Ok(None);
        };
        let mut out = RopeBuilder::new(&self.doc.limits);
        for inner in self.doc.entries(&Part::of(entry, type_id))? {
            let inner = inner?;
            if inner.start != found.value.start {
                out.extent(IMAGE, inner.start, inner.end - inner.start);
            } else if let Some(rope) = &left {
                self.doc.rewrap(&inner, rope, &mut out)?;
            }
        }
        Ok(Some(Outcome::Changed(out.finish())))
    }

    /// What the rules want for an entry of a map; if a rule names keys, this depends on the entry's key.
    pub(super) fn wish_of_entry(
        &self,
        message: &Message,
        field: &Field,
        entry: &Entry,
        active: Active,
    ) -> Result<Wish> {
        let (mut text, mut kind) = (None, FieldKind::String);
        if self.meaning.by_key(active, field.number) {
            self.look(message, entry)?;
            kind = self.doc.schema.field(Some(field.target), 1).map_or(kind, |key| key.kind);
            text = self.doc.key_text(entry, field.target, KEY_BYTES)?;
        }
        let key = match &text {
            Some((FieldKind::String, text)) => Key::Text(text),
            Some((_, bits)) => Key::Number(bits.as_slice().try_into().map_or(0, u64::from_le_bytes)),
            None => key::default_key(kind),
        };
        Ok(self.meaning.element(active, field.number, 0, Some(key), self.policy.min_chunk))
    }

    /// The key and value of a map entry if a tag can identify the entry; else None. The entry must have one key and one
    /// value. Its key must be of a kind that the format supports, and no later entry may have the same key.
    fn map_value(&self, message: &Message, field: &Field, entry: &Entry) -> Result<Option<MapValue>> {
        let type_id = Some(field.target);
        let (mut values, mut keys) = (Vec::new(), 0);
        for inner in self.doc.entries(&Part::of(entry, type_id))? {
            let inner = inner?;
            match inner.number {
                1 => keys += inner.count,
                2 => values.push(inner),
                _ => {}
            }
        }
        let (&[value], Some(kind)) = (values.as_slice(), self.doc.schema.field(type_id, 1).map(|key| key.kind)) else {
            return Ok(None);
        };
        let text = match self.doc.key_text(entry, field.target, KEY_BYTES)? {
            Some((_, text)) if keys == 1 => text,
            None if keys == 0 => {
                if kind == FieldKind::String {
                    Vec::new()
                } else {
                    vec![0; 8]
                }
            }
            _ => return Ok(None),
        };
        let Some((key, lookup, label)) = map_key(kind, &text) else { return Ok(None) };
        let wanted = Wanted { number: field.number, type_id, key: 1, kind, value: lookup };
        let last = self.doc.map_entry(message, &wanted)?;
        let is_last = last.is_some_and(|(_, last)| last.start == entry.start);
        Ok(is_last.then_some(MapValue { value, key, label }))
    }
}

/// A map key in three forms: as a tag, for look-ups, and as written in paths.
fn map_key(kind: FieldKind, text: &[u8]) -> Option<(MapKey, Key<'_>, String)> {
    if kind == FieldKind::String {
        std::str::from_utf8(text).ok()?;
        return Some((MapKey::Text(text.to_vec()), Key::Text(text), quote(text)));
    }
    let bits = u64::from_le_bytes(text.try_into().ok()?);
    let (key, label) = match kind {
        FieldKind::Bool => (MapKey::Bool(bits != 0), (bits != 0).to_string()),
        FieldKind::Int32 => (MapKey::Int32(bits as i32), (bits as i32).to_string()),
        FieldKind::Uint32 => (MapKey::Uint32(bits as u32), (bits as u32).to_string()),
        // TensorFlow's Merger converts these keys to a C++ int, so entries with larger keys stay in the message.
        FieldKind::Int64 if i32::try_from(bits as i64).is_ok() => {
            (MapKey::Int64(bits as i64), (bits as i64).to_string())
        }
        FieldKind::Uint64 if i32::try_from(bits).is_ok() => (MapKey::Uint64(bits), bits.to_string()),
        _ => return None,
    };
    Some((key, Key::Number(bits), label))
}
