//! `ChunkMetadata` of TensorFlow's proto splitter, read from and written to the wire without a protobuf runtime.

mod coded;
mod fit;

/// Metadata of a chunked proto: its chunks, and the place of each in the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The chunks, by number.
    pub chunks: Vec<ChunkInfo>,
    /// Message that the chunks make up.
    pub message: ChunkedMessage,
}

/// One chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Kind of the content.
    pub kind: ChunkKind,
    /// Size in bytes.
    pub size: u64,
    /// The numeric position of its record in a `.cpb` file.
    pub offset: u64,
}

/// Kind of a chunk's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkKind {
    /// Not stated.
    #[default]
    Unset = 0,
    /// A serialized message, or a part of one.
    Message = 1,
    /// The content of a bytes or string field.
    Bytes = 2,
}

/// A message made of a chunk and of additions from other chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkedMessage {
    /// The chunk to start from. None differs from chunk 0.
    pub chunk: Option<u64>,
    /// Additions to the message.
    pub fields: Vec<ChunkedField>,
}

/// An addition to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkedField {
    /// The place; empty for the message itself.
    pub tags: Vec<Tag>,
    /// Content at that place.
    pub message: ChunkedMessage,
}

/// One step of a path to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A field, by number.
    Field(u32),
    /// An element of the field before it.
    Index(u64),
    /// An entry of the map before it.
    Key(MapKey),
}

/// A map key, in the kinds that the format has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the format")]
pub enum MapKey {
    Text(Vec<u8>),
    Bool(bool),
    Uint32(u32),
    Uint64(u64),
    Int32(i32),
    Int64(i64),
}
