//! The records of a chunked proto: the place of each chunk, and the metadata.

use std::collections::HashMap;
use std::ops::Range;

use super::{FREE_BYTES, description, xla_split};
use crate::error::{Kind, Result, WireError};
use crate::limits::Limits;
use crate::metadata::Metadata;
use crate::riegeli::{self, ChunkRef, Chunks, Spans};
use crate::rope::{Rope, RopeBuilder, SourceId};
use crate::source::Source;

/// The chunked file itself.
pub const FILE: SourceId = SourceId(0);
/// The decoded records, concatenated.
pub const SIDE: SourceId = SourceId(1);

/// Most riegeli chunks whose records `counted` counts.
const COUNTED: u32 = 256;

/// How often the bytes of a file may be repeated in the merged proto; writers use each chunk only once.
const REPEATS: u64 = 4;
/// Records allowed in addition to those that the metadata names.
const FREE_RECORDS: u64 = 1 << 10;

/// A destination for decoded records.
pub trait Side {
    /// Appends `bytes`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
}

impl Side for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// A chunked proto: its metadata, and its concatenated chunks as a rope over [`FILE`] and [`SIDE`].
#[derive(Clone, Debug)]
pub struct Chunked {
    /// The metadata from the last record, or built from the manifest of a split proto.
    pub metadata: Metadata,
    /// The type name that a split proto declares; None for other files.
    pub declared: Option<String>,
    /// All chunks in the order of their numbers, concatenated.
    pub records: Rope,
    /// The metadata's record as stored in the file; empty for a split proto.
    pub(super) record: Vec<u8>,
    /// The size of the file in bytes.
    pub(super) size: u64,
    ends: Vec<u64>,
}

impl Chunked {
    /// The range of chunk `number` in `records`; None after the last chunk.
    pub fn chunk(&self, number: u64) -> Option<Range<u64>> {
        let at = usize::try_from(number).ok()?;
        let end = *self.ends.get(at)?;
        let begin = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        Some(begin..end)
    }

    /// The chunk that contains byte `offset` of `records`: its number and its range.
    pub(super) fn holding(&self, offset: u64) -> Option<(u64, Range<u64>)> {
        let number = self.ends.partition_point(|end| *end <= offset) as u64;
        Some((number, self.chunk(number)?))
    }

    /// The chunks that belong directly to the root message, concatenated; type detection reads them.
    pub fn root(&self) -> Rope {
        let message = &self.metadata.message;
        let own = message.fields.iter().filter(|field| field.tags.is_empty()).map(|field| field.message.chunk);
        let mut out = RopeBuilder::default();
        for range in std::iter::once(message.chunk).chain(own).flatten().filter_map(|chunk| self.chunk(chunk)) {
            out.rope(&self.records.slice(range));
        }
        out.finish()
    }

    /// The number of chunks.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// The metadata of the chunked proto `source`, which is its last record and takes a few small reads. Fails with an
/// `Unsupported` error when the file contains other records.
pub fn read_metadata(source: &dyn Source, limits: &Limits) -> Result<Metadata> {
    metadata_record(source, limits).map(|(metadata, _)| metadata)
}

/// The metadata and its record.
fn metadata_record(source: &dyn Source, limits: &Limits) -> Result<(Metadata, Vec<u8>)> {
    let Some((chunk, index)) = riegeli::last_record(source)? else {
        return Err(plain_records(source, "the file has no records"));
    };
    let size = chunk.header.decoded_size;
    if size > description(source) {
        let reason = format!(
            "the last chunk decodes to {size} bytes, too many for the metadata of a file of {} bytes",
            source.len()
        );
        return Err(plain_records(source, &reason));
    }
    if size > limits.metadata {
        return Err(plain_records(source, &format!("the last chunk holds {size} bytes, too many for metadata")));
    }
    let decoded = riegeli::decode(source, &chunk, limits).map_err(|fault| fault.error)?;
    let record = usize::try_from(index).ok().and_then(|index| decoded.get(index)).unwrap_or_default();
    let metadata = Metadata::naming_chunks(record, limits).map_err(|error| match error.kind() {
        Kind::Unsupported => plain_records(source, error.message()),
        _ => error,
    })?;
    Ok((metadata, record.to_vec()))
}

/// The error for a riegeli file that is not a chunked proto, for the given `reason`.
fn plain_records(source: &dyn Source, reason: &str) -> WireError {
    let message = format!(
        "a riegeli file of {}, not a chunked proto: {reason}; use protoslice.riegeli to read its records",
        counted(source)
    );
    WireError::new(Kind::Unsupported, message)
}

/// The number of records in `source`, for an error message; it begins with "more than" if `COUNTED` chunks are not all.
fn counted(source: &dyn Source) -> String {
    let (mut records, mut left) = (0u64, COUNTED);
    for chunk in Chunks::new(source, 0) {
        let Ok(chunk) = chunk else { break };
        if left == 0 {
            return format!("more than {records} records");
        }
        left -= u32::from(chunk.header.records > 0);
        records = records.saturating_add(chunk.header.records);
    }
    format!("{records} record{}", if records == 1 { "" } else { "s" })
}

/// Finds the chunks of `source`; compressed and transposed records are decoded and appended to `side`.
pub fn open(source: &dyn Source, side: &mut dyn Side, limits: &Limits) -> Result<Chunked> {
    let (mut metadata, record, declared) = match xla_split::read(source, limits)? {
        Some(split) => (split.metadata, Vec::new(), Some(split.type_name)),
        None => {
            let (metadata, record) = metadata_record(source, limits)?;
            (metadata, record, None)
        }
    };
    let named = (metadata.chunks.len() as u64).saturating_add(FREE_RECORDS);
    let mut finder = Finder { source, side, limits, side_len: 0, known: HashMap::new(), last: None, records: named };
    let mut records = RopeBuilder::new(limits);
    let mut ends = Vec::new();
    for (number, info) in metadata.chunks.iter().enumerate() {
        finder.append(info.offset, &mut records).map_err(|error| error.on(format!("chunk {number}")))?;
        records.check()?;
        check_repeats(records.len(), source.len().saturating_add(finder.side_len))?;
        ends.push(records.len());
    }
    if declared.is_some() {
        note_sizes(&mut metadata, &ends);
    }
    Ok(Chunked { metadata, declared, records: records.finish(), record, size: source.len(), ends })
}

/// Fails when chunks with `len` bytes in total have only `there` different bytes, so that chunks repeat too often.
pub(super) fn check_repeats(len: u64, there: u64) -> Result<()> {
    let most = there.saturating_mul(REPEATS).saturating_add(FREE_BYTES);
    if len <= most {
        return Ok(());
    }
    let message =
        format!("the same chunks are used too often: merging them would turn {there} bytes into {len} or more");
    Err(WireError::new(Kind::Limit, message))
}

/// Sets the sizes of the chunks, which a manifest does not contain.
fn note_sizes(metadata: &mut Metadata, ends: &[u64]) {
    let mut begin = 0;
    for (chunk, end) in metadata.chunks.iter_mut().zip(ends) {
        chunk.size = end.saturating_sub(begin);
        begin = *end;
    }
}

/// Finds records by their numeric positions, and examines each riegeli chunk once.
struct Finder<'a> {
    source: &'a dyn Source,
    side: &'a mut dyn Side,
    limits: &'a Limits,
    side_len: u64,
    known: HashMap<u64, Contents>,
    last: Option<ChunkRef>,
    /// How many records compressed chunks may still have.
    records: u64,
}

/// The place of the records of one riegeli chunk.
enum Contents {
    Plain(Spans),
    /// The offset in the side object, and the ends of the records relative to this offset.
    Decoded(u64, Vec<u64>),
}

impl Finder<'_> {
    fn append(&mut self, offset: u64, out: &mut RopeBuilder) -> Result<()> {
        let chunk = self.chunk_of(offset)?;
        if !self.known.contains_key(&chunk.begin) {
            let contents = self.look_into(&chunk)?;
            self.known.insert(chunk.begin, contents);
        }
        let index = usize::try_from(offset - chunk.begin).unwrap_or(usize::MAX);
        let found = match self.known.get(&chunk.begin) {
            Some(Contents::Plain(spans)) => spans.extents(&chunk, index, FILE, out),
            Some(Contents::Decoded(base, ends)) => ends.get(index).is_some_and(|end| {
                let begin = index.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
                out.extent(SIDE, base + begin, end - begin);
                true
            }),
            None => false,
        };
        if found { Ok(()) } else { Err(no_record(offset)) }
    }

    /// The riegeli chunk with the record at `offset`, usually the last used chunk or the chunk after it.
    fn chunk_of(&mut self, offset: u64) -> Result<ChunkRef> {
        let holds = |chunk: &ChunkRef| chunk.begin <= offset && offset - chunk.begin < chunk.header.records;
        if let Some(last) = self.last {
            if holds(&last) {
                return Ok(last);
            }
            if offset == last.end
                && let Ok(Some(next)) = riegeli::chunk_at(self.source, offset)
                && holds(&next)
            {
                self.last = Some(next);
                return Ok(next);
            }
        }
        let found = match riegeli::find(self.source, offset) {
            Err(error) if error.kind() == Kind::NotFound => None,
            found => found?,
        };
        let (chunk, _) = found.filter(|(chunk, _)| holds(chunk)).ok_or_else(|| no_record(offset))?;
        self.last = Some(chunk);
        Ok(chunk)
    }

    fn look_into(&mut self, chunk: &ChunkRef) -> Result<Contents> {
        if let Some(spans) = riegeli::spans(self.source, chunk, self.limits).map_err(|fault| fault.error)? {
            return Ok(Contents::Plain(spans));
        }
        self.admit(chunk)?;
        let base = self.side_len;
        let (side, source) = (&mut *self.side, self.source);
        let ends = riegeli::decode_into(source, chunk, self.limits, &mut |piece| side.append(piece));
        let ends = ends.map_err(|fault| fault.error)?;
        self.side_len += ends.last().copied().unwrap_or(0);
        Ok(Contents::Decoded(base, ends))
    }

    /// Fails when decoding `chunk` would exceed a limit: on bytes in the side object, or on the number of records.
    fn admit(&mut self, chunk: &ChunkRef) -> Result<()> {
        let (header, source) = (&chunk.header, self.source.len());
        let total = self.side_len.saturating_add(header.decoded_size);
        if total > self.limits.side {
            let most = self.limits.side;
            let message = format!(
                "the {source} bytes of this file decode to {total} bytes or more, and {most} are allowed: send it \
                 without compression"
            );
            return Err(WireError::new(Kind::Limit, message).at(chunk.begin));
        }
        self.records = self.records.checked_sub(header.records).ok_or_else(|| {
            let message = format!("a riegeli chunk has {} records, but the metadata lists fewer", header.records);
            WireError::new(Kind::Limit, message).at(chunk.begin)
        })?;
        Ok(())
    }
}

fn no_record(offset: u64) -> WireError {
    let message = format!("the metadata places a chunk at record position {offset}, where no record starts");
    WireError::new(Kind::Inconsistent, message).at(offset)
}
