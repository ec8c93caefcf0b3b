//! The values of maps by key, with keys as written in paths.

use super::Target;
use crate::document::{Document, Message, Part, Wanted};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::key::Key;
use crate::path::Select;
use crate::schema::{Field, FieldKind};

impl Document<'_> {
    /// The value in the map `field` under the key that `select` contains.
    pub(super) fn map_value(&self, message: &Message, field: &Field, select: &Select) -> Result<Target> {
        let entry = self.schema.message(field.target);
        let key = entry.and_then(|entry| entry.field(1)).map_or(FieldKind::String, |key| key.kind);
        let value = map_key(key, select)?;
        let wanted = Wanted { number: field.number, type_id: Some(field.target), key: 1, kind: key, value };
        let found = self.map_entry(message, &wanted)?;
        let Some((_, found)) = found else {
            let text = format!("the map {} has no key {select}", field.name);
            return Err(WireError::new(Kind::NotFound, text));
        };
        self.value_of(&found, Some(field))
    }

    /// The value of the map entry `found`.
    pub(super) fn value_of(&self, found: &Entry, map: Option<&Field>) -> Result<Target> {
        let type_id = map.map(|map| map.target);
        let value = self.schema.field(type_id, 2);
        let entry = Message { type_id, parts: vec![Part::of(found, type_id)] };
        let occurrences = self.singular(&entry, 2)?;
        Ok(match self.merged(&occurrences, value)? {
            Some(target) => target,
            None => match value {
                Some(value) if value.kind.is_message() => {
                    Target::Message(Message { type_id: Some(value.target), parts: Vec::new() })
                }
                Some(value) if value.kind.is_packable() => {
                    Target::Scalar { field: Some(value.clone()), wire: value.kind.wire(), raw: 0 }
                }
                value => Target::Bytes { kind: value.map(|value| value.kind), part: None },
            },
        })
    }
}

/// Converts `select` to a map key of `kind`.
pub(crate) fn map_key(kind: FieldKind, select: &Select) -> Result<Key<'_>> {
    let due = match (kind, select) {
        (FieldKind::String, Select::Text(text)) => return Ok(Key::Text(text)),
        (FieldKind::Bool, Select::Word(word)) => return Ok(Key::Number(u64::from(*word))),
        (FieldKind::String, _) => "a quoted string, as in [\"key\"]",
        (FieldKind::Bool, _) => "[true] or [false]",
        (_, Select::Integer(value)) => {
            let signed = matches!(kind, FieldKind::Int32 | FieldKind::Int64 | FieldKind::Sint32 | FieldKind::Sint64)
                || matches!(kind, FieldKind::Sfixed32 | FieldKind::Sfixed64);
            let narrow = matches!(kind, FieldKind::Int32 | FieldKind::Sint32 | FieldKind::Sfixed32)
                || matches!(kind, FieldKind::Uint32 | FieldKind::Fixed32);
            let bits = if narrow { 32 } else { 64 } - u32::from(signed);
            let range = if signed { -(1i128 << bits) } else { 0 }..1i128 << bits;
            if range.contains(value) {
                return Ok(Key::Number(*value as u64));
            }
            "an integer in the range of this type"
        }
        _ => "an integer, as in [5]",
    };
    let text = format!("the keys of this map are {}: use {due}, not [{select}]", kind.name());
    Err(WireError::new(Kind::NotFound, text))
}
