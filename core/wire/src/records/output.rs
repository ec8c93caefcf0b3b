//! Records as ropes: extents where the wanted bytes are stored as such, literals for heads and for decoded records.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::framing::{Framing, masked};
use super::index::{Index, broken};
use crate::error::{Kind, Result, WireError};
use crate::inflate::{Inflated, Inflater};
use crate::limits::Limits;
use crate::riegeli::{self, Decoded};
use crate::rope::{IMAGE, Piece, Rope, RopeBuilder};
use crate::source::{RopeSource, Source};

/// Bytes that are read at a time for the checksum of a record.
const STRIDE: u64 = 1 << 20;

/// The form of the records in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Only the records, one after the other.
    Bare,
    /// Each record with a frame, but not in chunks.
    Framed(Framing),
}

/// A reader for the records of one stream, which keeps the last decoded chunk in memory.
#[derive(Debug)]
pub struct Reading {
    index: Index,
    limits: Limits,
    decoded: Mutex<Option<(u64, Decoded)>>,
    inflater: Mutex<Option<Inflater>>,
    /// The memory of the last batch that was given back; new memory would cost as much as the read.
    pub(super) spare: Mutex<Vec<u8>>,
}

impl Reading {
    /// Makes a reader for the stream of `index`.
    pub fn new(index: Index, limits: Limits) -> Self {
        Self { index, limits, decoded: Mutex::default(), inflater: Mutex::default(), spare: Mutex::default() }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The records `range` of `source` in `form`. Uncompressed records are not read, unless their form becomes
    /// TFRecord, whose checksums need the bytes. Fails with a `Limit` error if more than `limits.held` bytes must be
    /// read.
    pub fn rope(&self, source: &dyn Source, range: Range<u64>, form: Form) -> Result<Rope> {
        self.ropes(source, std::slice::from_ref(&range), form)
    }

    /// Like [`Reading::rope`], for several ranges that share the limit.
    pub fn ropes(&self, source: &dyn Source, ranges: &[Range<u64>], form: Form) -> Result<Rope> {
        let (mut out, mut room) = (RopeBuilder::new(&self.limits), self.limits.held);
        for range in ranges {
            self.append(source, range.clone(), form, &mut room, &mut out)?;
        }
        out.check()?;
        Ok(out.finish())
    }

    fn append(
        &self,
        source: &dyn Source,
        range: Range<u64>,
        form: Form,
        room: &mut u64,
        out: &mut RopeBuilder,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.index.check(range.end - 1)?;
        if self.index.framing().is_chunked() {
            return self.append_chunks(source, range, form, room, out);
        }
        if self.index.framing().wrapper().is_some() {
            return self.append_inflated(source, range, form, room, out);
        }
        if form == Form::Framed(self.index.framing()) {
            let (start, end) = (self.index.start(range.start)?, self.index.start(range.end)?);
            out.extent(IMAGE, start, end - start);
            return Ok(());
        }
        self.index.each(range, |place| {
            let record = Rope::extent(IMAGE, place.content, place.content_end - place.content);
            put(source, &record, form, room, out)
        })
    }

    fn append_inflated(
        &self,
        source: &dyn Source,
        range: Range<u64>,
        form: Form,
        room: &mut u64,
        out: &mut RopeBuilder,
    ) -> Result<()> {
        let mut number = range.start;
        while number < range.end {
            let batch = self.read(source, number..range.end, STRIDE)?;
            for record in batch.records() {
                take(room, record.len() as u64)?;
                put(source, &Rope::literal(record), form, room, out)?;
                number += 1;
            }
            self.give_back(batch);
        }
        Ok(())
    }

    /// Fills `buffer` with the bytes at `offset` of the stream, which may be compressed in `source`.
    pub(super) fn fill(&self, source: &dyn Source, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let Some(wrapper) = self.index.framing().wrapper() else { return source.read_into(offset, buffer) };
        let (points, last) = (&self.index.points, &self.inflater);
        Inflated { file: source, wrapper, points, len: self.index.size(), last }.read_into(offset, buffer)
    }

    fn append_chunks(
        &self,
        source: &dyn Source,
        range: Range<u64>,
        form: Form,
        room: &mut u64,
        out: &mut RopeBuilder,
    ) -> Result<()> {
        let mut number = range.start;
        while number < range.end {
            source.carry_on()?;
            number = self.of_chunk(source, number..range.end, |record| {
                let literals = record.pieces().filter(|piece| matches!(piece, Piece::Literal(_)));
                take(room, literals.map(|piece| piece.len()).sum())?;
                put(source, &record, form, room, out).map(|()| true)
            })?;
        }
        Ok(())
    }

    /// Calls `give` with those records of `range` that are in the chunk of its first record, until `give` returns
    /// false. Returns the number of the first record that was not passed.
    pub(super) fn of_chunk(
        &self,
        source: &dyn Source,
        range: Range<u64>,
        mut give: impl FnMut(Rope) -> Result<bool>,
    ) -> Result<u64> {
        let (chunk, first) = self.index.chunk(range.start, source)?;
        let spans = riegeli::spans(source, &chunk, &self.limits)?;
        let end = range.end.min(first.saturating_add(chunk.header.records));
        for number in range.start..end {
            let at = usize::try_from(number - first).unwrap_or(usize::MAX);
            let record = match &spans {
                Some(spans) => {
                    let mut record = RopeBuilder::default();
                    spans.extents(&chunk, at, IMAGE, &mut record);
                    record.finish()
                }
                None => {
                    self.decoded(source, &chunk, |decoded| Ok(Rope::literal(decoded.get(at).unwrap_or_default())))?
                }
            };
            if !give(record)? {
                return Ok(number);
            }
        }
        Ok(end)
    }

    fn decoded<R>(
        &self,
        source: &dyn Source,
        chunk: &riegeli::ChunkRef,
        work: impl FnOnce(&Decoded) -> Result<R>,
    ) -> Result<R> {
        let mut held = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_none_or(|(begin, _)| *begin != chunk.begin) {
            *held = Some((chunk.begin, riegeli::decode(source, chunk, &self.limits)?));
        }
        held.as_ref().map_or_else(|| Err(broken()), |(_, decoded)| work(decoded))
    }
}

/// Appends `record` in `form`.
pub(super) fn put(source: &dyn Source, record: &Rope, form: Form, room: &mut u64, out: &mut RopeBuilder) -> Result<()> {
    let Form::Framed(framing) = form else {
        out.rope(record);
        return out.check();
    };
    if !framing.is_written() {
        let message = format!("records cannot be written as {} files", framing.name());
        return Err(WireError::new(Kind::Unsupported, message));
    }
    if !framing.fits(record.len()) {
        let message =
            format!("a record of {} bytes is too long for a 32-bit length: use another framing", record.len());
        return Err(WireError::new(Kind::Limit, message));
    }
    let mut head = Vec::with_capacity(12);
    framing.put_head(record.len(), &mut head);
    out.literal(&head);
    out.rope(record);
    if framing == Framing::TfRecord {
        take(room, record.len())?;
        out.literal(&masked(checksum(source, record)?).to_le_bytes());
    }
    out.check()
}

pub(super) fn take(room: &mut u64, bytes: u64) -> Result<()> {
    *room = room
        .checked_sub(bytes)
        .ok_or_else(|| WireError::new(Kind::Limit, "too many records for one response: ask for fewer at a time"))?;
    Ok(())
}

fn checksum(source: &dyn Source, record: &Rope) -> Result<u32> {
    let sources = [source];
    let whole = RopeSource::new(record, &sources);
    let (mut at, mut sum) = (0, 0);
    while at < record.len() {
        let len = STRIDE.min(record.len() - at);
        sum = crc32c::crc32c_append(sum, &whole.read(at, len as usize)?);
        at += len;
    }
    Ok(sum)
}
