//! `ChunkMetadata` of TensorFlow's proto splitter, read and written without a protobuf runtime.

mod coded;
mod fit;

/// The metadata of a chunked proto: its chunks, and the place of each chunk in the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The chunks, by number.
    pub chunks: Vec<ChunkInfo>,
    /// The message that the chunks form.
    pub message: ChunkedMessage,
}

/// One chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Kind of the content.
    pub kind: ChunkKind,
    /// Size in bytes.
    pub size: u64,
    /// The numeric position of the chunk's record in a `.cpb` file.
    pub offset: u64,
}

/// Kind of a chunk's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkKind {
    /// The kind is not stated.
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
    /// The chunk to start from; None means no chunk, and differs from chunk 0.
    pub chunk: Option<u64>,
    /// Additions to the message.
    pub fields: Vec<ChunkedField>,
}

/// An addition to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkedField {
    /// The place of the addition; empty for the message itself.
    pub tags: Vec<Tag>,
    /// The content at that place.
    pub message: ChunkedMessage,
}

/// One step of the path to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A field, by number.
    Field(u32),
    /// An element of the field in the previous step.
    Index(u64),
    /// An entry of the map in the previous step.
    Key(MapKey),
}

/// A map key, in one of the kinds that the format supports.
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
