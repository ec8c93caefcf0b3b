//! `_core.Xorb`, which unpacks a xorb while it arrives.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::digest::each_piece;
use crate::errors;

/// A xorb that is unpacked while it arrives.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Xorb(Mutex<wire::xorb::Xorb>);

#[pymethods]
impl Xorb {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// The content of the chunks that `piece` completes.
    fn feed<'py>(&self, piece: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::new();
        each_piece(piece, |py, piece| {
            let fed = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).feed(piece));
            out.append(&mut fed.map_err(|error| errors::raise(py, error))?);
            Ok(())
        })?;
        Ok(PyBytes::new(piece.py(), &out))
    }

    /// The ends of the chunks so far.
    fn ends(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ends()
    }

    /// The hash that names the xorb, written as in URLs.
    fn hash(&self, py: Python<'_>) -> PyResult<String> {
        let hash = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).hash());
        hash.map_err(|error| errors::raise(py, error))
    }
}
