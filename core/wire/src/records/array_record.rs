//! The index and footer of an ArrayRecord file: a riegeli file whose footer contains the positions of its chunks.
//!
//! The last block begins with a chunk that contains the position of the footer chunk. The first record of the footer
//! chunk is a description. Each other record is the offset and the record count of one chunk. So making an index takes
//! three reads, however many records the file has.

use super::index::{Builder, Index};
use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::header::{Wire, put_field};
use crate::limits::Limits;
use crate::riegeli::{self, Decoded, Framer};
use crate::rope::Rope;
use crate::source::Source;
use crate::varint;

/// Bytes of the last block, which begins with the last chunk.
const LAST_BLOCK: u64 = 1 << 16;
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;
const VERSION: u64 = 1;
/// Field 1 of the footer's first record, which is the description, and its field 4, the writer's options.
const DESCRIPTION_TAG: u8 = 1 << 3 | 2;
const OPTIONS_TAG: u8 = 4 << 3 | 2;
const OPTIONS: &[u8] = b"group_size:1,transpose:false,pad_to_block_boundary:false,uncompressed";

/// A chunk of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub offset: u64,
    /// The size of its records in bytes.
    pub size: u64,
    pub records: u64,
}

/// The index of the whole `source`; fails with a `Corrupt` error for a damaged or inconsistent footer.
pub(super) fn index(source: &dyn Source, limits: &Limits) -> Result<Index> {
    let last =
        source.len().checked_sub(LAST_BLOCK).ok_or_else(|| damaged(0, "the file is shorter than its last block"))?;
    let [footer_at, magic, _] = numbers(chunk(source, last, limits)?.get(0).unwrap_or_default(), last)?;
    if magic != MAGIC || footer_at >= last {
        return Err(damaged(last, "the last block does not give the footer's position"));
    }
    let footer = chunk(source, footer_at, limits)?;
    let (version, chunks, records) = description(footer.get(0).unwrap_or_default(), footer_at)?;
    if version != VERSION {
        let message = format!("ArrayRecord version {version} is not supported; use framing riegeli to read its chunks");
        return Err(WireError::new(Kind::Unsupported, message).at(footer_at));
    }
    let mut builder = Builder::behind(Index::empty(super::Framing::ArrayRecord), limits);
    let mut before = 0;
    for number in 1..footer.len() {
        let [offset, _, count] = numbers(footer.get(number).unwrap_or_default(), footer_at)?;
        if offset <= before || offset >= footer_at {
            return Err(damaged(footer_at, "the listed chunks are out of order"));
        }
        builder.push_chunk(count, offset, footer_at)?;
        before = offset;
    }
    let index = builder.finish(source.len());
    if (footer.len() as u64).checked_sub(1) != Some(chunks) || index.count() != records {
        return Err(damaged(footer_at, "the footer lists other numbers of chunks or records than the file has"));
    }
    Ok(index)
}

/// Appends the footer chunk and the last block to `file`, whose records are in `chunks`.
pub(super) fn footer(chunks: &[Place], file: &mut Framer) -> Result<()> {
    let records = chunks.iter().map(|chunk| chunk.records).sum();
    let mut first = message(&[VERSION, chunks.len() as u64, records]);
    // These are options with which ArrayRecord's writer would make the same file; some readers show them.
    put_field(OPTIONS_TAG, OPTIONS, &mut first);
    let mut described = Vec::new();
    put_field(DESCRIPTION_TAG, &first, &mut described);
    let places = chunks.iter().map(|chunk| message(&[chunk.offset, chunk.size, chunk.records]));
    let footer_at = put(&std::iter::once(described).chain(places).collect::<Vec<_>>(), file)?;
    file.pad_to_block()?;
    let end = message(&[footer_at, MAGIC]);
    // ArrayRecord's writer writes it three times too, so that a reader can take an undamaged copy.
    put(&[end.clone(), end.clone(), end], file)?;
    file.pad_to_block()
}

/// Appends a chunk of `records` and returns its position.
fn put(records: &[Vec<u8>], file: &mut Framer) -> Result<u64> {
    let mut sizes = Vec::new();
    records.iter().for_each(|record| varint::write(record.len() as u64, &mut sizes));
    let bytes = records.concat();
    file.push_all(records.len() as u64, &sizes, &Rope::literal(&bytes), &bytes)
}

/// The message whose fields 1, 2 and so on are `values`.
fn message(values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (value, tag) in values.iter().zip((8u8..).step_by(8)) {
        bytes.push(tag);
        varint::write(*value, &mut bytes);
    }
    bytes
}

fn chunk(source: &dyn Source, at: u64, limits: &Limits) -> Result<Decoded> {
    let chunk = riegeli::chunk_at(source, at)?.ok_or_else(|| damaged(at, "the file ends before the footer"))?;
    Ok(riegeli::decode(source, &chunk, limits)?)
}

/// The version, the number of chunks and the number of records.
fn description(message: &[u8], at: u64) -> Result<(u64, u64, u64)> {
    let mut fields = Fields::new(message, at, 1);
    while let Some(field) = fields.next_field()? {
        if field.header.number == 1 && field.header.wire == Wire::Len {
            let [version, chunks, records] = numbers(field.content, at)?;
            return Ok((version, chunks, records));
        }
    }
    Err(damaged(at, "the footer lacks the metadata of the file"))
}

/// The varints of the fields 1 to 3 of `message`; 0 for a missing field.
fn numbers(message: &[u8], at: u64) -> Result<[u64; 3]> {
    let mut found = [0; 3];
    let mut fields = Fields::new(message, at, 1);
    while let Some(field) = fields.next_field()? {
        let place = (field.header.number as usize).checked_sub(1).and_then(|number| found.get_mut(number));
        if let Some(place) = place.filter(|_| field.header.wire == Wire::Varint) {
            *place = field.header.value;
        }
    }
    Ok(found)
}

fn damaged(at: u64, reason: &str) -> WireError {
    WireError::corrupt(
        at,
        format!("the footer of the ArrayRecord file is damaged: {reason}; use framing riegeli to read without it"),
    )
}
