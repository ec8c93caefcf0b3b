//! The plan that a chunked proto contains: the chunks in the order of the file, each with its first place in the
//! message.

use super::records::Chunked;
use super::values::OwnedKey;
use crate::error::{Kind, Result, WireError};
use crate::key;
use crate::limits::Limits;
use crate::metadata::{ChunkKind, ChunkedMessage, MapKey, Tag};
use crate::path::quote;
use crate::plan::{Chunk, Origin, Plan};
use crate::schema::{Field, FieldKind, Schema, TypeId};

/// Bytes of paths allowed per chunk, on average over the most chunks that a plan may have.
const PATH_BYTES: u64 = 1 << 10;

impl Chunked {
    /// The plan of the file, whose message has the type `root`; None for a split proto of XLA, which has no metadata.
    /// Fails with a `Limit` error when there are too many chunks, or when their paths are too long.
    pub fn plan(&self, schema: &Schema, root: Option<TypeId>, limits: &Limits) -> Result<Option<Plan>> {
        if self.declared.is_some() {
            return Ok(None);
        }
        let most = limits.chunks_of(self.size);
        if self.len() as u64 > most {
            return Err(too_much(&format!(
                "the chunked proto has {} chunks, but at most {most} are allowed",
                self.len()
            )));
        }
        let mut places = Places {
            schema,
            longest: limits.path,
            room: most.saturating_mul(PATH_BYTES),
            path: String::new(),
            found: vec![None; self.len()],
        };
        places.visit(&self.metadata.message, Spot { type_id: root, field: None })?;
        let found = places.found.into_iter().zip(&self.metadata.chunks);
        let chunks = (0..).zip(found).map(|(number, (place, info))| {
            let Place { path, kind, type_id } = place.unwrap_or_default();
            let kind = kind.unwrap_or(info.kind); // the place decides, as it does in a merge
            let known = type_id.and_then(|id| schema.message(id)).filter(|_| kind == ChunkKind::Message);
            let rope = self.records.slice(self.chunk(number).unwrap_or_default());
            Chunk { kind, type_name: known.map(|known| known.name.clone()), path, rope }
        });
        let origin = Origin { metadata: self.record.clone(), size: self.size };
        Ok(Some(Plan { chunks: chunks.collect(), message: ChunkedMessage::default(), origin: Some(origin) }))
    }
}

fn too_much(what: &str) -> WireError {
    let message = format!("{what}: use plan=policy to split it by size instead of reading its own chunks");
    WireError::new(Kind::Limit, message)
}

/// The first place of a chunk.
#[derive(Clone, Default)]
struct Place {
    path: String,
    /// The kind of the content there; None where the schema does not define it.
    kind: Option<ChunkKind>,
    type_id: Option<TypeId>,
}

/// The position in the message while a chunk's tags are followed.
#[derive(Clone, Copy)]
struct Spot<'s> {
    /// The type of the message at this position; None when unknown or not a message.
    type_id: Option<TypeId>,
    /// The field that the last tag named; None at the root and for an unknown field.
    field: Option<&'s Field>,
}

/// A walk over the metadata. The current path grows and shrinks during the walk and is copied only for chunks. So the
/// cost is proportional to the metadata, however deep its fields are.
struct Places<'s> {
    schema: &'s Schema,
    longest: usize,
    room: u64,
    path: String,
    found: Vec<Option<Place>>,
}

impl<'s> Places<'s> {
    fn visit(&mut self, message: &ChunkedMessage, spot: Spot<'s>) -> Result<()> {
        if let Some(chunk) = message.chunk {
            self.note(chunk, spot)?;
        }
        for field in &message.fields {
            let begin = self.path.len();
            let below = field.tags.iter().fold(spot, |spot, tag| self.follow(spot, tag));
            self.visit(&field.message, below)?;
            self.path.truncate(begin);
        }
        Ok(())
    }

    fn note(&mut self, chunk: u64, spot: Spot<'s>) -> Result<()> {
        let Some(slot @ None) = usize::try_from(chunk).ok().and_then(|at| self.found.get_mut(at)) else {
            return Ok(());
        };
        if self.path.len() > self.longest {
            return Err(too_much(&format!(
                "the chunked proto puts chunk {chunk} at a path of more than {} bytes",
                self.longest
            )));
        }
        let room = self.room.checked_sub(self.path.len() as u64);
        self.room =
            room.ok_or_else(|| too_much("the chunked proto has paths to its chunks that are too long in total"))?;
        let kind = match spot {
            Spot { field: Some(field), .. } if key::is_text(field.kind) => Some(ChunkKind::Bytes),
            Spot { type_id, .. } => type_id.map(|_| ChunkKind::Message),
        };
        *slot = Some(Place { path: self.path.clone(), kind, type_id: spot.type_id });
        Ok(())
    }

    /// The position that `tag` leads to; appends the tag's step to the path.
    fn follow(&mut self, spot: Spot<'s>, tag: &Tag) -> Spot<'s> {
        match tag {
            Tag::Field(number) => {
                let field = self.schema.field(spot.type_id, *number);
                if !self.path.is_empty() {
                    self.path.push('.');
                }
                match field {
                    Some(field) => self.path.push_str(&field.name),
                    None => self.path.push_str(&number.to_string()),
                }
                let message = field.filter(|field| field.kind.is_message());
                Spot { type_id: message.map(|field| field.target), field }
            }
            Tag::Index(index) => {
                self.path.push_str(&format!("[{index}]"));
                spot
            }
            Tag::Key(key) => {
                self.path.push_str(&format!("[{}]", self.label(spot, key)));
                let value = self.schema.field(spot.type_id.filter(|id| self.schema.is_map_entry(Some(*id))), 2);
                let message = value.filter(|value| value.kind.is_message());
                Spot { type_id: message.map(|value| value.target), field: value }
            }
        }
    }

    /// The key as it is written in paths, converted to the kind of the map's keys where this kind is known.
    fn label(&self, spot: Spot<'s>, key: &MapKey) -> String {
        let kind = self.schema.field(spot.type_id, 1).map_or(FieldKind::String, |key| key.kind);
        OwnedKey::of(kind, key).map_or_else(|| quote(b"?"), |key| key.label(kind))
    }
}
