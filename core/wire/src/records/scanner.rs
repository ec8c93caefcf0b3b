//! The scanner, which indexes a stream of records while its bytes arrive.
//!
//! Like the scanner of protos, it reads nothing itself and takes pieces that may end anywhere. With random access,
//! [`Scanner::jump`] skips the contents of records. A damaged or truncated record is not an error: the records before
//! it are kept, and the index contains their end and the reason.

use super::framing::{Framing, MAX_HEAD};
use super::index::{Builder, Index};
use crate::error::{Kind, Result, WireError};
use crate::inflate::Inflater;
use crate::limits::Limits;
use crate::source::Source;

/// Bytes of the first read with random access; it is small, so that reads skip the contents of long records.
const FIRST_READ: usize = 4 << 10;
const LARGEST_READ: usize = 256 << 10;

/// The index of the whole `source`; reads the heads of records, and the bytes between heads that are close.
pub fn index_source(framing: Framing, source: &dyn Source, limits: &Limits) -> Result<Index> {
    index_behind(Index::empty(framing), source, limits)
}

/// The index of the whole `source`; `index` covers its beginning, so nothing before the end of its last record is read.
pub fn index_behind(index: Index, source: &dyn Source, limits: &Limits) -> Result<Index> {
    match index.framing() {
        Framing::Riegeli => return super::chunks::index_behind(index, source, limits),
        Framing::ArrayRecord => return super::array_record::index(source, limits),
        _ => {}
    }
    // A compressed file must be inflated from its beginning.
    let packed = index.framing().wrapper().is_some();
    let (size, index) = (source.len(), if packed { Index::empty(index.framing()) } else { index });
    let mut scanner = Scanner::behind(index, limits);
    let mut buffer = vec![0; LARGEST_READ];
    let mut len = FIRST_READ;
    loop {
        let at = scanner.jump();
        let left = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX);
        let Some(window) = buffer.get_mut(..len.min(left)).filter(|window| !window.is_empty()) else {
            return scanner.finish(size);
        };
        source.read_into(at, window)?;
        scanner.feed(window)?;
        let far = !packed && scanner.skip > LARGEST_READ as u64;
        len = if far { FIRST_READ } else { (len * 2).min(LARGEST_READ) };
    }
}

/// How many records at the front of `bytes` have the same head as the first record. The head has `head` bytes, and the
/// first frame, which is complete, has `frame` bytes. Equal heads mean equal lengths, so each record costs one
/// comparison.
fn alike(bytes: &[u8], head: u64, frame: usize) -> usize {
    let mask = u128::MAX >> (u128::BITS - 8 * head.min(MAX_HEAD as u64) as u32);
    let word = |at: usize| {
        let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk());
        chunk.map(|chunk| u128::from_le_bytes(*chunk) & mask)
    };
    let (first, mut count, mut at) = (word(0), 1, frame);
    while bytes.len() - at >= frame && first.is_some() && word(at) == first {
        at += frame;
        count += 1;
    }
    count
}

/// Indexes one stream.
#[derive(Debug)]
pub struct Scanner {
    framing: Framing,
    builder: Builder,
    /// The offset of the next byte that `feed` expects.
    position: u64,
    /// The number of a record's bytes to skip before the next head.
    skip: u64,
    /// The length of the record that is being skipped, and the extra bytes of its head; None between records.
    open: Option<(u64, u64)>,
    pending: Vec<u8>,
    /// Inflates the file that contains the stream; None for a stream that is the file itself.
    inflater: Option<Inflater>,
}

impl Scanner {
    /// Makes a scanner for a new stream; fails with an `Unsupported` error for files with chunks, which need a source.
    pub fn new(framing: Framing, limits: &Limits) -> Result<Self> {
        if framing.is_chunked() {
            let message =
                format!("{} files cannot be indexed in parts as they arrive: index the whole file", framing.name());
            return Err(WireError::new(Kind::Unsupported, message));
        }
        Ok(Self::behind(Index::empty(framing), limits))
    }

    fn behind(index: Index, limits: &Limits) -> Self {
        let (framing, position) = (index.framing(), index.end());
        let inflater = framing.wrapper().map(Inflater::new);
        let builder = Builder::behind(index, limits);
        Self { framing, builder, position, skip: 0, open: None, pending: Vec::with_capacity(MAX_HEAD), inflater }
    }

    /// Skips bytes that the index does not need; returns the offset at which the next piece must begin.
    pub fn jump(&mut self) -> u64 {
        let passed = match &self.inflater {
            _ if self.builder.fault().is_some() => u64::MAX,
            Some(inflater) => return inflater.taken(),
            None => self.position.saturating_add(self.skip),
        };
        self.skip -= (passed - self.position).min(self.skip);
        self.position = passed;
        passed
    }

    /// Takes the next piece of the stream; pieces may end anywhere. Fails with a `Limit` error when the index grows too
    /// large.
    pub fn feed(&mut self, piece: &[u8]) -> Result<()> {
        let Some(mut inflater) = self.inflater.take() else { return self.feed_stream(piece) };
        let fed = self.inflate(&mut inflater, piece);
        self.inflater = Some(inflater);
        match fed {
            Err(error) if error.kind() == Kind::Corrupt => {
                let at = error.offset().unwrap_or(0);
                self.builder.fail(self.builder.end(), format!("{} at byte {at} of the file", error.message()));
                Ok(())
            }
            fed => fed,
        }
    }

    /// Takes the next piece of the compressed file.
    fn inflate(&mut self, inflater: &mut Inflater, mut piece: &[u8]) -> Result<()> {
        while self.builder.fault().is_none() {
            let step = inflater.step(piece, usize::MAX)?;
            let (used, boundary, more) = (step.used, step.boundary, step.more);
            self.feed_stream(step.bytes)?;
            if boundary {
                self.builder.points().offer(inflater);
                self.builder.check()?;
            }
            self.builder.points().check(inflater)?;
            piece = piece.get(used..).unwrap_or_default();
            if piece.is_empty() && !more {
                break;
            }
        }
        Ok(())
    }

    fn feed_stream(&mut self, mut piece: &[u8]) -> Result<()> {
        while !piece.is_empty() && self.builder.fault().is_none() {
            let taken = self.take(piece)?;
            self.position += taken as u64;
            piece = piece.get(taken..).unwrap_or_default();
        }
        self.position = self.position.saturating_add(piece.len() as u64);
        Ok(())
    }

    /// The index of a stream that ends after `size` bytes.
    pub fn finish(mut self, size: u64) -> Result<Index> {
        let size = match &self.inflater {
            Some(inflater) if !inflater.is_whole() => {
                self.builder.fail(self.builder.end(), "the compressed file is cut off".to_owned());
                inflater.made()
            }
            Some(inflater) => inflater.made(),
            None => size,
        };
        if self.skip == 0 && self.position <= size {
            self.close()?;
        }
        let end = self.builder.end();
        if end != size && self.builder.fault().is_none() {
            let message = match self.open {
                Some((len, _)) => format!("the stream ends inside a record of {len} bytes"),
                None => "the stream ends inside the length of a record".to_owned(),
            };
            self.builder.fail(end, message);
        }
        Ok(self.builder.finish(size))
    }

    /// Takes bytes from the front of `piece` and returns their number.
    fn take(&mut self, piece: &[u8]) -> Result<usize> {
        if self.skip > 0 {
            let passed = usize::try_from(self.skip).map_or(piece.len(), |skip| skip.min(piece.len()));
            self.skip -= passed as u64;
            return Ok(passed);
        }
        self.close()?;
        if self.pending.is_empty() {
            let taken = self.whole(piece)?;
            if taken > 0 || self.open.is_some() || self.builder.fault().is_some() {
                return Ok(taken);
            }
        }
        self.pend(piece)
    }

    /// Takes whole records from the front of `piece`, and the next head if it is complete.
    fn whole(&mut self, piece: &[u8]) -> Result<usize> {
        let (mut at, tail) = (0, self.framing.tail());
        loop {
            let rest = piece.get(at..).unwrap_or_default();
            let start = self.position + at as u64;
            let head = match self.framing.head(rest, start) {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(at),
                Err(error) => {
                    self.builder.fail(start, error.message().to_owned());
                    return Ok(at);
                }
            };
            let frame = head.content.checked_add(head.len + tail);
            match frame.and_then(|frame| usize::try_from(frame).ok()).filter(|frame| *frame <= rest.len()) {
                Some(frame) if head.extra == 0 => {
                    let count = if head.content == self.builder.last() { alike(rest, head.len, frame) } else { 1 };
                    at += count * frame;
                    self.builder.push_alike(head.content, count as u64, self.position + at as u64)?;
                }
                Some(frame) => {
                    at += frame;
                    self.builder.push(head.content, head.extra, self.position + at as u64)?;
                }
                None => {
                    self.open = Some((head.content, head.extra));
                    self.skip = head.content.saturating_add(tail);
                    return Ok(at + head.len as usize);
                }
            }
        }
    }

    /// Collects the bytes of a head that continues after the end of a piece.
    fn pend(&mut self, piece: &[u8]) -> Result<usize> {
        let start = self.position - self.pending.len() as u64;
        for (taken, byte) in piece.iter().enumerate() {
            self.pending.push(*byte);
            match self.framing.head(&self.pending, start) {
                Ok(None) => {}
                Ok(Some(head)) => {
                    self.pending.clear();
                    self.open = Some((head.content, head.extra));
                    self.skip = head.content.saturating_add(self.framing.tail());
                    return Ok(taken + 1);
                }
                Err(error) => {
                    self.builder.fail(start, error.message().to_owned());
                    return Ok(taken + 1);
                }
            }
        }
        Ok(piece.len())
    }

    /// Appends the record whose bytes were skipped.
    fn close(&mut self) -> Result<()> {
        match self.open.take() {
            Some((len, extra)) => self.builder.push(len, extra, self.position),
            None => Ok(()),
        }
    }
}
