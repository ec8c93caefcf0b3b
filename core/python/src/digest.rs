//! `_core.Sha256` and `_core.crc32c`.

use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
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

/// The CRC-32C of `data`; `crc` is the CRC-32C of the bytes before `data`, 0 at the start.
#[pyfunction]
#[pyo3(signature = (data, crc=0))]
pub(crate) fn crc32c(py: Python<'_>, data: &Bound<'_, PyAny>, crc: u32) -> PyResult<u32> {
    let buffer = PyBuffer::<u8>::get(data)?;
    let Some(pointer) = buffer.as_slice_ptr() else {
        return Err(PyBufferError::new_err("contiguous bytes are due"));
    };
    // SAFETY: the buffer is held until the end, and callers must not write to it meanwhile.
    #[allow(unsafe_code, reason = "reading a buffer without a copy")]
    let bytes: &[u8] = unsafe { pointer.as_ref() };
    Ok(py.detach(|| wire::blocks::crc32c(bytes, crc)))
}
