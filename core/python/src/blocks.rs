//! `_core.BlockSums`, and the check of blocks against them.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::blocks;

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
    fn update(&self, py: Python<'_>, piece: &[u8]) {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).update(piece));
    }

    /// All sums, four bytes each, little-endian; resets the object for a new stream.
    fn finish<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let sums = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        PyBytes::new(py, &sums.finish())
    }
}

/// Number of the first block in `data` that differs from its sum; None when all agree. `data` begins with block
/// `first`; with `end`, nothing from there on is looked at.
#[pyfunction]
#[pyo3(signature = (data, first, sums, end=None))]
pub(crate) fn first_bad_block(
    py: Python<'_>,
    data: &[u8],
    first: usize,
    sums: &[u8],
    end: Option<usize>,
) -> Option<usize> {
    let data = end.and_then(|end| data.get(..end)).unwrap_or(data);
    // Releasing the GIL costs more than checking a block or two.
    if data.len() <= 2 * blocks::BLOCK {
        return blocks::first_bad_block(data, first, sums);
    }
    py.detach(|| blocks::first_bad_block(data, first, sums))
}
