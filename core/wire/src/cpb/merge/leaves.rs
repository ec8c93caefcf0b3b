//! The leaves of a merge: numbers, strings and bytes whose values are chunks.

use super::super::tree::{Body, Item, Tree};
use super::super::values::parse;
use super::{Addition, Merger, gap, inconsistent};
use crate::error::Result;
use crate::header::{self, Wire};
use crate::key;
use crate::schema::Field;
use crate::varint;

/// Longest text of a number in bytes.
const LONGEST_NUMBER: u64 = 4096;

impl Merger<'_> {
    /// Sets the singular leaf `field` of `tree` to the value in the chunk of `added`.
    pub(super) fn set(&self, tree: &mut Tree, field: &Field, added: Addition<'_>, path: &str) -> Result<()> {
        let body = self.leaf(field, leaf_chunk(field, added, path)?, path)?;
        let items = tree.items(&self.bytes)?;
        items.drop_all(field.number);
        items.push(Item { number: field.number, entry: None, body });
        Ok(())
    }

    /// Sets element `index` of the repeated strings or bytes `field`, an existing element or the next one; None
    /// appends.
    pub(super) fn listed(
        &self,
        tree: &mut Tree,
        field: &Field,
        index: Option<u64>,
        added: Addition<'_>,
        path: &str,
    ) -> Result<()> {
        let path = index.map_or_else(|| path.to_owned(), |index| format!("{path}[{index}]"));
        if !key::is_text(field.kind) {
            let text = format!(
                "the field is a repeated {}: elements of a repeated numeric field cannot be in chunks",
                field.kind.name()
            );
            return Err(inconsistent(&path, text));
        }
        let body = self.leaf(field, leaf_chunk(field, added, &path)?, &path)?;
        let items = tree.items(&self.bytes)?;
        let count = items.of(field.number).len();
        match index.unwrap_or(count as u64) {
            index if index > count as u64 => return Err(gap(&path, count)),
            index if index == count as u64 => {
                items.push(Item { number: field.number, entry: None, body });
            }
            index => {
                let at = usize::try_from(index).ok().and_then(|index| items.of(field.number).get(index).copied());
                if let Some(item) = at.and_then(|at| items.list.get_mut(at)) {
                    item.body = body;
                }
            }
        }
        Ok(())
    }

    /// The value in chunk `chunk` for `field`. Text and bytes stay unchanged; a scalar is parsed from text and
    /// serialized.
    fn leaf(&self, field: &Field, chunk: u64, path: &str) -> Result<Body> {
        let span = self.chunk(chunk, path)?;
        if key::is_text(field.kind) {
            return Ok(Body::Bytes(span));
        }
        if span.end - span.start > LONGEST_NUMBER {
            return Err(inconsistent(path, format!("chunk {chunk} is too long for a {}", field.kind.name())));
        }
        let text = self.bytes.read_span(&span)?;
        let text = std::str::from_utf8(&text).ok();
        let value = text.and_then(|text| parse(field, text, self.bytes.schema));
        let Some((wire, bits)) = value else {
            let text = format!("chunk {chunk} should hold a {} as text, but does not", field.kind.name());
            return Err(inconsistent(path, text));
        };
        let mut literal = Vec::new();
        varint::write(header::tag(field.number, wire), &mut literal);
        match wire {
            Wire::Fixed32 => literal.extend_from_slice(&(bits as u32).to_le_bytes()),
            Wire::Fixed64 => literal.extend_from_slice(&bits.to_le_bytes()),
            _ => varint::write(bits, &mut literal),
        }
        Ok(Body::Literal(literal))
    }
}

/// The number of the chunk with the value of leaf `field`; fails when the addition leads below the leaf.
fn leaf_chunk(field: &Field, added: Addition<'_>, path: &str) -> Result<u64> {
    if !added.tags.is_empty() || !added.message.fields.is_empty() {
        return Err(inconsistent(
            path,
            format!("the field is a {}, so it has no fields to merge into", field.kind.name()),
        ));
    }
    added.message.chunk.ok_or_else(|| inconsistent(path, "no chunk has the field's value".to_owned()))
}
