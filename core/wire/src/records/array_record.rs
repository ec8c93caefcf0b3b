//! Index of an ArrayRecord file: a riegeli file whose footer says where its chunks lie.
//!
//! The last block begins with a chunk that says where the footer chunk is; the first record of that is a description, and
//! each of the others the offset and the record count of one chunk. So an index takes three reads, whatever the count.

use super::index::{Builder, Index};
use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::header::Wire;
use crate::limits::Limits;
use crate::riegeli::{self, Decoded};
use crate::source::Source;

/// Bytes of the block that the last chunk begins.
const LAST_BLOCK: u64 = 1 << 16;
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;
const VERSION: u64 = 1;

/// The index of all of `source`; `Corrupt` for a footer that is damaged or does not fit together.
pub(super) fn index(source: &dyn Source, limits: &Limits) -> Result<Index> {
    let last =
        source.len().checked_sub(LAST_BLOCK).ok_or_else(|| damaged(0, "the file is shorter than its last block"))?;
    let [footer_at, magic, _] = numbers(chunk(source, last, limits)?.get(0).unwrap_or_default(), last)?;
    if magic != MAGIC || footer_at >= last {
        return Err(damaged(last, "the last block does not say where the footer is"));
    }
    let footer = chunk(source, footer_at, limits)?;
    let (version, chunks, records) = description(footer.get(0).unwrap_or_default(), footer_at)?;
    if version != VERSION {
        let message =
            format!("an ArrayRecord file of version {version} is not known; framing riegeli reads its chunks");
        return Err(WireError::new(Kind::Unsupported, message).at(footer_at));
    }
    let mut builder = Builder::behind(Index::empty(super::Framing::ArrayRecord), limits);
    let mut before = 0;
    for number in 1..footer.len() {
        let [offset, _, count] = numbers(footer.get(number).unwrap_or_default(), footer_at)?;
        if offset <= before || offset >= footer_at {
            return Err(damaged(footer_at, "chunks do not lie in order before it"));
        }
        builder.push_chunk(count, offset, footer_at)?;
        before = offset;
    }
    let index = builder.finish(source.len());
    if (footer.len() as u64).checked_sub(1) != Some(chunks) || index.count() != records {
        return Err(damaged(footer_at, "it counts other chunks or records than it lists"));
    }
    Ok(index)
}

fn chunk(source: &dyn Source, at: u64, limits: &Limits) -> Result<Decoded> {
    let chunk = riegeli::chunk_at(source, at)?.ok_or_else(|| damaged(at, "the file ends before it"))?;
    Ok(riegeli::decode(source, &chunk, limits)?)
}

/// Version, number of chunks and number of records.
fn description(message: &[u8], at: u64) -> Result<(u64, u64, u64)> {
    let mut fields = Fields::new(message, at, 1);
    while let Some(field) = fields.next_field()? {
        if field.header.number == 1 && field.header.wire == Wire::Len {
            let [version, chunks, records] = numbers(field.content, at)?;
            return Ok((version, chunks, records));
        }
    }
    Err(damaged(at, "it has no description"))
}

/// The varints of fields 1 to 3 of `message`; 0 for one that is absent.
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
        format!("the footer of the ArrayRecord file is damaged: {reason}; framing riegeli reads without it"),
    )
}
