//! A reader of records, in order or by position, which can recover from damage.

mod recover;

pub use recover::Skipped;

use super::data;
use super::decode::{Decoded, decode};
use super::fault::{Fault, Resume};
use super::header::Hasher;
use super::records;
use super::walk::{self, ChunkRef, Place, Window, chunk_at};
use crate::error::WireError;
use crate::limits::Limits;
use crate::source::Source;

type Result<T, E = WireError> = std::result::Result<T, E>;

/// Size in bytes from which the only record of an uncompressed chunk is read directly into the caller's buffer.
const DIRECT: u64 = 1 << 15;

/// The next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The record is in memory; see [`RecordReader::held`].
    Held,
    /// The record has this many bytes. The caller must allocate a buffer and call [`RecordReader::read_direct`].
    Direct(u64),
}

#[derive(Debug)]
struct Open {
    chunk: ChunkRef,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Decoded(Decoded),
    /// A single record at this offset of the data with this size, and a hasher that got the bytes before the record.
    Direct(u64, u64, Hasher),
}

/// Reads the records of a file.
#[derive(Debug)]
pub struct RecordReader<S> {
    source: S,
    limits: Limits,
    begin: u64,
    index: u64,
    open: Option<Open>,
    last: Option<Place>,
    fault: Option<(Resume, String)>,
    truncated: bool,
}

impl<S: Source> RecordReader<S> {
    /// Makes a reader that is positioned before the first record of `source`.
    pub fn new(source: S, limits: Limits) -> Self {
        Self { source, limits, begin: 0, index: 0, open: None, last: None, fault: None, truncated: false }
    }

    /// The source of the records.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The position of the next record, whether or not it exists: the start of its chunk, and its index in the chunk.
    pub fn position(&self) -> (u64, u64) {
        match &self.open {
            Some(open) if self.index < open.chunk.header.records => (open.chunk.begin, self.index),
            Some(open) => (open.chunk.end, 0),
            None => (self.begin, 0),
        }
    }

    /// The position of the record that was read last.
    pub fn last_position(&self) -> Option<(u64, u64)> {
        self.last.map(|place| (place.begin, place.index))
    }

    /// True if [`RecordReader::next`] would return a record that is already in memory.
    pub fn is_ready(&self) -> bool {
        let open = self.open.as_ref().filter(|open| self.index < open.chunk.header.records);
        open.is_some_and(|open| matches!(open.body, Body::Decoded(_)))
    }

    /// Moves to the next record; None at the end. After an error, [`RecordReader::recover`] may be able to continue. A
    /// file that ends inside a chunk also gives None, because it may still be growing; [`RecordReader::close`] reports
    /// this.
    #[allow(clippy::should_implement_trait, reason = "what it gives lives in the reader")]
    pub fn next(&mut self) -> Result<Option<Next>> {
        self.fault = None;
        loop {
            if let Some(next) = self.take() {
                return Ok(Some(next));
            }
            if !self.open_next()? {
                return Ok(None);
            }
        }
    }

    fn take(&mut self) -> Option<Next> {
        let open = self.open.as_ref().filter(|open| self.index < open.chunk.header.records)?;
        if let Body::Direct(_, len, _) = open.body {
            return Some(Next::Direct(len));
        }
        self.last = Some(Place { begin: open.chunk.begin, index: self.index });
        self.index += 1;
        Some(Next::Held)
    }

    /// The current record, if [`RecordReader::next`] returned [`Next::Held`].
    pub fn held(&self) -> &[u8] {
        let index = self.index.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        match self.open.as_ref().map(|open| &open.body) {
            Some(Body::Decoded(decoded)) => index.and_then(|index| decoded.get(index)).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Reads the record that [`RecordReader::next`] announced into `into` and checks the hash; `into` must have its
    /// size.
    pub fn read_direct(&mut self, into: &mut [u8]) -> Result<()> {
        let Some(Open { chunk, body: Body::Direct(offset, _, hasher) }) = &self.open else { return Ok(()) };
        let (chunk, offset, mut hasher) = (*chunk, *offset, hasher.clone());
        let done =
            data::fill(&self.source, &chunk, offset, into, &mut hasher).and_then(|()| data::check_hash(&chunk, hasher));
        if let Err(fault) = done {
            self.begin = chunk.begin;
            self.open = None;
            return Err(self.note(fault));
        }
        self.last = Some(Place { begin: chunk.begin, index: self.index });
        self.index += 1;
        Ok(())
    }

    /// Opens the next chunk; returns false at the end of the file.
    fn open_next(&mut self) -> Result<bool> {
        if let Some(open) = self.open.take() {
            self.begin = open.chunk.end;
        }
        self.index = 0;
        self.truncated = false;
        match self.load() {
            Ok(open) => {
                self.open = open;
                Ok(self.open.is_some())
            }
            Err(fault) if fault.truncated => {
                self.truncated = true;
                Ok(false)
            }
            Err(fault) => Err(self.note(fault)),
        }
    }

    fn load(&self) -> Result<Option<Open>, Fault> {
        let Some(chunk) = chunk_at(&self.source, self.begin)? else { return Ok(None) };
        if chunk.header.records == 1
            && chunk.header.data_size >= DIRECT
            && let Some((spans, front)) = records::front(&self.source, &chunk, &self.limits)?
            && let Some(range) = spans.get(0)
        {
            let mut hasher = Hasher::default();
            hasher.update(&front);
            let body = Body::Direct(range.start, range.end - range.start, hasher);
            return Ok(Some(Open { chunk, body }));
        }
        let has_records = chunk.header.records > 0;
        let decoded = if has_records { decode(&self.source, &chunk, &self.limits)? } else { self.skip(&chunk)? };
        Ok(Some(Open { chunk, body: Body::Decoded(decoded) }))
    }

    /// Checks a chunk that has no records instead of decoding it.
    fn skip(&self, chunk: &ChunkRef) -> Result<Decoded, Fault> {
        data::verify(&self.source, chunk).map(|()| Decoded::default())
    }

    /// Saves the position at which reading can continue after `fault`.
    fn note(&mut self, fault: Fault) -> WireError {
        let offset = fault.error.offset().map(|offset| format!("; at byte {offset}")).unwrap_or_default();
        self.fault = Some((fault.resume, format!("{}{offset}", fault.error.message())));
        fault.error
    }

    /// Moves to record `index` of the chunk at `begin`, or after the last record of this chunk.
    pub fn seek(&mut self, begin: u64, index: u64) -> Result<()> {
        self.fault = None;
        if self.open.as_ref().is_none_or(|open| open.chunk.begin != begin) {
            let size = self.source.len();
            if begin > size {
                return Err(walk::beyond(begin, size).error);
            }
            (self.open, self.begin, self.index) = (None, begin, 0);
        }
        self.begin = begin;
        if index > 0 && self.open.is_none() && !self.open_next()? {
            return Ok(());
        }
        let records = self.open.as_ref().map_or(0, |open| open.chunk.header.records);
        self.index = index.min(records);
        Ok(())
    }

    /// Moves to the record at the numeric position `numeric`, or to the next record.
    pub fn seek_numeric(&mut self, numeric: u64) -> Result<()> {
        self.fault = None;
        let mut at = self.position().0;
        let found = Window::new(&self.source, numeric).map_err(Fault::from);
        match found.and_then(|window| walk::seek(&window, numeric, &mut at)) {
            Ok(place) => self.seek(place.begin, place.index),
            Err(fault) => {
                (self.open, self.begin, self.index) = (None, at, 0);
                Err(self.note(fault))
            }
        }
    }

    /// Moves back by one record; returns false when no record is before.
    pub fn seek_back(&mut self) -> Result<bool> {
        self.fault = None;
        if let Some(index) = self.index.checked_sub(1).filter(|_| self.open.is_some()) {
            self.index = index;
            return Ok(true);
        }
        let begin = self.position().0.min(self.source.len());
        match walk::record_before(&self.source, begin)? {
            Some((chunk, index)) => self.seek(chunk.begin, index).map(|()| true),
            None => Ok(false),
        }
    }

    /// True if the file begins like a riegeli file.
    pub fn check_file_format(&self) -> Result<bool> {
        match chunk_at(&self.source, 0) {
            Ok(chunk) => Ok(chunk.is_some()),
            Err(fault) if fault.resume == Resume::Never => Err(fault.error),
            Err(_) => Ok(false),
        }
    }

    /// The serialized `RecordsMetadata`; None for a file without it. The position does not change.
    pub fn metadata(&self) -> Result<Option<Vec<u8>>> {
        Ok(super::decode::metadata(&self.source, &self.limits)?)
    }

    /// Fails when reading stopped inside a chunk because the file ends there.
    pub fn close(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.truncated) {
            return Ok(());
        }
        match chunk_at(&self.source, self.begin) {
            Err(fault) => Err(self.note(fault)),
            Ok(_) => Ok(()),
        }
    }
}
