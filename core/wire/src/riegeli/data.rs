//! The data of a chunk without the block headers between them; the headers are checked.

use std::borrow::Cow;

use super::fault::{Fault, Resume};
use super::header::Hasher;
use super::layout::{self, BLOCK_HEADER, CHUNK_HEADER, Run};
use super::walk::{self, ChunkRef};
use crate::error::{Kind, WireError};
use crate::source::Source;

const HEADER: usize = BLOCK_HEADER as usize;

/// Fills `into` with the chunk's data from `offset` on, and hashes the data while it is in the processor's cache.
pub fn fill<S: Source + ?Sized>(
    source: &S,
    chunk: &ChunkRef,
    offset: u64,
    into: &mut [u8],
    hasher: &mut Hasher,
) -> Result<(), Fault> {
    let mut window = Window { source, begin: 0, bytes: Cow::Borrowed(&[]) };
    let from = offset.saturating_add(CHUNK_HEADER);
    let limit = layout::add(chunk.begin, from.saturating_add(into.len() as u64)).unwrap_or(chunk.end).min(chunk.end);
    let mut done = 0usize;
    for run in layout::runs(chunk.begin, from, into.len() as u64) {
        let end = done.saturating_add(usize::try_from(run.len).unwrap_or(usize::MAX));
        let before = into.get_mut(..end).unwrap_or_default();
        if source.stride() > layout::BLOCK {
            window.copy(chunk, run, limit, before.get_mut(done..).unwrap_or_default())?;
        } else if run.after_header {
            read_with_header(source, chunk, run, before, done)?;
        } else {
            source.read_into(run.position, before.get_mut(done..).unwrap_or_default())?;
        }
        hasher.update(into.get(done..end).unwrap_or_default());
        done = end;
    }
    if done == into.len() { Ok(()) } else { Err(Fault::truncated(chunk.begin, None, source.len())) }
}

/// A part of a source in memory, so that one read serves many blocks.
struct Window<'a, S: ?Sized> {
    source: &'a S,
    begin: u64,
    bytes: Cow<'a, [u8]>,
}

impl<S: Source + ?Sized> Window<'_, S> {
    /// Copies `run` from the window. If the run is outside, the window is first read again from `run` on, but not
    /// beyond `limit`.
    fn copy(&mut self, chunk: &ChunkRef, run: Run, limit: u64, into: &mut [u8]) -> Result<(), Fault> {
        let start = if run.after_header { run.position - BLOCK_HEADER } else { run.position };
        if start >= self.begin.saturating_add(self.bytes.len() as u64) || start < self.begin {
            let end = layout::block_of(start).saturating_add(self.source.stride()).min(limit);
            self.bytes = self.source.read(start, usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX))?;
            self.begin = start;
        }
        let here = self.bytes.get(usize::try_from(start - self.begin).unwrap_or(usize::MAX)..).unwrap_or_default();
        let (header, rest) = here.split_at_checked(if run.after_header { HEADER } else { 0 }).unwrap_or_default();
        let bytes = rest.get(..into.len());
        into.copy_from_slice(bytes.ok_or_else(|| Fault::truncated(chunk.begin, None, self.source.len()))?);
        if run.after_header { check_block(chunk, run, header) } else { Ok(()) }
    }
}

fn check_block(chunk: &ChunkRef, run: Run, header: &[u8]) -> Result<(), Fault> {
    let block = run.position - BLOCK_HEADER;
    let header = walk::block_header(block, header, chunk.begin)?;
    walk::check_next(block, header, chunk.end, run.position)
}

/// Reads `run` into the end of `into`, from position `at` on, together with the block header before it. The header
/// overwrites the last bytes before `at`, which are restored. This takes a single read and no second copy of the data.
fn read_with_header<S: Source + ?Sized>(
    source: &S,
    chunk: &ChunkRef,
    run: Run,
    into: &mut [u8],
    at: usize,
) -> Result<(), Fault> {
    let block = run.position - BLOCK_HEADER;
    let mut header = [0; HEADER];
    let room = at.checked_sub(HEADER).and_then(|from| into.get_mut(from..));
    if let Some(room) = room {
        let mut kept = [0; HEADER];
        swap(&mut kept, room);
        source.read_into(block, room)?;
        header.copy_from_slice(room.get(..HEADER).unwrap_or(&kept));
        swap(&mut kept, room);
    } else {
        source.read_into(block, &mut header)?;
        source.read_into(run.position, into.get_mut(at..).unwrap_or_default())?;
    }
    check_block(chunk, run, &header)
}

fn swap(kept: &mut [u8; HEADER], room: &mut [u8]) {
    if let Some(front) = room.first_chunk_mut::<HEADER>() {
        std::mem::swap(kept, front);
    }
}

/// Fails unless `hasher`, which got all of the chunk's data, agrees with the hash in the header.
pub fn check_hash(chunk: &ChunkRef, hasher: Hasher) -> Result<(), Fault> {
    let computed = hasher.finish();
    if computed == chunk.header.data_hash {
        return Ok(());
    }
    let place = format!("chunk at {} with length {}", chunk.begin, chunk.end - chunk.begin);
    let error = Fault::mismatch("chunk data", (computed, chunk.header.data_hash), &place, chunk.end);
    Err(Fault::new(error, Resume::At(chunk.end)))
}

/// All data of the chunk, after a check against its hash.
pub fn read_all<S: Source + ?Sized>(source: &S, chunk: &ChunkRef) -> Result<Vec<u8>, Fault> {
    let mut data = buffer(source, chunk, chunk.header.data_size)?;
    let mut hasher = Hasher::default();
    fill(source, chunk, 0, &mut data, &mut hasher)?;
    check_hash(chunk, hasher)?;
    Ok(data)
}

/// Fails unless the chunk's data match their hash; the data are read a mebibyte at a time.
pub fn verify<S: Source + ?Sized>(source: &S, chunk: &ChunkRef) -> Result<(), Fault> {
    const STEP: u64 = 1 << 20;
    let mut data = buffer(source, chunk, chunk.header.data_size.min(STEP))?;
    let mut hasher = Hasher::default();
    let mut offset = 0;
    while offset < chunk.header.data_size {
        let len = STEP.min(chunk.header.data_size - offset);
        let part = data.get_mut(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or_default();
        fill(source, chunk, offset, part, &mut hasher)?;
        offset += len;
    }
    check_hash(chunk, hasher)
}

/// Reads the whole file and fails unless the data of every chunk match their hash.
pub fn verify_all<S: Source + ?Sized>(source: &S) -> Result<(), WireError> {
    for chunk in walk::Chunks::new(source, 0) {
        verify(source, &chunk?).map_err(|fault| fault.error)?;
    }
    Ok(())
}

/// A buffer for `len` bytes of the chunk's data; fails unless the chunk is within the file.
pub(super) fn buffer<S: Source + ?Sized>(source: &S, chunk: &ChunkRef, len: u64) -> Result<Vec<u8>, Fault> {
    if chunk.end > source.len() || len > chunk.header.data_size {
        return Err(Fault::truncated(chunk.begin, Some(chunk.end), source.len()));
    }
    let len = usize::try_from(len).ok();
    len.map(|len| vec![0; len]).ok_or_else(|| WireError::new(Kind::Limit, "a chunk does not fit into memory").into())
}
