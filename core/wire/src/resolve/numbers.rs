//! The bits of numbers, single or packed.

use super::{Target, no_such};
use crate::document::{Document, Message};
use crate::entry::Entry;
use crate::error::{Result, WireError};
use crate::fields::Fields;
use crate::header::Wire;
use crate::path::Select;
use crate::schema::Field;
use crate::varint::{self, Varint};

impl Document<'_> {
    /// The bits of the scalar `entry`.
    pub(super) fn raw(&self, entry: &Entry) -> Result<u64> {
        let bytes = self.read_span(&entry.span())?;
        let field = Fields::new(&bytes, entry.start, self.limits.depth).next_field()?;
        let field = field
            .ok_or_else(|| WireError::corrupt(entry.start, "the proto changed since it was indexed: open it again"))?;
        Ok(if field.header.wire == Wire::Varint { field.header.value } else { little_endian(field.content) })
    }

    /// Element `at` of a repeated number, packed or not.
    pub(super) fn packed_element(
        &self,
        message: &Message,
        number: u32,
        field: Option<&Field>,
        at: i128,
    ) -> Result<Target> {
        let (Some(field), Ok(wanted)) = (field, u64::try_from(at)) else {
            return Err(no_such(&number.to_string(), &Select::Integer(at), None));
        };
        let mut left = wanted;
        let mut found = None;
        for part in &message.parts {
            self.visit(part, number, 0, &mut |_, entry| {
                if entry.wire != Wire::Len {
                    if left < entry.count {
                        found = Some(self.raw(&self.of_run(entry, left)?)?);
                    }
                    left = left.saturating_sub(entry.count);
                } else {
                    found = self.in_packed(entry, field.kind.wire(), &mut left)?;
                }
                Ok(found.is_none())
            })?;
            if found.is_some() {
                break;
            }
        }
        let scalar = found.map(|raw| Target::Scalar { field: Some(field.clone()), wire: field.kind.wire(), raw });
        scalar.ok_or_else(|| no_such(&field.name, &Select::Integer(at), Some(wanted - left)))
    }

    /// The value that is `left` places further in a packed field; `left` is reduced by the number of values passed.
    /// None when the field ends earlier.
    fn in_packed(&self, entry: &Entry, wire: Wire, left: &mut u64) -> Result<Option<u64>> {
        let width = match wire {
            Wire::Fixed64 => 8,
            Wire::Fixed32 => 4,
            _ => return self.in_packed_varints(entry, left),
        };
        let count = entry.content_len() / width;
        if *left >= count {
            *left -= count;
            return Ok(None);
        }
        let bytes = self.read(entry.content + *left * width, width as usize)?;
        Ok(Some(little_endian(&bytes)))
    }

    fn in_packed_varints(&self, entry: &Entry, left: &mut u64) -> Result<Option<u64>> {
        const STEP: u64 = 16 << 10;
        let mut position = entry.content;
        while position < entry.content_end {
            let window = position..entry.content_end.min(position + STEP);
            let bytes = self.read_span(&window)?;
            let mut at = 0;
            while at < bytes.len() {
                match varint::read_value(bytes.get(at..).unwrap_or_default()) {
                    Varint::Value(value, _) if *left == 0 => return Ok(Some(value)),
                    Varint::Value(_, len) => at += len,
                    Varint::Truncated if at > 0 && window.end < entry.content_end => break,
                    _ => return Err(WireError::corrupt(position + at as u64, "a packed field holds a broken varint")),
                }
                *left -= 1;
            }
            position += at as u64;
        }
        Ok(None)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
