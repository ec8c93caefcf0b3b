//! Whether a record is a `ChunkMetadata`: most messages parse as one, their fields taken for unknown ones.

use super::{ChunkedMessage, Metadata};
use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::header::Wire;
use crate::limits::Limits;

/// The fields of a message: number, wire type, and the message that the content is.
type Shape = &'static [(u32, Wire, Inside)];

/// What the content of a field is.
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
    /// The metadata that `record` is. `Unsupported` when `record` names no chunks and no place for them, or holds a
    /// field that metadata does not have: any message may parse, but such a record comes from something else.
    pub fn naming_chunks(record: &[u8], limits: &Limits) -> Result<Self> {
        let refused = |reason: &str| Err(WireError::new(Kind::Unsupported, reason));
        if !fits(record, METADATA, limits.depth) {
            return refused("its last record is no ChunkMetadata");
        }
        let metadata = Self::decode(record, limits)?;
        if metadata.chunks.is_empty() {
            return refused("its last record names no chunks");
        }
        if metadata.message == ChunkedMessage::default() {
            return refused("its last record names no place for its chunks");
        }
        Ok(metadata)
    }
}

/// Whether `bytes` parse as a message of `shape` without any other field. Below `depth` nothing is looked at: decoding
/// refuses it.
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
