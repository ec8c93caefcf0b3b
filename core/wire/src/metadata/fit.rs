//! A test whether a record is a `ChunkMetadata`; most messages parse as one, but with unknown fields.

use super::{ChunkedMessage, Metadata};
use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::header::Wire;
use crate::limits::Limits;

/// The fields of a message: number, wire type and content of each.
type Shape = &'static [(u32, Wire, Inside)];

/// The content of a field.
#[derive(Clone, Copy)]
enum Inside {
    Value,
    Message(fn() -> Shape),
}

use Inside::{Message, Value};
use Wire::{Len, Varint};

const METADATA: Shape = &[(1, Len, Message(|| VERSION)), (2, Len, Message(|| CHUNK)), (3, Len, Message(|| MESSAGE))];
const VERSION: Shape = &[(1, Varint, Value), (2, Varint, Value), (3, Varint, Value), (3, Len, Value)];
const CHUNK: Shape = &[(1, Varint, Value), (2, Varint, Value), (3, Varint, Value)];
const MESSAGE: Shape = &[(1, Varint, Value), (2, Len, Message(|| FIELD))];
const FIELD: Shape = &[(1, Len, Message(|| TAG)), (3, Len, Message(|| MESSAGE))];
const TAG: Shape = &[(1, Varint, Value), (2, Len, Message(|| KEY)), (3, Varint, Value)];
const KEY: Shape = &[
    (1, Len, Value),
    (2, Varint, Value),
    (3, Varint, Value),
    (4, Varint, Value),
    (5, Varint, Value),
    (6, Varint, Value),
];

impl Metadata {
    /// Parses `record` as metadata. Nearly every message parses, so further checks are needed. Fails with an
    /// `Unsupported` error if the record names no chunks or no place for them, or has a field that metadata do not
    /// have.
    pub fn naming_chunks(record: &[u8], limits: &Limits) -> Result<Self> {
        let refused = |reason: &str| Err(WireError::new(Kind::Unsupported, reason));
        if !fits(record, METADATA, limits.depth) {
            return refused("the last record is not a ChunkMetadata");
        }
        let metadata = Self::decode(record, limits)?;
        if metadata.chunks.is_empty() {
            return refused("the last record lists no chunks");
        }
        if metadata.message == ChunkedMessage::default() {
            return refused("the last record does not say where the chunks are");
        }
        Ok(metadata)
    }
}

/// True if `bytes` parse as a message of `shape` without other fields. Messages deeper than `depth` are not examined,
/// because decoding rejects them.
fn fits(bytes: &[u8], shape: Shape, depth: u32) -> bool {
    let mut fields = Fields::new(bytes, 0, 1);
    loop {
        let Ok(next) = fields.next_field() else { return false };
        let Some(field) = next else { return true };
        let known = shape.iter().find(|row| (row.0, row.1) == (field.header.number, field.header.wire));
        let fits = match known {
            None => false,
            Some((_, _, Value)) => true,
            Some((_, _, Message(below))) => depth == 0 || fits(field.content, below(), depth - 1),
        };
        if !fits {
            return false;
        }
    }
}
