//! Riegeli and ArrayRecord files made of a stream: chunks are uncompressed, and records are extents of the stream.

use std::ops::Range;

use super::array_record::{Place, footer};
use super::framing::Framing;
use super::output::take;
use crate::error::{Result, WireError};
use crate::limits::Limits;
use crate::riegeli::{Framer, record_hasher};
use crate::rope::{Rope, RopeBuilder};
use crate::source::Source;
use crate::varint;

/// The framing of the streams of which such files are made.
pub const MADE_OF: Framing = Framing::U64Le;

const HEAD: u64 = 8;
/// Bytes read at a time, and also the bytes of records that fill a riegeli chunk.
const CHUNK: u64 = 1 << 20;
/// Most records of a riegeli chunk, because each record needs its own numeric position in the file.
const RECORDS: usize = 1 << 14;

/// A file in `framing`, which is riegeli or ArrayRecord. Its records are those of `stream`, which are framed by
/// [`MADE_OF`]. `bytes` are the bytes of `stream`; all of them are read for the checksums of chunks. Fails with a
/// `Limit` error for more than `limits.held` bytes.
pub fn chunked(stream: &Rope, bytes: &dyn Source, framing: Framing, limits: &Limits) -> Result<Rope> {
    let mut room = limits.held;
    take(&mut room, stream.len())?;
    let mut file = File::new(stream, bytes, framing, limits);
    let mut at = 0;
    while at < stream.len() {
        bytes.carry_on()?;
        let size = u64::from_le_bytes(file.read.bytes(at, HEAD)?.try_into().unwrap_or_default());
        let end = (at + HEAD).checked_add(size).filter(|end| *end <= stream.len());
        let end = end.ok_or_else(|| WireError::corrupt(at, "a record extends past the end of the stream"))?;
        file.record(at + HEAD..end)?;
        at = end;
    }
    file.finish()
}

struct File<'a> {
    stream: &'a Rope,
    framing: Framing,
    limits: &'a Limits,
    framer: Framer,
    chunks: Vec<Place>,
    read: Window<'a>,
    sizes: Vec<u8>,
    count: usize,
    values: RopeBuilder,
    hashed: Vec<u8>,
}

/// The bytes of a stream, read in order.
struct Window<'a> {
    source: &'a dyn Source,
    begin: u64,
    held: Vec<u8>,
}

impl Window<'_> {
    /// The `len` bytes at `at`.
    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8]> {
        if at < self.begin || at + len > self.begin + self.held.len() as u64 {
            let left = self.source.len().saturating_sub(at);
            self.held.resize(usize::try_from(len.max(CHUNK).min(left)).unwrap_or(0), 0);
            self.begin = at;
            self.source.read_into(at, &mut self.held)?;
        }
        let start = usize::try_from(at - self.begin).unwrap_or(usize::MAX);
        Ok(self.held.get(start..).and_then(|rest| rest.get(..usize::try_from(len).ok()?)).unwrap_or_default())
    }
}

impl<'a> File<'a> {
    fn new(stream: &'a Rope, source: &'a dyn Source, framing: Framing, limits: &'a Limits) -> Self {
        let (framer, values) = (Framer::new(limits), RopeBuilder::new(limits));
        let (chunks, sizes, hashed) = Default::default();
        let read = Window { source, begin: 0, held: Vec::new() };
        Self { stream, framing, limits, framer, chunks, read, sizes, count: 0, values, hashed }
    }

    fn record(&mut self, range: Range<u64>) -> Result<()> {
        let size = range.end - range.start;
        let full = self.hashed.len() as u64 + size > CHUNK || self.count == RECORDS;
        if self.count > 0 && (full || self.framing == Framing::ArrayRecord) {
            self.close()?;
        }
        if self.count == 0 && size > CHUNK {
            return self.large(range);
        }
        self.hashed.extend_from_slice(self.read.bytes(range.start, size)?);
        varint::write(size, &mut self.sizes);
        self.values.rope(&self.stream.slice(range));
        self.count += 1;
        self.values.check()
    }

    /// Appends a large record as its own chunk; the record is read in pieces.
    fn large(&mut self, range: Range<u64>) -> Result<()> {
        let mut hasher = record_hasher(range.end - range.start);
        let mut at = range.start;
        while at < range.end {
            let len = CHUNK.min(range.end - at);
            hasher.update(self.read.bytes(at, len)?);
            at += len;
        }
        let offset = self.framer.push(&self.stream.slice(range.clone()), hasher.finish())?;
        self.note(Place { offset, size: range.end - range.start, records: 1 });
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let values = std::mem::replace(&mut self.values, RopeBuilder::new(self.limits)).finish();
        let records = std::mem::take(&mut self.count) as u64;
        let offset = self.framer.push_all(records, &self.sizes, &values, &self.hashed)?;
        self.sizes.clear();
        self.hashed.clear();
        self.note(Place { offset, size: values.len(), records });
        Ok(())
    }

    /// Keeps a chunk's place for the footer, if the format has a footer.
    fn note(&mut self, place: Place) {
        if self.framing == Framing::ArrayRecord {
            self.chunks.push(place);
        }
    }

    fn finish(mut self) -> Result<Rope> {
        if self.count > 0 {
            self.close()?;
        }
        if self.framing == Framing::ArrayRecord {
            footer(&self.chunks, &mut self.framer)?;
        }
        Ok(self.framer.finish())
    }
}
