//! The serialized plan, which is written when a proto is ingested and read for every request of a chunk.
//!
//! A plan begins with `pslplan1` and the number of chunks as a varint. Each chunk follows as a byte for its kind, its
//! type name and its path (each a varint length and text), and its rope. Then comes the `ChunkedMessage` as varint
//! length and bytes, and at last the CRC-32C of all bytes before.
//!
//! A plan that was kept from a chunked proto begins with `pslplan2`. In place of the `ChunkedMessage`, it has the
//! file's `ChunkMetadata`, followed by the file's size as a varint. Readers of only the first version reject it.

use crate::error::{Kind, Result, WireError};
use crate::limits::Limits;
use crate::metadata::{ChunkKind, ChunkedMessage};
use crate::plan::{Chunk, Origin, Plan};
use crate::reader::Reader;
use crate::rope::Rope;
use crate::varint;

const MAGIC: &[u8; 8] = b"pslplan1";
const KEPT_MAGIC: &[u8; 8] = b"pslplan2";

impl Plan {
    /// Serializes the plan.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = if self.origin.is_some() { KEPT_MAGIC } else { MAGIC }.to_vec();
        varint::write(self.chunks.len() as u64, &mut out);
        for chunk in &self.chunks {
            out.push(chunk.kind as u8);
            text(chunk.type_name.as_deref().unwrap_or_default().as_bytes(), &mut out);
            text(chunk.path.as_bytes(), &mut out);
            chunk.rope.encode(&mut out);
        }
        match &self.origin {
            None => text(&self.message.encode(), &mut out),
            Some(origin) => {
                text(&origin.metadata, &mut out);
                varint::write(origin.size, &mut out);
            }
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// Reads a plan that [`Plan::encode`] wrote.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| WireError::corrupt(0, "not a plan"))?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(WireError::new(Kind::Checksum, "the plan of a split fails its checksum").at(0));
        }
        let mut reader = Reader::new(body, 0);
        let magic = reader.take(8)?;
        if magic != MAGIC && magic != KEPT_MAGIC {
            return Err(WireError::new(Kind::Unsupported, "the plan has an unsupported version"));
        }
        let mut plan = Self::default();
        for _ in 0..reader.varint()? {
            plan.chunks.push(chunk(&mut reader, limits)?);
        }
        let len = reader.varint()?;
        let made = reader.take(len)?;
        if magic == MAGIC {
            plan.message = ChunkedMessage::decode(made, limits)?;
        } else {
            plan.origin = Some(Origin { metadata: made.to_vec(), size: reader.varint()? });
        }
        reader.finish("a plan").map(|()| plan)
    }
}

fn chunk(reader: &mut Reader<'_>, limits: &Limits) -> Result<Chunk> {
    let kind = if reader.u8()? == ChunkKind::Bytes as u8 { ChunkKind::Bytes } else { ChunkKind::Message };
    let type_name = Some(string(reader)?).filter(|name| !name.is_empty());
    Ok(Chunk { kind, type_name, path: string(reader)?, rope: Rope::decode(reader, limits)? })
}

fn text(bytes: &[u8], out: &mut Vec<u8>) {
    varint::write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn string(reader: &mut Reader<'_>) -> Result<String> {
    let at = reader.offset();
    let len = reader.varint()?;
    let text = std::str::from_utf8(reader.take(len)?);
    text.map(str::to_owned).map_err(|_| WireError::corrupt(at, "a name in a plan is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{ChunkedField, Tag};
    use crate::rope::SourceId;

    fn plan() -> Plan {
        let chunk = |kind, name: Option<&str>, rope| Chunk {
            kind,
            type_name: name.map(str::to_owned),
            path: "a.b".into(),
            rope,
        };
        let chunks = vec![
            chunk(ChunkKind::Message, Some("x.Y"), Rope::literal(b"abc")),
            chunk(ChunkKind::Bytes, None, Rope::extent(SourceId(1), 1 << 40, 1 << 33)),
        ];
        let inner = ChunkedMessage { chunk: Some(1), fields: vec![] };
        let fields = vec![ChunkedField { tags: vec![Tag::Field(1), Tag::Index(0)], message: inner }];
        Plan { chunks, message: ChunkedMessage { chunk: Some(0), fields }, origin: None }
    }

    fn kept() -> Plan {
        let origin = Origin { metadata: vec![7; 40], size: 1 << 40 };
        Plan { message: ChunkedMessage::default(), origin: Some(origin), ..plan() }
    }

    #[test]
    fn what_is_encoded_decodes() {
        for plan in [plan(), kept()] {
            assert_eq!(Plan::decode(&plan.encode(), &Limits::default()).unwrap(), plan);
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        for bytes in [plan().encode(), kept().encode()] {
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(Plan::decode(&damaged, &Limits::default()).is_err(), "byte {at}");
                assert!(Plan::decode(&bytes[..at], &Limits::default()).is_err(), "cut at {at}");
            }
        }
    }
}
