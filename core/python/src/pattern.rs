//! `_core.Pattern`: a regular expression that is searched in names.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::raise;

/// A regular expression that is matched without backtracking; raises `InvalidInput` if it is invalid or too large.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Pattern(wire::pattern::Pattern);

#[pymethods]
impl Pattern {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| wire::pattern::Pattern::new(text)).map(Self).map_err(|error| raise(py, error))
    }

    /// The largest work per byte, as a multiple of the work for the smallest expressions.
    #[getter]
    fn weight(&self) -> usize {
        self.0.weight()
    }

    /// For each name, whether it contains a match of the expression.
    fn are_in(&self, py: Python<'_>, names: Vec<PyBackedBytes>) -> Vec<bool> {
        py.detach(|| names.iter().map(|name| self.0.is_in(name)).collect())
    }
}
