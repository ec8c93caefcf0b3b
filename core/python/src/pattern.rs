//! `_core.Pattern`: a regular expression that is found in names.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::raise;

/// A regular expression, which never backtracks; `InvalidInput` for one that is none, or too large.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Pattern(wire::pattern::Pattern);

#[pymethods]
impl Pattern {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| wire::pattern::Pattern::new(text)).map(Self).map_err(|error| raise(py, error))
    }

    /// Work for a byte at the most, as a multiple of that of the smallest expressions.
    #[getter]
    fn weight(&self) -> usize {
        self.0.weight()
    }

    /// True for each of the names in which the expression is found.
    fn are_in(&self, py: Python<'_>, names: Vec<PyBackedBytes>) -> Vec<bool> {
        py.detach(|| names.iter().map(|name| self.0.is_in(name)).collect())
    }
}
