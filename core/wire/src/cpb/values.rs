//! Scalar values that are stored as text, and keys of maps.

use crate::header::{self, Wire};
use crate::key::{self, Key};
use crate::listing::key_label;
use crate::metadata::MapKey;
use crate::path::quote;
use crate::schema::{Field, FieldKind, Schema};
use crate::varint;

/// Parses `text` as a value of `field` and returns its wire type and bits. Numbers are parsed like in C's `strtol` and
/// `strtod`, bools are `true` and `false`, and enums are names. Returns None for any other text.
pub(super) fn parse(field: &Field, text: &str, schema: &Schema) -> Option<(Wire, u64)> {
    let wire = field.kind.wire();
    let bits = match field.kind {
        FieldKind::Double => leading_float(text)?.to_bits(),
        FieldKind::Float => u64::from((leading_float(text)? as f32).to_bits()),
        FieldKind::Bool => u64::from(text.parse::<bool>().ok()?),
        FieldKind::Enum => schema.enum_value(field.target, text).map(|value| i64::from(value) as u64)?,
        kind => integer(kind, leading_integer(text)?)?,
    };
    Some((wire, bits))
}

fn integer(kind: FieldKind, value: i128) -> Option<u64> {
    let bits = match kind {
        FieldKind::Int32 | FieldKind::Sint32 | FieldKind::Sfixed32 => i64::from(i32::try_from(value).ok()?) as u64,
        FieldKind::Int64 | FieldKind::Sint64 | FieldKind::Sfixed64 => i64::try_from(value).ok()? as u64,
        FieldKind::Uint32 | FieldKind::Fixed32 => u64::from(u32::try_from(value).ok()?),
        _ => u64::try_from(value).ok()?,
    };
    Some(key::to_wire(kind, bits))
}

fn leading_integer(text: &str) -> Option<i128> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let len = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let sign = text.len() - digits.len();
    text.get(..sign + len)?.parse().ok()
}

fn leading_float(text: &str) -> Option<f64> {
    let text = text.trim_start();
    // The longest prefix that is a number counts. Only 64 characters are tried, because texts of numbers are short.
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).take(64);
    ends.filter_map(|end| text.get(..end)?.parse().ok()).last()
}

/// A map key that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnedKey {
    Text(Vec<u8>),
    Number(u64),
}

impl OwnedKey {
    /// Converts `key` to a key of `kind` as the Merger does: numbers become text, or text becomes a number. Returns
    /// None when this is impossible.
    pub(super) fn of(kind: FieldKind, key: &MapKey) -> Option<Self> {
        let number = match key {
            MapKey::Text(text) if kind == FieldKind::String => return Some(Self::Text(text.clone())),
            MapKey::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok()?,
            MapKey::Bool(value) => i128::from(*value),
            MapKey::Uint32(value) => i128::from(*value),
            MapKey::Uint64(value) => i128::from(*value),
            MapKey::Int32(value) => i128::from(*value),
            MapKey::Int64(value) => i128::from(*value),
        };
        match kind {
            FieldKind::String => Some(Self::Text(number.to_string().into_bytes())),
            FieldKind::Bool => Some(Self::Number(u64::from(number != 0))),
            kind => integer(kind, number).and_then(|bits| key::number_of(kind, kind.wire(), bits)).map(Self::Number),
        }
    }

    pub(super) fn label(&self, kind: FieldKind) -> String {
        match self {
            Self::Text(text) => quote(text),
            Self::Number(value) => key_label(kind, &value.to_le_bytes()),
        }
    }

    /// Serializes the key field of a map entry.
    pub(super) fn encode(&self, field: &Field) -> Vec<u8> {
        let mut out = Vec::new();
        varint::write(header::tag(field.number, field.kind.wire()), &mut out);
        match self {
            Self::Text(text) => {
                varint::write(text.len() as u64, &mut out);
                out.extend_from_slice(text);
            }
            Self::Number(value) => match field.kind.wire() {
                Wire::Fixed32 => out.extend_from_slice(&(*value as u32).to_le_bytes()),
                Wire::Fixed64 => out.extend_from_slice(&value.to_le_bytes()),
                _ => varint::write(key::to_wire(field.kind, *value), &mut out),
            },
        }
        out
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Text(text) => Self::Text(text.to_vec()),
            Key::Number(number) => Self::Number(number),
        }
    }
}
