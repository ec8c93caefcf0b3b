//! Serialization of the metadata messages.

use super::{ChunkInfo, ChunkKind, ChunkedField, ChunkedMessage, MapKey, Metadata, Tag};
use crate::error::{Kind, Result, WireError};
use crate::fields::{Fields, InMemory};
use crate::header::{self, Wire};
use crate::limits::Limits;
use crate::varint;

/// The splitter's version that is written; readers do not check it.
const SPLITTER_VERSION: u64 = 1;

impl Metadata {
    /// Serializes the metadata as TensorFlow does.
    pub fn encode(&self) -> Vec<u8> {
        let mut version = Vec::new();
        number(1, SPLITTER_VERSION, &mut version);
        let mut out = Vec::new();
        delimited(1, &version, &mut out);
        for chunk in &self.chunks {
            let mut info = Vec::new();
            let values = [(1, chunk.kind as u64), (2, chunk.size), (3, chunk.offset)];
            values.iter().filter(|(_, value)| *value > 0).for_each(|(field, value)| number(*field, *value, &mut info));
            delimited(2, &info, &mut out);
        }
        delimited(3, &self.message.encode(), &mut out);
        out
    }

    /// Parses serialized metadata.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut metadata = Self::default();
        let mut fields = Fields::new(bytes, 0, limits.depth);
        while let Some(field) = fields.next_field()? {
            match (field.header.number, field.header.wire) {
                (2, Wire::Len) => metadata.chunks.push(ChunkInfo::decode(&field)?),
                (3, Wire::Len) => metadata.message.merge(&field, limits, 0)?,
                _ => {}
            }
        }
        Ok(metadata)
    }
}

impl ChunkInfo {
    fn decode(field: &InMemory<'_>) -> Result<Self> {
        let mut info = Self::default();
        let mut fields = below(field);
        while let Some(field) = fields.next_field()? {
            let value = field.header.value;
            match (field.header.number, field.header.wire) {
                (1, Wire::Varint) => info.kind = ChunkKind::from_number(value),
                (2, Wire::Varint) => info.size = value,
                (3, Wire::Varint) => info.offset = value,
                _ => {}
            }
        }
        Ok(info)
    }
}

impl ChunkKind {
    fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Message,
            2 => Self::Bytes,
            _ => Self::Unset,
        }
    }
}

impl ChunkedMessage {
    /// Serializes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(chunk) = self.chunk {
            number(1, chunk, &mut out);
        }
        for field in &self.fields {
            let mut body = Vec::new();
            field.tags.iter().for_each(|tag| delimited(1, &tag.encode(), &mut body));
            delimited(3, &field.message.encode(), &mut body);
            delimited(2, &body, &mut out);
        }
        out
    }

    /// Parses a message that [`ChunkedMessage::encode`] wrote.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut message = Self::default();
        message.take(&mut Fields::new(bytes, 0, 1), limits, 0)?;
        Ok(message)
    }

    fn merge(&mut self, field: &InMemory<'_>, limits: &Limits, depth: u32) -> Result<()> {
        limits.check_depth(depth, field.start)?;
        self.take(&mut below(field), limits, depth)
    }

    fn take(&mut self, fields: &mut Fields<'_>, limits: &Limits, depth: u32) -> Result<()> {
        while let Some(field) = fields.next_field()? {
            match (field.header.number, field.header.wire) {
                (1, Wire::Varint) => self.chunk = Some(field.header.value),
                (2, Wire::Len) => self.fields.push(ChunkedField::decode(&field, limits, depth)?),
                _ => {}
            }
        }
        Ok(())
    }
}

impl ChunkedField {
    fn decode(field: &InMemory<'_>, limits: &Limits, depth: u32) -> Result<Self> {
        let mut chunked = Self::default();
        let mut fields = below(field);
        while let Some(field) = fields.next_field()? {
            match (field.header.number, field.header.wire) {
                (1, Wire::Len) => chunked.tags.push(Tag::decode(&field)?),
                (3, Wire::Len) => chunked.message.merge(&field, limits, depth + 1)?,
                _ => {}
            }
        }
        Ok(chunked)
    }
}

impl Tag {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Field(field) => number(1, u64::from(*field), &mut out),
            Self::Index(index) => number(3, *index, &mut out),
            Self::Key(key) => delimited(2, &key.encode(), &mut out),
        }
        out
    }

    fn decode(field: &InMemory<'_>) -> Result<Self> {
        let mut tag = None;
        let mut fields = below(field);
        while let Some(inner) = fields.next_field()? {
            let value = inner.header.value;
            match (inner.header.number, inner.header.wire) {
                (1, Wire::Varint) => tag = Some(Self::Field(value as u32)),
                (2, Wire::Len) => tag = MapKey::decode(&inner)?.map(Self::Key),
                (3, Wire::Varint) => tag = Some(Self::Index(value)),
                _ => {}
            }
        }
        tag.ok_or_else(|| {
            let message = "a field tag of the chunk metadata has neither field nor index nor map key";
            WireError::new(Kind::Inconsistent, message).at(field.start)
        })
    }
}

impl MapKey {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Text(text) => delimited(1, text, &mut out),
            Self::Bool(value) => number(2, u64::from(*value), &mut out),
            Self::Uint32(value) => number(3, u64::from(*value), &mut out),
            Self::Uint64(value) => number(4, *value, &mut out),
            Self::Int32(value) => number(5, i64::from(*value) as u64, &mut out),
            Self::Int64(value) => number(6, *value as u64, &mut out),
        }
        out
    }

    fn decode(field: &InMemory<'_>) -> Result<Option<Self>> {
        let mut key = None;
        let mut fields = below(field);
        while let Some(inner) = fields.next_field()? {
            let value = inner.header.value;
            key = match (inner.header.number, inner.header.wire) {
                (1, Wire::Len) => Some(Self::Text(inner.content.to_vec())),
                (2, Wire::Varint) => Some(Self::Bool(value != 0)),
                (3, Wire::Varint) => Some(Self::Uint32(value as u32)),
                (4, Wire::Varint) => Some(Self::Uint64(value)),
                (5, Wire::Varint) => Some(Self::Int32(value as i32)),
                (6, Wire::Varint) => Some(Self::Int64(value as i64)),
                _ => key,
            };
        }
        Ok(key)
    }
}

/// The fields of the message that `field` contains. These messages never contain groups.
fn below<'a>(field: &InMemory<'a>) -> Fields<'a> {
    Fields::new(field.content, field.end - field.content.len() as u64, 1)
}

fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    varint::write(header::tag(field, Wire::Varint), out);
    varint::write(value, out);
}

fn delimited(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint::write(header::tag(field, Wire::Len), out);
    varint::write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag() -> impl Strategy<Value = Tag> {
        prop_oneof![
            (1u32..1 << 29).prop_map(Tag::Field),
            any::<u64>().prop_map(Tag::Index),
            prop::collection::vec(any::<u8>(), 0..5).prop_map(|text| Tag::Key(MapKey::Text(text))),
            any::<bool>().prop_map(|value| Tag::Key(MapKey::Bool(value))),
            any::<u32>().prop_map(|value| Tag::Key(MapKey::Uint32(value))),
            any::<u64>().prop_map(|value| Tag::Key(MapKey::Uint64(value))),
            any::<i32>().prop_map(|value| Tag::Key(MapKey::Int32(value))),
            any::<i64>().prop_map(|value| Tag::Key(MapKey::Int64(value))),
        ]
    }

    fn message() -> impl Strategy<Value = ChunkedMessage> {
        let leaf = prop::option::of(any::<u64>()).prop_map(|chunk| ChunkedMessage { chunk, fields: vec![] });
        leaf.prop_recursive(3, 20, 3, |inner| {
            let field =
                (prop::collection::vec(tag(), 0..4), inner).prop_map(|(tags, message)| ChunkedField { tags, message });
            (prop::option::of(any::<u64>()), prop::collection::vec(field, 0..3))
                .prop_map(|(chunk, fields)| ChunkedMessage { chunk, fields })
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(message in message(), sizes in prop::collection::vec(any::<[u64; 2]>(), 0..4)) {
            let chunks = sizes.into_iter().map(|[size, offset]| ChunkInfo { kind: ChunkKind::Bytes, size, offset });
            let metadata = Metadata { chunks: chunks.collect(), message };
            prop_assert_eq!(Metadata::decode(&metadata.encode(), &Limits::default()).unwrap(), metadata);
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Metadata::decode(&bytes, &Limits::default());
        }
    }
}
