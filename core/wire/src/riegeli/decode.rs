//! The decoding of a chunk's records, in all forms in which they are stored.

use std::io::Cursor;

use super::codec::{self, Codec};
use super::data;
use super::fault::Fault;
use super::header::{ChunkHeader, ChunkKind, signature};
use super::records::{bad, check_count, ends};
use super::walk::ChunkRef;
use super::writer::{Sink, put_chunk};
use crate::error::{Kind, WireError};
use crate::limits::Limits;
use crate::reader::Reader;
use crate::source::Source;

type Result<T, E = WireError> = std::result::Result<T, E>;

/// The records of one chunk in memory, concatenated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    bytes: Vec<u8>,
    base: usize,
    ends: Vec<u64>,
}

impl Decoded {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All records, concatenated.
    pub fn values(&self) -> &[u8] {
        self.bytes.get(self.base..).unwrap_or_default()
    }

    /// The end of each record in [`Decoded::values`].
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// All records, concatenated, and the end of each record.
    pub fn into_parts(mut self) -> (Vec<u8>, Vec<u64>) {
        self.bytes.drain(..self.base.min(self.bytes.len()));
        (self.bytes, self.ends)
    }

    /// Record `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.values().get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)
    }
}

/// The records of `chunk`, after a check of its data against their hash. A metadata chunk has one record, the
/// serialized `RecordsMetadata`. Chunks of other kinds that contain no records give none.
pub fn decode<S: Source + ?Sized>(source: &S, chunk: &ChunkRef, limits: &Limits) -> Result<Decoded, Fault> {
    check(chunk, limits)?;
    let data = data::read_all(source, chunk)?;
    let decoded = match chunk.header.kind {
        ChunkKind::Simple => simple(data, chunk, limits),
        ChunkKind::Transposed => transposed(&data, chunk.header, limits),
        ChunkKind::Metadata => {
            transposed(&data, ChunkHeader { records: 1, kind: ChunkKind::Transposed, ..chunk.header }, limits)
        }
        ChunkKind::Signature | ChunkKind::Padding | ChunkKind::Unknown(_) => Ok(Decoded::default()),
    };
    decoded.map_err(|error| bad(chunk, error))
}

/// Fails when a chunk announces more bytes than may be decoded, or sizes that are impossible for its kind.
pub(super) fn check(chunk: &ChunkRef, limits: &Limits) -> Result<(), Fault> {
    let header = &chunk.header;
    check_count(chunk, limits)?;
    let most = limits.decoded;
    if header.decoded_size > most || header.data_size > most.saturating_add(most / 8) {
        let message = format!(
            "the chunk has {} bytes and decodes to {}, but at most {most} are allowed; raise the limit",
            header.data_size, header.decoded_size
        );
        return Err(bad(chunk, WireError::new(Kind::Limit, message)));
    }
    let has_records = matches!(header.kind, ChunkKind::Simple | ChunkKind::Transposed);
    if !has_records && header.records > 0 {
        let message =
            format!("chunks of type {:?} cannot have records, and this one has {}", header.kind, header.records);
        return Err(bad(chunk, WireError::new(Kind::Corrupt, message)));
    }
    Ok(())
}

fn simple(data: Vec<u8>, chunk: &ChunkRef, limits: &Limits) -> Result<Decoded> {
    let mut reader = Reader::new(&data, 0);
    let codec = Codec::from_byte(reader.u8()?, 0)?;
    let sizes_len = reader.varint()?;
    let sizes_at = reader.offset();
    let sizes = codec::unpack(codec, reader.sub(sizes_len)?, limits)?;
    if codec == Codec::None {
        let base = usize::try_from(reader.offset()).unwrap_or(usize::MAX);
        let ends = ends(Reader::new(&sizes, sizes_at), chunk, reader.left() as u64)?;
        drop(sizes);
        return Ok(Decoded { ends, base, bytes: data });
    }
    let values = codec::unpack(codec, reader, limits)?.into_owned();
    let ends = ends(Reader::new(&sizes, sizes_at), chunk, values.len() as u64)?;
    Ok(Decoded { bytes: values, base: 0, ends })
}

/// Decodes a transposed chunk with the `riegeli` crate, which gets a file in memory with only this chunk. All
/// decompressed sizes are checked first.
fn transposed(data: &[u8], header: ChunkHeader, limits: &Limits) -> Result<Decoded> {
    measure(data, limits)?;
    let mut file = signature();
    put_chunk(&header, &[data], 64, &mut file)?;
    let mut reader =
        riegeli::RecordReader::new(Cursor::new(file), riegeli::ReaderOptions::new()).map_err(undecodable)?;
    let mut decoded = Decoded::default();
    while let Some(record) = reader.read_record().map_err(undecodable)? {
        decoded.bytes.extend_from_slice(&record);
        decoded.ends.push(decoded.bytes.len() as u64);
    }
    if decoded.ends.len() as u64 != header.records || decoded.bytes.len() as u64 != header.decoded_size {
        return Err(WireError::corrupt(0, "the transposed records do not match the header"));
    }
    Ok(decoded)
}

fn undecodable(error: riegeli::RiegeliError) -> WireError {
    WireError::corrupt(0, format!("the transposed records cannot be assembled: {error}"))
}

/// Fails when the buffers of a transposed chunk decompress to more bytes in total than allowed.
fn measure(data: &[u8], limits: &Limits) -> Result<()> {
    let mut reader = Reader::new(data, 0);
    let codec = Codec::from_byte(reader.u8()?, 0)?;
    let header_len = reader.varint()?;
    let at = reader.offset();
    let header = codec::unpack(codec, reader.sub(header_len)?, limits)?;
    let mut total = header.len() as u64;
    let mut header = Reader::new(&header, at);
    let (buckets, buffers) = (header.varint()?, header.varint()?);
    if buckets.max(buffers) > header.left() as u64 {
        return Err(WireError::corrupt(
            at,
            format!("the header announces {buckets} buckets and {buffers} buffers, but ends before listing them"),
        ));
    }
    for _ in 0..buckets {
        let bucket = reader.sub(header.varint()?)?;
        total = total.saturating_add(unpacked_size(codec, bucket, limits)?);
    }
    total = total.saturating_add(unpacked_size(codec, reader, limits)?);
    if total <= limits.decoded {
        return Ok(());
    }
    let message = format!(
        "a transposed chunk decompresses to {total} bytes, but at most {} are allowed; raise the limit",
        limits.decoded
    );
    Err(WireError::new(Kind::Limit, message).at(0))
}

fn unpacked_size(codec: Codec, mut blob: Reader<'_>, limits: &Limits) -> Result<u64> {
    if codec == Codec::None { Ok(blob.left() as u64) } else { codec::announced(codec, &mut blob, limits) }
}

/// The serialized `RecordsMetadata` after the signature; None for a file without it.
pub fn metadata<S: Source + ?Sized>(source: &S, limits: &Limits) -> Result<Option<Vec<u8>>, Fault> {
    let Some(signature) = super::walk::chunk_at(source, 0)? else { return Ok(None) };
    let chunk = super::walk::chunk_at(source, signature.end)?;
    let Some(chunk) = chunk.filter(|chunk| chunk.header.kind == ChunkKind::Metadata) else { return Ok(None) };
    decode(source, &chunk, limits).map(|decoded| Some(decoded.bytes))
}

impl Sink for Vec<u8> {
    fn write(&mut self, parts: &[&[u8]]) -> Result<()> {
        parts.iter().for_each(|part| self.extend_from_slice(part));
        Ok(())
    }
}
