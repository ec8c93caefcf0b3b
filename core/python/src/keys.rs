//! `_core.KeyTable`: the numbers of records by the value of a field.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use wire::records;

use crate::errors;

/// The numbers of records by a hash of their keys.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct KeyTable(RwLock<records::KeyTable>);

#[pymethods]
impl KeyTable {
    /// Creates a table for a stream of `count` records; it may take up to `room` bytes of memory.
    #[new]
    fn new(count: u64, room: u64) -> Self {
        Self(RwLock::new(records::KeyTable::new(count, room)))
    }

    /// Appends the records from number `first` on; `delimited` has their keys, and an empty key means a record without
    /// a key.
    fn push(&self, py: Python<'_>, first: u64, delimited: &[u8]) -> PyResult<()> {
        let pushed = py.detach(|| self.0.write().unwrap_or_else(PoisonError::into_inner).push_all(first, delimited));
        pushed.map_err(|error| errors::raise(py, error))
    }

    /// Sorts the table; must be called once, after the last record.
    fn sort(&self, py: Python<'_>) {
        py.detach(|| self.0.write().unwrap_or_else(PoisonError::into_inner).sort());
    }

    /// The numbers of the records that may have `key`, in order; raises `LimitExceeded` for more than `most`.
    fn numbers(&self, py: Python<'_>, key: &[u8], most: usize) -> PyResult<Vec<u64>> {
        let found = self.0.read().unwrap_or_else(PoisonError::into_inner).numbers(key, most);
        found.map_err(|error| errors::raise(py, error))
    }

    /// The number of records that have a key.
    fn __len__(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The memory in bytes.
    #[getter]
    fn weight(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).weight()
    }
}
