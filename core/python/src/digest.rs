//! Digests and checksums: `_core.Sha256`, `_core.BlockSums`, `_core.first_bad_block`, `_core.crc32c` and
//! `_core.first_piece`.

use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use wire::{blocks, digest};

use crate::errors;
use crate::index::Scanner;

/// Bytes that are copied at a time from a buffer that may change; a multiple of the block size.
const PIECE: usize = 4 * blocks::BLOCK;

/// Calls `take` with all bytes of `data`, an object with a contiguous buffer, in order.
///
/// A read-only buffer is passed without a copy. Without the GIL, another thread could write to any other buffer, so
/// such a buffer is copied piece by piece.
#[allow(unsafe_code, reason = "a buffer of an unknown format has no safe view of its bytes")]
pub(crate) fn each_piece<'py>(
    data: &Bound<'py, PyAny>,
    mut take: impl FnMut(Python<'py>, &[u8]) -> PyResult<()>,
) -> PyResult<()> {
    let py = data.py();
    let buffer = PyUntypedBuffer::get(data)?;
    if !buffer.is_c_contiguous() {
        return Err(PyTypeError::new_err("the buffer is not contiguous: copy it first"));
    }
    if buffer.len_bytes() == 0 {
        return take(py, &[]);
    }
    // A read-only view may show a bytearray, so the memory's owner decides whether the memory is constant.
    let constant = match data.cast::<PyMemoryView>() {
        Ok(view) => PyUntypedBuffer::get(&view.getattr("obj")?).is_ok_and(|owner| owner.readonly()),
        Err(_) => buffer.readonly(),
    };
    let (start, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
    if constant {
        // SAFETY: the buffer is contiguous, not empty, held until the end of this function, and nothing writes to it.
        return take(py, unsafe { std::slice::from_raw_parts(start, len) });
    }
    for at in (0..len).step_by(PIECE) {
        let mut piece = vec![0; PIECE.min(len - at)];
        // SAFETY: `at` and the bytes of the piece lie within the buffer, to which no thread of Python writes meanwhile.
        unsafe { start.add(at).copy_to_nonoverlapping(piece.as_mut_ptr(), piece.len()) };
        take(py, &piece)?;
    }
    Ok(())
}

/// The SHA-256 of a stream; its state can be saved and loaded.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Sha256(Mutex<digest::Sha256>);

#[pymethods]
impl Sha256 {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Takes the next bytes, and also passes them to `sums` and `scanner`. An error of the scanner is raised at the
    /// end.
    #[pyo3(signature = (piece, sums=None, scanner=None))]
    fn update(
        &self,
        piece: &Bound<'_, PyAny>,
        sums: Option<&Bound<'_, BlockSums>>,
        scanner: Option<&Bound<'_, Scanner>>,
    ) -> PyResult<()> {
        let (sums, scanner) = (sums.map(Bound::get), scanner.map(Bound::get));
        let mut scanned = Ok(());
        each_piece(piece, |py, piece| {
            py.detach(|| {
                let mut digest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let mut sums = sums.map(|sums| sums.0.lock().unwrap_or_else(PoisonError::into_inner));
                // Block by block, so that the checksum finds the block in the processor's cache.
                for block in piece.chunks(blocks::BLOCK) {
                    digest.update(block);
                    if let Some(sums) = &mut sums {
                        sums.update(block);
                    }
                }
                if let (Some(scanner), Ok(())) = (scanner, &scanned) {
                    scanned = scanner.take(piece);
                }
            });
            Ok(())
        })?;
        scanned.map_err(|error| errors::raise(piece.py(), error))
    }

    /// The digest of the bytes so far.
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lock().unwrap_or_else(PoisonError::into_inner).digest())
    }

    /// The serialized state, from which `load` continues.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lock().unwrap_or_else(PoisonError::into_inner).save())
    }

    /// Restores the hasher whose state `save` returned.
    #[staticmethod]
    fn load(py: Python<'_>, saved: &[u8]) -> PyResult<Self> {
        let loaded = digest::Sha256::load(saved).map_err(|error| errors::raise(py, error))?;
        Ok(Self(Mutex::new(loaded)))
    }
}

/// The length of the first piece of `window`: up to the first cut that the content determines, or the whole window.
#[pyfunction]
pub(crate) fn first_piece(py: Python<'_>, window: &[u8]) -> usize {
    py.detach(|| wire::content::first_piece(window))
}

/// The CRC-32C of a stream that continues with `data`; `crc` is the CRC-32C of the bytes before, or 0 at the start.
#[pyfunction]
#[pyo3(signature = (data, crc=0))]
pub(crate) fn crc32c(data: &Bound<'_, PyAny>, mut crc: u32) -> PyResult<u32> {
    each_piece(data, |py, piece| {
        crc = py.detach(|| blocks::crc32c(piece, crc));
        Ok(())
    })?;
    Ok(crc)
}

/// Computes the CRC-32C of every 64 KiB of a stream.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct BlockSums(Mutex<blocks::BlockSums>);

#[pymethods]
impl BlockSums {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Takes the next bytes.
    fn update(&self, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        each_piece(piece, |py, piece| {
            py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).update(piece));
            Ok(())
        })
    }

    /// All checksums, four bytes each, little-endian; afterwards the object is ready for a new stream.
    fn finish<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let sums = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        PyBytes::new(py, &sums.finish())
    }
}

/// The number of the first block in `data` that differs from its checksum; None when all blocks agree. `data` begins
/// with block `first`. With `end`, only blocks before `end` are checked.
#[pyfunction]
#[pyo3(signature = (data, first, sums, end=None))]
pub(crate) fn first_bad_block(
    data: &Bound<'_, PyAny>,
    mut first: usize,
    sums: &[u8],
    end: Option<usize>,
) -> PyResult<Option<usize>> {
    let (mut bad, mut left) = (None, end.unwrap_or(usize::MAX));
    each_piece(data, |py, piece| {
        let piece = piece.get(..left).unwrap_or(piece);
        if bad.is_none() {
            // For one or two blocks, releasing the GIL would cost more than checking.
            bad = if piece.len() <= 2 * blocks::BLOCK {
                blocks::first_bad_block(piece, first, sums)
            } else {
                py.detach(|| blocks::first_bad_block(piece, first, sums))
            };
        }
        (first, left) = (first + PIECE / blocks::BLOCK, left - piece.len());
        Ok(())
    })?;
    Ok(bad)
}
