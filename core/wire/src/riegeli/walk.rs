//! The search for chunks, which reads headers and skips payloads.

use std::borrow::Cow;
use std::ops::Range;

use super::fault::{Fault, Resume};
use super::header::{BlockHeader, ChunkHeader, ChunkKind};
use super::layout::{self, BLOCK, BLOCK_HEADER, CHUNK_HEADER};
use crate::error::{Kind, WireError};
use crate::rope::{RopeBuilder, SourceId};
use crate::source::Source;

type Result<T, E = WireError> = std::result::Result<T, E>;

/// A chunk that is within the file and has a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// The start of the chunk.
    pub begin: u64,
    /// The start of the next chunk.
    pub end: u64,
    /// The header of the chunk.
    pub header: ChunkHeader,
}

impl ChunkRef {
    /// Appends to `rope` the bytes `range` of the chunk's data, as extents of the file `source`.
    pub fn extents(&self, range: Range<u64>, source: SourceId, rope: &mut RopeBuilder) {
        layout::extents(self.begin, range.start, range.end.saturating_sub(range.start), source, rope);
    }

    /// The numeric position of record `index`.
    pub fn position(&self, index: u64) -> u64 {
        self.begin.saturating_add(index)
    }
}

/// The chunk at the boundary `begin`; None when the file ends there.
pub fn chunk_at<S: Source + ?Sized>(source: &S, begin: u64) -> Result<Option<ChunkRef>, Fault> {
    if !layout::is_boundary(begin) {
        let message = format!("byte {begin} cannot be the start of a chunk");
        return Err(Fault::invalid(&message, begin, Resume::SearchFrom(begin)));
    }
    let size = source.len();
    if begin >= size {
        return Ok(None);
    }
    let header_end = layout::add(begin, CHUNK_HEADER).unwrap_or(u64::MAX);
    let there = usize::try_from(header_end.min(size) - begin).unwrap_or(usize::MAX);
    let bytes = source.read(begin, there)?;
    let (header, block) = parse(begin, &bytes, size)?;
    let end = layout::chunk_end(begin, header.data_size, header.records);
    let Some(end) = end else {
        let message = format!("the chunk at {begin} would end past 2^64");
        return Err(Fault::invalid(&message, header_end, Resume::SearchFrom(header_end)));
    };
    if let Some((block_begin, block)) = block {
        check_next(block_begin, block, end, header_end)?;
    }
    check_signature(begin, &header, header_end)?;
    if end > size { Err(Fault::truncated(begin, Some(end), size)) } else { Ok(Some(ChunkRef { begin, end, header })) }
}

type Block = (u64, BlockHeader);

/// Parses the chunk header in `bytes`, whose position is `begin`, and the block header before or inside it.
fn parse(begin: u64, bytes: &[u8], size: u64) -> Result<(ChunkHeader, Option<Block>), Fault> {
    let mut header = Vec::new();
    let mut block = None;
    let cut = || Fault::truncated(begin, None, size);
    for run in layout::runs(begin, 0, CHUNK_HEADER) {
        if run.after_header {
            let at = run.position - BLOCK_HEADER;
            let bytes = part(bytes, at - begin, BLOCK_HEADER).ok_or_else(cut)?;
            block = Some((at, block_header(at, bytes, begin)?));
        }
        header.extend_from_slice(part(bytes, run.position - begin, run.len).ok_or_else(cut)?);
    }
    let (header, stored, computed) = ChunkHeader::parse(&header)?;
    if stored != computed {
        let offset = begin.saturating_add(bytes.len() as u64);
        let error = Fault::mismatch("chunk header", (computed, stored), &format!("chunk at {begin}"), offset);
        return Err(Fault::new(error, Resume::SearchFrom(offset)));
    }
    Ok((header, block))
}

fn part(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(len).ok()?)?)
}

/// Parses the block header in `bytes`, whose position is `at`, and checks its hash.
pub(super) fn any_block_header(at: u64, bytes: &[u8]) -> Result<BlockHeader, Fault> {
    let (header, stored, computed) = BlockHeader::parse(bytes)?;
    let end = at.saturating_add(BLOCK_HEADER);
    if stored != computed {
        let error = Fault::mismatch("block header", (computed, stored), &format!("block at {at}"), end);
        return Err(Fault::new(error, Resume::SearchFrom(end)));
    }
    if !header.is_plausible() {
        let message = format!("the block header at {at} describes impossible chunks");
        return Err(Fault::invalid(&message, end, Resume::SearchFrom(end)));
    }
    Ok(header)
}

/// Parses the block header in `bytes`, whose position is `at`. It is inside the chunk at `begin` and must refer to this
/// chunk.
pub(super) fn block_header(at: u64, bytes: &[u8], begin: u64) -> Result<BlockHeader, Fault> {
    let header = any_block_header(at, bytes)?;
    if header.previous == at - begin {
        return Ok(header);
    }
    let end = at.saturating_add(BLOCK_HEADER);
    let implied = i128::from(at) - i128::from(header.previous);
    let message = format!(
        "chunk boundary is {begin} but block header at {at} implies a different previous chunk boundary: {implied}"
    );
    let next = at.checked_add(header.next).filter(|_| header.next <= BLOCK);
    Err(Fault::invalid(&message, end, next.map_or(Resume::SearchFrom(end), Resume::At)))
}

/// Fails unless the block header at `at` says that its chunk ends at `end`.
pub(super) fn check_next(at: u64, header: BlockHeader, end: u64, offset: u64) -> Result<(), Fault> {
    if at.checked_add(header.next) == Some(end) {
        return Ok(());
    }
    let implied = u128::from(at) + u128::from(header.next);
    let message =
        format!("chunk boundary is {end} but block header at {at} implies a different next chunk boundary: {implied}");
    Err(Fault::invalid(&message, offset, Resume::SearchFrom(offset)))
}

fn check_signature(begin: u64, header: &ChunkHeader, offset: u64) -> Result<(), Fault> {
    let empty = header.data_size == 0 && header.records == 0 && header.decoded_size == 0;
    if begin != 0 || (empty && header.kind == ChunkKind::Signature) {
        return Ok(());
    }
    Err(Fault::invalid("missing file signature", offset, Resume::SearchFrom(offset)))
}

/// An iterator over the chunks from a boundary on, which only reads headers. It ends after the first error.
#[derive(Debug)]
pub struct Chunks<'a, S: ?Sized> {
    source: &'a S,
    next: Option<u64>,
}

impl<'a, S: Source + ?Sized> Chunks<'a, S> {
    /// The chunks of `source` from the boundary `begin` on.
    pub fn new(source: &'a S, begin: u64) -> Self {
        Self { source, next: Some(begin) }
    }
}

impl<S: Source + ?Sized> Iterator for Chunks<'_, S> {
    type Item = Result<ChunkRef>;

    fn next(&mut self) -> Option<Result<ChunkRef>> {
        let found = chunk_at(self.source, self.next.take()?);
        let found = found.map_err(|fault| fault.error).transpose()?;
        self.next = found.as_ref().ok().map(|chunk| chunk.end);
        Some(found)
    }
}

/// The record at the numeric position `numeric`, or the first record after it: its chunk, and its index in the chunk.
/// None when no record follows.
pub fn find<S: Source + ?Sized>(source: &S, numeric: u64) -> Result<Option<(ChunkRef, u64)>> {
    let window = Window::new(source, numeric)?;
    let place = seek(&window, numeric, &mut 0)?;
    for chunk in Chunks::new(&window, place.begin) {
        let chunk = chunk?;
        let index = if chunk.begin == place.begin { place.index } else { 0 };
        if index < chunk.header.records {
            return Ok(Some((chunk, index)));
        }
    }
    Ok(None)
}

/// The last record of a file: its chunk, and its index in the chunk. None when the file has no record.
///
/// This takes a few small reads, wherever the record is: one block at the end of the file, then chunk headers.
pub fn last_record<S: Source + ?Sized>(source: &S) -> Result<Option<(ChunkRef, u64)>> {
    record_before(source, source.len())
}

/// Like [`last_record`], but for the part of the file before the boundary `end`.
pub fn record_before<S: Source + ?Sized>(source: &S, mut end: u64) -> Result<Option<(ChunkRef, u64)>> {
    if end > 0 && chunk_at(source, 0)?.is_none() {
        return Ok(None);
    }
    while let Some(last) = end.checked_sub(1) {
        let window = Window::new(source, last)?;
        let origin = origin(&window, last)?;
        let mut found = None;
        for chunk in Chunks::new(&window, origin) {
            let chunk = chunk?;
            if chunk.header.records > 0 {
                found = Some((chunk, chunk.header.records - 1));
            }
            if chunk.end > last {
                break;
            }
        }
        if found.is_some() {
            return Ok(found);
        }
        end = origin;
    }
    Ok(None)
}

/// A chunk and the index of a record in this chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) begin: u64,
    pub(super) index: u64,
}

/// The chunk that contains the numeric position `numeric`, or else the first chunk after it. `at` is updated during the
/// search; after a fault, it is the fault's position.
pub(super) fn seek<S: Source + ?Sized>(source: &S, numeric: u64, at: &mut u64) -> Result<Place, Fault> {
    let size = source.len();
    if numeric > size {
        return Err(beyond(numeric, size));
    }
    *at = layout::block_of(numeric);
    let ends_with_a_block = numeric == size && *at == size;
    *at = if ends_with_a_block { size } else { origin(source, numeric)? };
    while *at < numeric {
        let Some(chunk) = chunk_at(source, *at)? else { break };
        if numeric - *at < chunk.header.records {
            return Ok(Place { begin: *at, index: numeric - *at });
        }
        *at = chunk.end;
    }
    Ok(Place { begin: *at, index: 0 })
}

pub(super) fn beyond(position: u64, size: u64) -> Fault {
    let message = format!("Position {position} exceeds file size: {size}");
    Fault::new(WireError::new(Kind::NotFound, message).at(size), Resume::Never)
}

/// The start of a chunk at or before `position`, taken from the header of the block with `position`. This is the chunk
/// that spans the block's start if it contains `position`, or else the first chunk after the block's header.
fn origin<S: Source + ?Sized>(source: &S, position: u64) -> Result<u64, Fault> {
    let block = layout::block_of(position);
    if block == 0 {
        return Ok(0);
    }
    let there = source.len().saturating_sub(block);
    if there < BLOCK_HEADER {
        return Err(Fault::truncated(block, None, source.len()));
    }
    let header = any_block_header(block, &source.read(block, 24)?)?;
    if header.previous == 0 {
        return Ok(block);
    }
    let next = block.checked_add(header.next);
    let begin = next.filter(|&next| next <= position).or_else(|| block.checked_sub(header.previous));
    begin.filter(|&begin| layout::is_boundary(begin)).ok_or_else(|| {
        let message = format!("block header at {block} implies an impossible chunk boundary");
        Fault::invalid(&message, block + BLOCK_HEADER, Resume::SearchFrom(block + BLOCK_HEADER))
    })
}

/// A source with one buffered block, if its reads are expensive.
pub(super) struct Window<'a, S: ?Sized> {
    source: &'a S,
    begin: u64,
    bytes: Cow<'a, [u8]>,
}

impl<'a, S: Source + ?Sized> Window<'a, S> {
    /// Wraps `source` and buffers the block that contains `position`.
    pub(super) fn new(source: &'a S, position: u64) -> Result<Self> {
        let begin = layout::block_of(position.min(source.len()));
        let most = if source.stride() > BLOCK { BLOCK } else { 0 };
        let len = usize::try_from(most.min(source.len() - begin)).unwrap_or(0);
        let bytes = if len == 0 { Cow::Borrowed(&[][..]) } else { source.read(begin, len)? };
        Ok(Self { source, begin, bytes })
    }
}

impl<S: Source + ?Sized> Source for Window<'_, S> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let held = offset.checked_sub(self.begin).and_then(|at| part(&self.bytes, at, len as u64));
        match held {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.source.read(offset, len),
        }
    }
}
