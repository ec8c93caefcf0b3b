//! `_core.read_cached`: reads from the page cache, which check each block while it is in the processor's cache.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::{Kind, Result, WireError, blocks};

use crate::errors;

/// The bytes of a file from `start` to `end`; None when the read might have to wait for a disk.
///
/// With `sums`, `start` must be the beginning of a block. A block that differs from its checksum raises
/// `IntegrityError`.
#[pyfunction]
#[pyo3(signature = (descriptor, start, end, sums=None))]
pub(crate) fn read_cached<'py>(
    py: Python<'py>,
    descriptor: RawFd,
    start: u64,
    end: u64,
    sums: Option<&[u8]>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let len = usize::try_from(end.saturating_sub(start)).ok().filter(|len| isize::try_from(*len).is_ok());
    let len =
        len.ok_or_else(|| PyOverflowError::new_err("the block does not fit into memory: it has too many bytes"))?;
    let (bytes, room) = unfilled(py, len)?;
    // For one or two blocks, releasing the GIL would cost more than reading.
    let filled = if len <= 2 * blocks::BLOCK {
        fill(descriptor, start, room, sums)
    } else {
        py.detach(|| fill(descriptor, start, room, sums))
    };
    Ok(filled.map_err(|error| errors::raise(py, error))?.then_some(bytes))
}

/// A bytes object and its uninitialised memory; to clear a mebibyte first would cost as much as to fill it.
#[allow(unsafe_code, reason = "memory that is filled before anybody sees it")]
pub(crate) fn unfilled<'py>(
    py: Python<'py>,
    len: usize,
) -> PyResult<(Bound<'py, PyBytes>, &'py mut [MaybeUninit<u8>])> {
    // SAFETY: without a pointer, Python makes a bytes object of `len` bytes to be filled by the caller; no other code
    // sees the object before it is returned, which happens only once all of it has been filled.
    unsafe {
        let object = pyo3::ffi::PyBytes_FromStringAndSize(std::ptr::null(), len.cast_signed());
        let bytes = Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>();
        let memory = pyo3::ffi::PyBytes_AsString(bytes.as_ptr()).cast();
        Ok((bytes, std::slice::from_raw_parts_mut(memory, len)))
    }
}

/// Fills `room`; returns false when some bytes are not in the page cache.
fn fill(descriptor: RawFd, start: u64, room: &mut [MaybeUninit<u8>], sums: Option<&[u8]>) -> Result<bool> {
    let mut at = start;
    for room in room.chunks_mut(blocks::BLOCK) {
        let Some(block) = read_block(descriptor, at, room) else { return Ok(false) };
        let number = usize::try_from(at).unwrap_or(usize::MAX) / blocks::BLOCK;
        if sums.is_some_and(|sums| blocks::first_bad_block(block, number, sums).is_some()) {
            return Err(WireError::new(Kind::Checksum, "a block fails its checksum").at(at));
        }
        at = at.saturating_add(block.len() as u64);
    }
    Ok(true)
}

/// Fills `room` with the bytes from `at` on; returns None when a read would have to wait, or when bytes are missing.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the standard library has no reads that do not wait")]
fn read_block(descriptor: RawFd, at: u64, room: &mut [MaybeUninit<u8>]) -> Option<&[u8]> {
    let vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes into memory that is ours alone; as many as it reports are
    // initialised. An invalid descriptor gives an error.
    unsafe {
        let count = libc::preadv2(descriptor, &vector, 1, i64::try_from(at).ok()?, libc::RWF_NOWAIT);
        let all = usize::try_from(count).is_ok_and(|count| count == room.len());
        all.then(|| std::slice::from_raw_parts(room.as_ptr().cast(), room.len()))
    }
}

/// Always returns None, because without `RWF_NOWAIT` a read cannot know whether it would wait.
#[cfg(not(target_os = "linux"))]
fn read_block(_: RawFd, _: u64, _: &mut [MaybeUninit<u8>]) -> Option<&[u8]> {
    None
}
