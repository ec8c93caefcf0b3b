//! The index of a stream: the place of each record, in a table of rows and of the lengths between them.

use std::ops::Range;

use super::framing::Framing;
use super::lengths::{self, Run};
use crate::error::{Kind, Result, WireError};
use crate::inflate::Points;
use crate::limits::Limits;
use crate::reader::Reader;

/// Most codes between two rows, and thus the most codes that a search decodes.
const CODES: u32 = 256;

/// The place of a record and of its frame in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The start of the frame, which is the end of the previous frame.
    pub start: u64,
    /// The start of the record.
    pub content: u64,
    /// End of the record.
    pub content_end: u64,
    /// End of the frame.
    pub end: u64,
}

/// The reason why a stream has no records from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The offset of the record that is cut off or damaged.
    pub offset: u64,
    /// The reason, without the offset.
    pub message: String,
}

/// A row of the table: the number of a record, and the start of its frame (or chunk) and of its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) first: u64,
    pub(super) offset: u64,
    pub(super) at: u64,
}

/// The index of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    pub(super) framing: Framing,
    pub(super) count: u64,
    /// The end of the last whole record.
    pub(super) end: u64,
    pub(super) size: u64,
    pub(super) fault: Option<Fault>,
    /// The points of the compressed file that contains the stream; empty for a stream that is the file itself.
    pub(super) points: Points,
    pub(super) rows: Vec<Row>,
    pub(super) codes: Vec<u8>,
}

impl Index {
    /// The index of a stream of which no bytes have arrived.
    pub fn empty(framing: Framing) -> Self {
        Self {
            framing,
            count: 0,
            end: 0,
            size: 0,
            fault: None,
            points: Points::default(),
            rows: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// Framing of the stream.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Number of whole records.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The end of the last whole record in bytes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The size of the stream in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The damage that ends the records before the end of the stream; None for an undamaged stream.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The place of record `number`, found without a read; fails with an `Unsupported` error for a file with chunks.
    pub fn place(&self, number: u64) -> Result<Place> {
        self.check(number)?;
        let mut place = None;
        self.each(number..number + 1, |found| {
            place = Some(found);
            Ok(())
        })?;
        place.ok_or_else(broken)
    }

    /// The offset of the frame of record `number`; for the number after the last record, the end of the records.
    pub fn start(&self, number: u64) -> Result<u64> {
        if number == self.count { Ok(self.end) } else { self.place(number).map(|place| place.start) }
    }

    /// The number after the last of the records from `number` on whose frames have up to `bytes` bytes in total. At
    /// least one record is included.
    ///
    /// In a file with chunks, only whole chunks are included, but at least one.
    pub fn within(&self, number: u64, bytes: u64) -> Result<u64> {
        if self.framing.is_chunked() {
            return self.chunks_within(number, bytes);
        }
        let limit = self.place(number)?.start.saturating_add(bytes);
        let mut last = number + 1;
        self.runs(number..self.count, |run, start, first| {
            let fits = limit.saturating_sub(start).checked_div(self.frame(run)?).unwrap_or(0);
            last = last.max(first.saturating_add(fits.min(run.count)));
            Ok(fits >= run.count)
        })?;
        Ok(last)
    }

    fn chunks_within(&self, number: u64, bytes: u64) -> Result<u64> {
        self.check(number)?;
        let next = self.rows.partition_point(|row| row.first <= number);
        let begin = next.checked_sub(1).and_then(|row| self.rows.get(row)).ok_or_else(broken)?;
        let limit = begin.offset.saturating_add(bytes);
        // A chunk ends where the next one begins.
        let ended = if self.end <= limit {
            self.rows.len()
        } else {
            self.rows.partition_point(|row| row.offset <= limit).saturating_sub(1)
        };
        Ok(self.rows.get(ended.max(next)).map_or(self.count, |row| row.first))
    }

    /// Calls `take` with the place of each record in `range`, in order.
    pub(super) fn each(&self, range: Range<u64>, mut take: impl FnMut(Place) -> Result<()>) -> Result<()> {
        self.runs(range, |run, mut start, _| {
            let head = self.framing.least_head(run.len).checked_add(run.extra);
            let frame = self.frame(run)?;
            for _ in 0..run.count {
                let content = head.and_then(|head| start.checked_add(head)).ok_or_else(broken)?;
                let content_end = content.checked_add(run.len).ok_or_else(broken)?;
                let end = start.checked_add(frame).ok_or_else(broken)?;
                take(Place { start, content, content_end, end })?;
                start = end;
            }
            Ok(true)
        })
    }

    /// Calls `take` with each run of records in `range`, the start of the run, and the number of its first record.
    /// Stops when `take` returns false.
    fn runs(&self, range: Range<u64>, mut take: impl FnMut(Run, u64, u64) -> Result<bool>) -> Result<()> {
        if self.framing.is_chunked() {
            let message = format!(
                "the positions of single records in {} files are unknown: they store records in chunks",
                self.framing.name()
            );
            return Err(WireError::new(Kind::Unsupported, message));
        }
        let mut row = self.rows.partition_point(|row| row.first <= range.start);
        let mut number = range.start;
        while number < range.end {
            let (begin, mut reader, stop) = self.row(row)?;
            let (mut first, mut start, mut last) = (begin.first, begin.offset, 0);
            while first < stop.min(range.end) {
                let mut run = lengths::next(&mut reader, last)?;
                last = run.len;
                let frame = self.frame(run)?;
                let next = first.checked_add(run.count).filter(|next| *next <= stop).ok_or_else(broken)?;
                let end = frame.checked_mul(run.count).and_then(|all| start.checked_add(all));
                let end = end.filter(|end| *end <= self.end).ok_or_else(broken)?;
                if next > number {
                    let skipped = number - first;
                    run.count = next.min(range.end) - number;
                    if !take(run, start + frame * skipped, number)? {
                        return Ok(());
                    }
                    number = next.min(range.end);
                }
                (first, start) = (next, end);
            }
            row += 1;
        }
        Ok(())
    }

    /// The row before row `row`, its codes, and the number of the first record after it.
    fn row(&self, row: usize) -> Result<(Row, Reader<'_>, u64)> {
        let begin = row.checked_sub(1).and_then(|row| self.rows.get(row)).ok_or_else(broken)?;
        let next = self.rows.get(row);
        let end = next.map_or(self.codes.len() as u64, |next| next.at);
        let codes = usize::try_from(begin.at).ok().zip(usize::try_from(end).ok());
        let codes = codes.and_then(|(begin, end)| self.codes.get(begin..end)).ok_or_else(broken)?;
        Ok((*begin, Reader::new(codes, begin.at), next.map_or(self.count, |next| next.first)))
    }

    fn frame(&self, run: Run) -> Result<u64> {
        let around = self.framing.least_head(run.len) + run.extra + self.framing.tail();
        run.len.checked_add(around).ok_or_else(broken)
    }

    pub(super) fn check(&self, number: u64) -> Result<()> {
        if number < self.count {
            return Ok(());
        }
        let message = format!("no record {number}: the stream has {}", self.count);
        Err(WireError::new(Kind::NotFound, message))
    }
}

pub(super) fn broken() -> WireError {
    WireError::corrupt(0, "an index of records is inconsistent")
}

/// Makes an index, one record after the other.
#[derive(Debug)]
pub(super) struct Builder {
    index: Index,
    most: u64,
    /// The number of codes since the last row.
    codes: u32,
    last: u64,
    /// The number of records of the last length that have no code yet.
    run: u64,
}

impl Builder {
    /// A builder that continues after the last record of `index`. The next record begins a row, so that a saved index
    /// suffices to continue.
    pub(super) fn behind(mut index: Index, limits: &Limits) -> Self {
        index.fault = None;
        Self { index, most: limits.records, codes: CODES, last: 0, run: 0 }
    }

    /// The end of the last record.
    pub(super) fn end(&self) -> u64 {
        self.index.end
    }

    pub(super) fn fault(&self) -> Option<&Fault> {
        self.index.fault.as_ref()
    }

    /// The size of the last record in bytes; 0 at the start of a row.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends a record of `len` bytes whose frame ends at `end`; its head is `extra` bytes longer than necessary.
    #[inline]
    pub(super) fn push(&mut self, len: u64, extra: u64, end: u64) -> Result<()> {
        if self.codes >= CODES {
            self.begin_row()?;
        }
        if len == self.last && extra == 0 {
            self.run += 1;
        } else {
            self.close_run();
            lengths::put(len, extra, self.last, &mut self.index.codes);
            self.codes += 1;
            self.last = len;
        }
        self.index.count += 1;
        self.index.end = end;
        Ok(())
    }

    /// Appends `count` consecutive records of `len` bytes, at least one, that end at `end` and have the shortest heads.
    #[inline]
    pub(super) fn push_alike(&mut self, len: u64, count: u64, end: u64) -> Result<()> {
        self.push(len, 0, end)?;
        self.run += count - 1;
        self.index.count += count - 1;
        Ok(())
    }

    /// Appends a chunk of `count` records at `offset`.
    pub(super) fn push_chunk(&mut self, count: u64, offset: u64, end: u64) -> Result<()> {
        if count > 0 {
            self.index.rows.push(Row { first: self.index.count, offset, at: 0 });
            self.check()?;
        }
        self.index.count = self.index.count.checked_add(count).ok_or_else(broken)?;
        self.index.end = end;
        Ok(())
    }

    pub(super) fn points(&mut self) -> &mut Points {
        &mut self.index.points
    }

    pub(super) fn fail(&mut self, offset: u64, message: String) {
        self.index.fault.get_or_insert(Fault { offset, message });
    }

    /// The index of a stream that ends after `size` bytes.
    pub(super) fn finish(mut self, size: u64) -> Index {
        self.close_run();
        self.index.size = size;
        self.index.rows.shrink_to_fit();
        self.index.codes.shrink_to_fit();
        self.index
    }

    fn close_run(&mut self) {
        if self.run > 0 {
            lengths::put_run(self.run, &mut self.index.codes);
            (self.run, self.codes) = (0, self.codes + 1);
        }
    }

    #[cold]
    fn begin_row(&mut self) -> Result<()> {
        self.close_run();
        let at = self.index.codes.len() as u64;
        self.index.rows.push(Row { first: self.index.count, offset: self.index.end, at });
        (self.codes, self.last) = (0, 0);
        self.check()
    }

    pub(super) fn check(&self) -> Result<()> {
        let held = self.index.points.weight()
            + self.index.codes.len() as u64
            + (self.index.rows.len() * size_of::<Row>()) as u64;
        if held <= self.most {
            return Ok(());
        }
        let message = format!(
            "the index of {} records would take more than {} bytes; split the stream into shards",
            self.index.count, self.most
        );
        Err(WireError::new(Kind::Limit, message).at(self.index.end))
    }
}
