//! Keys that identify elements: the key of a map entry, or the name of a repeated message.

use crate::error::Result;
use crate::fields::{Fields, InMemory};
use crate::header::{Header, Wire};
use crate::schema::{FieldKind, Message};

/// The value of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    /// A string or bytes.
    Text(&'a [u8]),
    /// An integer or bool; signed integers are sign-extended.
    Number(u64),
}

impl Key<'_> {
    /// The hash of the key, as stored in indexes.
    pub fn hash(&self) -> u32 {
        match self {
            Self::Text(bytes) => crc32c::crc32c(bytes),
            Self::Number(value) => crc32c::crc32c(&value.to_le_bytes()),
        }
    }
}

/// The key of an element that has no key field.
pub fn default_key(kind: FieldKind) -> Key<'static> {
    if is_text(kind) { Key::Text(b"") } else { Key::Number(0) }
}

/// True if keys of this kind are strings or bytes.
pub fn is_text(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::String | FieldKind::Bytes)
}

/// The integer value of a scalar field of `kind`, sign-extended; None for floats and for a wrong wire type.
pub fn number(kind: FieldKind, header: &Header, content: &[u8]) -> Option<u64> {
    let raw = match header.wire {
        Wire::Varint => header.value,
        Wire::Fixed32 => u64::from(u32::from_le_bytes(content.try_into().ok()?)),
        Wire::Fixed64 => u64::from_le_bytes(content.try_into().ok()?),
        _ => return None,
    };
    number_of(kind, header.wire, raw)
}

/// Like [`number`], for the raw bits of a varint or fixed-width field.
pub fn number_of(kind: FieldKind, wire: Wire, raw: u64) -> Option<u64> {
    Some(match (kind, wire) {
        (FieldKind::Bool, Wire::Varint) => u64::from(raw != 0),
        (FieldKind::Int32 | FieldKind::Enum, Wire::Varint) | (FieldKind::Sfixed32, Wire::Fixed32) => {
            i64::from(raw as u32 as i32) as u64
        }
        (FieldKind::Uint32, Wire::Varint) | (FieldKind::Fixed32, Wire::Fixed32) => u64::from(raw as u32),
        (FieldKind::Sint32, Wire::Varint) => i64::from(zigzag(u64::from(raw as u32)) as i32) as u64,
        (FieldKind::Sint64, Wire::Varint) => zigzag(raw) as u64,
        (FieldKind::Int64 | FieldKind::Uint64, Wire::Varint)
        | (FieldKind::Fixed64 | FieldKind::Sfixed64, Wire::Fixed64) => raw,
        _ => return None,
    })
}

/// The bits on the wire for a sign-extended `number` of `kind`; the inverse of [`number_of`].
pub fn to_wire(kind: FieldKind, number: u64) -> u64 {
    let signed = number as i64;
    match kind {
        FieldKind::Sint32 => u64::from((signed << 1 ^ signed >> 63) as u32),
        FieldKind::Sint64 => (signed << 1 ^ signed >> 63) as u64,
        _ => number,
    }
}

fn zigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// The key in `field`, which must be the key field of its message and of the kind `kind`; None for a wrong wire type.
pub fn of_field<'a>(kind: FieldKind, field: &InMemory<'a>) -> Option<Key<'a>> {
    if is_text(kind) {
        (field.header.wire == Wire::Len).then_some(Key::Text(field.content))
    } else {
        number(kind, &field.header, field.content).map(Key::Number)
    }
}

/// The key of the element `bytes`, a message of type `message` that begins at `base`. The last key on the wire counts;
/// a missing key is the default. None when the type has no key field.
pub fn of_element<'a>(message: &Message, bytes: &'a [u8], base: u64, depth: u32) -> Result<Option<Key<'a>>> {
    let Some(field) = message.key() else { return Ok(None) };
    let mut key = default_key(field.kind);
    let mut fields = Fields::new(bytes, base, depth);
    // Every small element of a long list is parsed here, so other fields are skipped with the cheapest parse.
    while let Some(found) = fields.next_but(field.number)? {
        if found.header.number == field.number {
            key = of_field(field.kind, &found).unwrap_or(key);
        }
    }
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_protobuf_says() {
        let cases = [
            (FieldKind::Int32, Wire::Varint, u64::MAX, -1),
            (FieldKind::Int32, Wire::Varint, 0xffff_ffff, -1),
            (FieldKind::Uint32, Wire::Varint, u64::MAX, 0xffff_ffff),
            (FieldKind::Sint32, Wire::Varint, 3, -2),
            (FieldKind::Sint32, Wire::Varint, 0xffff_ffff, -(1i64 << 31)),
            (FieldKind::Sint64, Wire::Varint, u64::MAX, i64::MIN),
            (FieldKind::Sfixed32, Wire::Fixed32, 0xffff_fffe, -2),
            (FieldKind::Bool, Wire::Varint, 77, 1),
        ];
        for (kind, wire, raw, expected) in cases {
            assert_eq!(number_of(kind, wire, raw), Some(expected as u64), "{kind:?} {raw}");
        }
        assert_eq!(number_of(FieldKind::Int32, Wire::Fixed32, 1), None);
        assert_eq!(number_of(FieldKind::Float, Wire::Fixed32, 1), None);
    }
}
