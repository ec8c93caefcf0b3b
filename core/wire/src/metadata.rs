//! `ChunkMetadata` of TensorFlow's proto splitter, read from and written to the wire without a protobuf runtime.

mod coded;
mod fit;

/// How the chunks of a proto make it up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The chunks, by number.
    pub chunks: Vec<ChunkInfo>,
    /// Where they belong.
    pub message: ChunkedMessage,
}

/// One chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Whether it is a message or bytes.
    pub kind: ChunkKind,
    /// Its length.
    pub size: u64,
    /// The numeric position of its record in a `.cpb` file.
    pub offset: u64,
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkKind {
    /// Not said.
    #[default]
    Unset = 0,
    /// A serialized message, or a part of one.
    Message = 1,
    /// The content of a bytes or string field.
    Bytes = 2,
}

/// A message that is made of a chunk and of what other chunks add to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkedMessage {
    /// The chunk it starts from. None is not the same as chunk 0.
    pub chunk: Option<u64>,
    /// What is added to it.
    pub fields: Vec<ChunkedField>,
}

/// A place in a message, and what belongs there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkedField {
    /// The place; the message itself when empty.
    pub tags: Vec<Tag>,
    /// What belongs there.
    pub message: ChunkedMessage,
}

/// One step to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A field, by number.
    Field(u32),
    /// An element of the field before.
    Index(u64),
    /// An entry of the map before.
    Key(MapKey),
}

/// The key of a map, in the kinds the format knows.
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
