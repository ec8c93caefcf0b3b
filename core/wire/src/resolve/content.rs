//! The content of a path's target, as bytes or text.

use super::Target;
use crate::document::{Document, Part};
use crate::error::{Kind, Result, WireError};
use crate::header::Wire;
use crate::key;
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::{Field, FieldKind};

impl Document<'_> {
    /// The bytes of a target: a serialized message, the content of bytes or a string, a scalar as text, or the values
    /// of a packed field.
    pub fn content(&self, target: &Target) -> Result<Rope> {
        let mut rope = RopeBuilder::new(&self.limits);
        let mut add = |part: &Part| -> Result<()> {
            let span = self.span(part)?;
            rope.extent(IMAGE, span.start, span.end - span.start);
            Ok(())
        };
        match target {
            Target::Message(message) => message.parts.iter().try_for_each(add)?,
            Target::Bytes { part, .. } => part.iter().try_for_each(add)?,
            Target::Scalar { field, wire, raw } => rope.literal(self.text(field.as_ref(), *wire, *raw).as_bytes()),
            Target::Repeated { owner, number, field } => {
                let packable = field.as_ref().is_some_and(|field| field.kind.is_packable());
                for part in &owner.parts {
                    self.visit(part, *number, 0, &mut |_, entry| {
                        if !packable || entry.wire != Wire::Len {
                            let text = "the field is repeated, and its elements are not contiguous: pick one with [i]";
                            return Err(WireError::new(Kind::Unsupported, text));
                        }
                        add(&Part::Span(entry.content_span(), None)).map(|()| true)
                    })?;
                }
            }
        }
        rope.check()?;
        Ok(rope.finish())
    }

    /// A scalar as text; an enum value is shown by its name if it has one.
    pub fn text(&self, field: Option<&Field>, wire: Wire, raw: u64) -> String {
        let kind = match (field.map(|field| field.kind), wire) {
            (Some(kind), _) => kind,
            (None, Wire::Fixed32) => FieldKind::Fixed32,
            (None, _) => FieldKind::Uint64,
        };
        let number = key::number_of(kind, kind.wire(), raw).unwrap_or(raw);
        match kind {
            FieldKind::Double => format!("{:?}", f64::from_bits(raw)),
            FieldKind::Float => format!("{:?}", f32::from_bits(raw as u32)),
            FieldKind::Bool => (number != 0).to_string(),
            FieldKind::Uint32 | FieldKind::Uint64 | FieldKind::Fixed32 | FieldKind::Fixed64 => number.to_string(),
            FieldKind::Enum => {
                let name = field.and_then(|field| self.schema.enum_name(field.target, number as i32));
                name.map_or_else(|| (number as i32).to_string(), str::to_owned)
            }
            _ => (number as i64).to_string(),
        }
    }
}
