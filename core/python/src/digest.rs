//! `_core.Sha256`, `_core.crc32c` and `_core.first_piece`.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use wire::digest;

use crate::errors;

/// SHA-256 of a stream, whose state can be saved and loaded.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Sha256(Mutex<digest::Sha256>);

#[pymethods]
impl Sha256 {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Takes the next bytes.
    fn update(&self, py: Python<'_>, piece: &[u8]) {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).update(piece));
    }

    /// The digest of the bytes so far.
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lock().unwrap_or_else(PoisonError::into_inner).digest())
    }

    /// The serialized state; `load` continues from it.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lock().unwrap_or_else(PoisonError::into_inner).save())
    }

    /// The hasher whose state `save` returned.
    #[staticmethod]
    fn load(py: Python<'_>, saved: &[u8]) -> PyResult<Self> {
        let loaded = digest::Sha256::load(saved).map_err(|error| errors::raise(py, error))?;
        Ok(Self(Mutex::new(loaded)))
    }
}

/// Length of the first piece of `window`: up to a cut that its content says, or all of it.
#[pyfunction]
pub(crate) fn first_piece(py: Python<'_>, window: &[u8]) -> usize {
    py.detach(|| wire::content::first_piece(window))
}

/// Bytes copied at a time of a buffer that may change.
const PIECE: usize = 1 << 18;

/// The CRC-32C of `data`; `crc` is the CRC-32C of the bytes before `data`, 0 at the start.
#[pyfunction]
#[pyo3(signature = (data, crc=0))]
pub(crate) fn crc32c(py: Python<'_>, data: &Bound<'_, PyAny>, mut crc: u32) -> PyResult<u32> {
    let sum = |bytes: &[u8], crc| py.detach(|| wire::blocks::crc32c(bytes, crc));
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(sum(bytes.as_bytes(), crc));
    }
    // Without the GIL another thread could write to any other buffer, so that is copied piece by piece.
    let view = PyMemoryView::from(data)?.call_method1("cast", ("B",))?;
    let len = view.len()?;
    for start in (0..len).step_by(PIECE) {
        let part = PySlice::new(py, start.cast_signed(), len.min(start + PIECE).cast_signed(), 1);
        let piece = view.get_item(part)?.call_method0("tobytes")?;
        crc = sum(piece.cast::<PyBytes>()?.as_bytes(), crc);
    }
    Ok(crc)
}
