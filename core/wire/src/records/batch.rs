//! Records in memory, one batch at a time; neighbouring records are read together.

use std::ops::Range;
use std::sync::PoisonError;

use super::framing::{Framing, masked};
use super::output::Reading;
use crate::error::{Kind, Result, WireError};
use crate::rope::Rope;
use crate::source::{RopeSource, Source};

/// Most bytes of memory kept between batches.
const SPARE: usize = 2 << 20;

/// Most records of a batch from a chunk, because empty records also need memory.
const MOST_OF_CHUNK: usize = 1 << 16;

/// Consecutive records.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Batch {
    /// The records, in order.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| self.bytes.get(place.clone()).unwrap_or_default())
    }
}

impl Reading {
    /// As many records of `range` as have up to `most` bytes, but at least one. In a file with chunks, all are from one
    /// chunk. Fails with a `Corrupt` error for a TFRecord that differs from its checksum.
    pub fn read(&self, source: &dyn Source, range: Range<u64>, most: u64) -> Result<Batch> {
        if range.is_empty() {
            return Ok(Batch::default());
        }
        if self.index().framing().is_chunked() {
            return self.read_chunk(source, range, most);
        }
        let stop = self.index().within(range.start, most)?.min(range.end);
        let start = self.index().start(range.start)?;
        let len = self.index().start(stop)? - start;
        if len > self.limits().held && self.index().framing().wrapper().is_some() {
            let message =
                format!("reading one record needs {len} bytes of a compressed stream in memory; raise the limit");
            return Err(WireError::new(Kind::Limit, message).at(start));
        }
        let mut bytes = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
        bytes.resize(length(len)?, 0);
        self.fill(source, start, &mut bytes)?;
        let (mut places, checked) = (Vec::new(), self.index().framing().inner() == Framing::TfRecord);
        self.index().each(range.start..stop, |place| {
            let at = (place.content - start) as usize..(place.content_end - start) as usize;
            let sum = bytes.get(at.end..at.end + 4).filter(|_| checked);
            let content = bytes.get(at.clone()).unwrap_or_default();
            if sum.is_some_and(|sum| sum != masked(crc32c::crc32c(content)).to_le_bytes()) {
                return Err(WireError::corrupt(place.start, "a record does not match its checksum"));
            }
            places.push(at);
            Ok(())
        })?;
        Ok(Batch { bytes, places })
    }

    /// Takes back the memory of a batch for the next batch.
    pub fn give_back(&self, batch: Batch) {
        if batch.bytes.capacity() <= SPARE {
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = batch.bytes;
        }
    }

    fn read_chunk(&self, source: &dyn Source, range: Range<u64>, most: u64) -> Result<Batch> {
        let mut batch = Batch::default();
        self.of_chunk(source, range, |record| {
            let held = (batch.bytes.len() as u64).saturating_add(record.len());
            let fits = batch.places.is_empty() || (held <= most && batch.places.len() < MOST_OF_CHUNK);
            if fits {
                batch.take(source, &record)?;
            }
            Ok(fits)
        })?;
        Ok(batch)
    }
}

impl Batch {
    fn take(&mut self, source: &dyn Source, record: &Rope) -> Result<()> {
        let (sources, start) = ([source], self.bytes.len());
        self.bytes.extend_from_slice(&RopeSource::new(record, &sources).read(0, length(record.len())?)?);
        self.places.push(start..self.bytes.len());
        Ok(())
    }
}

fn length(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| WireError::corrupt(0, "a record does not fit into memory"))
}
