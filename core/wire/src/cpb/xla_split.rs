//! Split protos of XLA: riegeli files whose first record is a manifest. The manifest declares what each other record
//! is: a message that is merged into the result, or the value of a field of the result.
//!
//! The file is read as a chunked proto. Its chunks are the records, which are merged in the order of the file.

use super::description;
use crate::error::{Kind, Result, WireError};
use crate::fields::{Fields, InMemory};
use crate::header::Wire;
use crate::limits::Limits;
use crate::metadata::{ChunkInfo, ChunkKind, ChunkedField, ChunkedMessage, Metadata, Tag};
use crate::riegeli::{self, ChunkRef, Chunks};
use crate::rope::{Rope, RopeBuilder, SourceId};
use crate::source::{RopeSource, Source};

/// Longest manifest in bytes; a longer first record is not a manifest.
const LONGEST: u64 = 16 << 20;
/// The only type of a field's value that XLA writes: string or bytes.
const TYPE_STRING: u64 = 1;

/// A parsed manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct XlaSplit {
    /// Full name of the result's type.
    pub(super) type_name: String,
    /// The records as chunks, and their places in the result, in the order of the records.
    pub(super) metadata: Metadata,
}

/// Reads the manifest of the split proto in `source`; None when the first record is not a manifest.
pub(super) fn read(source: &dyn Source, limits: &Limits) -> Result<Option<XlaSplit>> {
    let mut chunks = Chunks::new(source, 0);
    let Some((first, record)) = opening(&mut chunks, source, limits)? else { return Ok(None) };
    let Some(mut split) = manifest(&record, limits)? else { return Ok(None) };
    let mut chunk = first;
    let mut index = 1;
    for record in &mut split.metadata.chunks {
        while index >= chunk.header.records {
            let next = chunks.next().transpose()?;
            chunk = next.ok_or_else(|| {
                WireError::new(Kind::Inconsistent, "the file has fewer records than the manifest announces")
            })?;
            index = 0;
        }
        record.offset = chunk.position(index);
        index += 1;
    }
    // Any first record with a dotted name parses as a manifest. If the manifest uses no record and the file ends there,
    // the file is an empty proto. If records follow, the first record is a plain record.
    let used = !split.metadata.message.fields.is_empty();
    let mut more = || index < chunk.header.records || chunks.any(|next| next.is_ok_and(|next| next.header.records > 0));
    Ok(if used || !more() { Some(split) } else { None })
}

/// The first chunk that has records, and its first record. Returns None when they cannot be read, because another
/// reader of the file reports the problem. Errors of the source are returned.
fn opening(
    chunks: &mut Chunks<'_, dyn Source + '_>,
    source: &dyn Source,
    limits: &Limits,
) -> Result<Option<(ChunkRef, Vec<u8>)>> {
    match first_with_record(chunks, source, limits) {
        Err(error) if error.kind() != Kind::Source => Ok(None),
        found => found,
    }
}

fn first_with_record(
    chunks: &mut Chunks<'_, dyn Source + '_>,
    source: &dyn Source,
    limits: &Limits,
) -> Result<Option<(ChunkRef, Vec<u8>)>> {
    while let Some(chunk) = chunks.next().transpose()? {
        if chunk.header.records > 0 {
            return Ok(first_record(source, &chunk, limits)?.map(|record| (chunk, record)));
        }
    }
    Ok(None)
}

/// The first record of `chunk`; None when it is too long to be a manifest.
fn first_record(source: &dyn Source, chunk: &ChunkRef, limits: &Limits) -> Result<Option<Vec<u8>>> {
    if let Some(spans) = riegeli::spans(source, chunk, limits).map_err(|fault| fault.error)? {
        let mut rope = RopeBuilder::default();
        spans.extents(chunk, 0, SourceId(0), &mut rope);
        let rope: Rope = rope.finish();
        let Some(len) = usize::try_from(rope.len()).ok().filter(|_| rope.len() <= LONGEST) else { return Ok(None) };
        return Ok(Some(RopeSource::new(&rope, &[source]).read(0, len)?.into_owned()));
    }
    if chunk.header.decoded_size > LONGEST.min(description(source)) {
        return Ok(None);
    }
    let decoded = riegeli::decode(source, chunk, limits).map_err(|fault| fault.error)?;
    Ok(decoded.get(0).map(<[u8]>::to_vec))
}

/// Parses `record` as a manifest, which has a dotted type name and no unknown fields. Returns None for anything else.
fn manifest(record: &[u8], limits: &Limits) -> Result<Option<XlaSplit>> {
    let mut split = XlaSplit::default();
    let mut entries = Vec::new();
    let mut fields = Fields::new(record, 0, limits.depth);
    while let Ok(Some(field)) = fields.next_field() {
        match (field.header.number, field.header.wire) {
            (1, Wire::Len) => split.type_name = String::from_utf8_lossy(field.content).into_owned(),
            (2, Wire::Len) => entries.push(field),
            _ => return Ok(None),
        }
    }
    if !is_type_name(&split.type_name) || !matches!(fields.next_field(), Ok(None)) {
        return Ok(None);
    }
    for (number, entry) in (0..).zip(entries) {
        let kind = match kind_of(&entry) {
            Err(error) if error.kind() == Kind::Corrupt => return Ok(None),
            kind => kind?,
        };
        let (kind, tags) = match kind {
            Some(Entry::Merged) => (ChunkKind::Message, Some(Vec::new())),
            Some(Entry::Field(field)) => (ChunkKind::Bytes, Some(vec![Tag::Field(field)])),
            None => (ChunkKind::Unset, None),
        };
        split.metadata.chunks.push(ChunkInfo { kind, size: 0, offset: 0 });
        let message = ChunkedMessage { chunk: Some(number), fields: Vec::new() };
        split.metadata.message.fields.extend(tags.map(|tags| ChunkedField { tags, message }));
    }
    Ok(Some(split))
}

fn is_type_name(name: &str) -> bool {
    let word = |word: &str| {
        let first = word.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        first && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.contains('.') && name.split('.').all(word)
}

/// The role of a record.
enum Entry {
    /// A message, merged into the result.
    Merged,
    /// The value of the field with this number.
    Field(u32),
}

/// The role of a record according to `entry` of a manifest; None for an unknown role, whose record is skipped.
fn kind_of(entry: &InMemory<'_>) -> Result<Option<Entry>> {
    let mut kind = None;
    let mut fields = below(entry);
    while let Some(field) = fields.next_field()? {
        match (field.header.number, field.header.wire) {
            (2, Wire::Len) => kind = Some(Entry::Merged),
            (3, Wire::Len) => kind = Some(Entry::Field(overridden(&field)?)),
            _ => {}
        }
    }
    Ok(kind)
}

/// The number of the field whose value is a record; only fields of the result itself are supported.
fn overridden(message: &InMemory<'_>) -> Result<u32> {
    let (mut path, mut kind) = (Vec::new(), 0);
    let mut fields = below(message);
    while let Some(field) = fields.next_field()? {
        match (field.header.number, field.header.wire) {
            (1, Wire::Len) => path.push(field),
            (2, Wire::Varint) => kind = field.header.value,
            _ => {}
        }
    }
    let refused = |what: &str| WireError::new(Kind::Unsupported, what);
    let [part] = path.as_slice() else {
        return Err(refused("the manifest of the split proto sets an unknown field of the result"));
    };
    if kind != TYPE_STRING {
        return Err(refused("the manifest of the split proto sets a field with an unsupported tag"));
    }
    let mut number = 0;
    let mut fields = below(part);
    while let Some(field) = fields.next_field()? {
        match (field.header.number, field.header.wire) {
            (1, Wire::Varint) => number = field.header.value,
            (2..=4, _) => {
                return Err(refused(
                    "the manifest of the split proto sets an element of a repeated field, which XLA does not read",
                ));
            }
            _ => {}
        }
    }
    u32::try_from(number).map_err(|_| refused("the manifest of the split proto has an invalid field number"))
}

fn below<'a>(field: &InMemory<'a>) -> Fields<'a> {
    Fields::new(field.content, field.end - field.content.len() as u64, 1)
}
