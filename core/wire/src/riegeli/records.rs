//! The places of the records in an uncompressed chunk, found without reading the records.

use super::data;
use super::fault::{Fault, Resume};
use super::header::{ChunkKind, Hasher};
use super::walk::ChunkRef;
use crate::error::{Kind, WireError};
use crate::limits::Limits;
use crate::reader::Reader;
use crate::rope::{RopeBuilder, SourceId};
use crate::source::Source;
use crate::varint;

/// Bytes of the first read; in a chunk with few records, they include all sizes.
const FIRST: u64 = 64;

/// The records of an uncompressed simple chunk, as ranges of the chunk's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    values: u64,
    ends: Vec<u64>,
}

impl Spans {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The range of record `index` in the chunk's data.
    pub fn get(&self, index: usize) -> Option<std::ops::Range<u64>> {
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        Some(self.values + begin..self.values + end)
    }

    /// Appends record `index` to `rope`, as extents of the file `source`; returns false when the record does not exist.
    pub fn extents(&self, chunk: &ChunkRef, index: usize, source: SourceId, rope: &mut RopeBuilder) -> bool {
        let range = self.get(index);
        range.map(|range| chunk.extents(range, source, rope)).is_some()
    }
}

/// The places of the records of `chunk` in its data; None when they are compressed or transposed. Only the sizes are
/// read, so neither the hash of the data nor the block headers between the records are checked.
pub fn spans<S: Source + ?Sized>(source: &S, chunk: &ChunkRef, limits: &Limits) -> Result<Option<Spans>, Fault> {
    let front = front(source, chunk, limits)?;
    Ok(front.map(|(spans, _)| spans))
}

/// Like [`spans`], but also returns the data before the first record.
pub(super) fn front<S: Source + ?Sized>(
    source: &S,
    chunk: &ChunkRef,
    limits: &Limits,
) -> Result<Option<(Spans, Vec<u8>)>, Fault> {
    if chunk.header.kind != ChunkKind::Simple {
        return Ok(None);
    }
    check_count(chunk, limits)?;
    let mut front = first(source, chunk, FIRST)?;
    let bad = |error| bad(chunk, error);
    let mut reader = Reader::new(&front, 0);
    if reader.u8().map_err(bad)? != 0 {
        return Ok(None);
    }
    let sizes = reader.varint().map_err(bad)?;
    let begin = reader.offset();
    let most = chunk.header.records.saturating_mul(varint::MAX_LEN as u64);
    let values = begin.checked_add(sizes).filter(|&values| values <= chunk.header.data_size && sizes <= most);
    let values = values
        .ok_or_else(|| bad(WireError::corrupt(begin, "the sizes of the records take more bytes than the chunk has")))?;
    front = if values > front.len() as u64 { first(source, chunk, values)? } else { front };
    front.truncate(usize::try_from(values).unwrap_or(usize::MAX));
    let mut reader = Reader::new(&front, 0);
    reader.take(begin).map_err(bad)?;
    let ends = ends(reader, chunk, chunk.header.data_size - values).map_err(bad)?;
    Ok(Some((Spans { values, ends }, front)))
}

fn first<S: Source + ?Sized>(source: &S, chunk: &ChunkRef, len: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = data::buffer(source, chunk, len.min(chunk.header.data_size))?;
    data::fill(source, chunk, 0, &mut bytes, &mut Hasher::default())?;
    Ok(bytes)
}

/// The ends of the chunk's records, computed from their sizes, whose sum must be `total` bytes.
pub(super) fn ends(mut sizes: Reader<'_>, chunk: &ChunkRef, total: u64) -> Result<Vec<u64>, WireError> {
    let records = chunk.header.records;
    if records > sizes.left() as u64 {
        let message =
            format!("the chunk has sizes for at most {} records, but its header announces {records}", sizes.left());
        return Err(WireError::corrupt(sizes.offset(), message));
    }
    let mut ends = Vec::with_capacity(usize::try_from(records).unwrap_or(0));
    let mut end = 0u64;
    for _ in 0..records {
        let at = sizes.offset();
        let next = sizes.varint().map(|size| end.checked_add(size))?;
        let next = next.filter(|&next| next <= total);
        end = next.ok_or_else(|| WireError::corrupt(at, "a record extends past the data of its chunk"))?;
        ends.push(end);
    }
    if end != total || total != chunk.header.decoded_size {
        let message = format!(
            "the records have {end} bytes, but the chunk has {total} and its header announces {}",
            chunk.header.decoded_size
        );
        return Err(WireError::corrupt(sizes.offset(), message));
    }
    sizes.finish("the sizes of the records")?;
    Ok(ends)
}

/// Fails when the chunk announces more records than are allowed in memory.
pub(super) fn check_count(chunk: &ChunkRef, limits: &Limits) -> Result<(), Fault> {
    if chunk.header.records <= limits.in_memory().decoded / 8 {
        return Ok(());
    }
    let message = format!("the chunk at {} announces too many records: {}", chunk.begin, chunk.header.records);
    let error = WireError::new(Kind::Limit, message).at(chunk.begin);
    Err(Fault::new(error, Resume::At(chunk.end)))
}

/// The fault of data that match their hash but are malformed. The offset of `error` is counted from the start of the
/// data.
pub(super) fn bad(chunk: &ChunkRef, error: WireError) -> Fault {
    let within = error.offset().unwrap_or(0);
    let message = format!(
        "Invalid Riegeli/records file: {} at byte {within} of the data of the chunk at {}",
        error.message(),
        chunk.begin
    );
    Fault::new(WireError::new(error.kind(), message).at(chunk.begin), Resume::At(chunk.end))
}
