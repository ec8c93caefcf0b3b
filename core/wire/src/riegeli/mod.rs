//! Riegeli/records files: files of chunks that contain records, with a 24-byte block header at every 64 KiB.
//!
//! [`layout`] has the arithmetic of positions, and [`header`] has both kinds of headers and their hash. [`walk`] finds
//! chunks with small reads, and [`records`] locates or decodes the records of a chunk. [`frame`] makes the rope of a
//! file from the ropes of its records. [`record_reader`] and [`record_writer`] process whole files.

pub mod codec;
pub mod data;
pub mod decode;
pub mod fault;
pub mod frame;
pub mod header;
pub mod layout;
pub mod options;
pub mod record_reader;
pub mod record_writer;
pub mod records;
pub mod stream;
pub mod walk;
pub mod writer;

pub use data::{verify, verify_all};
pub use decode::{Decoded, decode, metadata};
pub use fault::{Fault, Resume};
pub use frame::{Framer, record_hasher};
pub use header::{ChunkHeader, ChunkKind, Hasher};
pub use options::WriterOptions;
pub use record_reader::{Next, RecordReader, Skipped};
pub use record_writer::RecordWriter;
pub use records::{Spans, spans};
pub use stream::decode_into;
pub use walk::{ChunkRef, Chunks, chunk_at, find, last_record, record_before};
pub use writer::Sink;
