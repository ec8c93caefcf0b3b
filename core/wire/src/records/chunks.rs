//! The index of a riegeli file: the chunks that contain records, and the number of the first record in each chunk. Its
//! look-ups also serve ArrayRecord files.

use super::index::{Builder, Index, broken};
use crate::error::{Result, WireError};
use crate::limits::Limits;
use crate::riegeli::{ChunkRef, chunk_at};
use crate::source::Source;

/// The index of a riegeli file; `index` covers its beginning, so only later chunk headers are read.
pub fn index_behind(index: Index, source: &dyn Source, limits: &Limits) -> Result<Index> {
    let (size, mut at) = (source.len(), index.end());
    let mut builder = Builder::behind(index, limits);
    loop {
        source.carry_on()?;
        match chunk_at(source, at) {
            Ok(Some(chunk)) => {
                builder.push_chunk(chunk.header.records, chunk.begin, chunk.end)?;
                at = chunk.end;
            }
            Ok(None) => return Ok(builder.finish(size)),
            Err(fault) if fault.resume == crate::riegeli::Resume::Never => return Err(fault.error),
            Err(fault) => {
                builder.fail(at, fault.error.message().to_owned());
                return Ok(builder.finish(size));
            }
        }
    }
}

impl Index {
    /// The chunk with record `number`, and the number of the chunk's first record. Fails with a `Corrupt` error if the
    /// chunk has another number of records than the index says.
    pub(super) fn chunk<S: Source + ?Sized>(&self, number: u64, source: &S) -> Result<(ChunkRef, u64)> {
        self.check(number)?;
        let next = self.rows.partition_point(|row| row.first <= number);
        let row = next.checked_sub(1).and_then(|row| self.rows.get(row)).ok_or_else(broken)?;
        let count = self.rows.get(next).map_or(self.count, |next| next.first) - row.first;
        let chunk = chunk_at(source, row.offset)?.ok_or_else(broken)?;
        if chunk.header.records == count {
            return Ok((chunk, row.first));
        }
        let message = format!("the chunk has {} records, but the index of the file says {count}", chunk.header.records);
        Err(WireError::corrupt(row.offset, message))
    }
}
