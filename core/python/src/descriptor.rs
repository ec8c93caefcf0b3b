//! `_core.Descriptors`: the message types of a serialized descriptor set.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::descriptor::{self, Bounds};

use crate::errors;
use crate::schema::Schema;

/// The message types of a descriptor set.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Descriptors(descriptor::Descriptors);

#[pymethods]
impl Descriptors {
    /// Reads the types of the set `data`. Missing files `google/protobuf/…` that it imports come from `library`.
    #[new]
    #[pyo3(signature = (data, library, *, max_files, max_parts))]
    fn new(py: Python<'_>, data: &[u8], library: &[u8], max_files: usize, max_parts: usize) -> PyResult<Self> {
        let bounds = Bounds { files: max_files, parts: max_parts };
        let parsed = py.detach(|| descriptor::Descriptors::parse(data, library, &bounds));
        parsed.map(Self).map_err(|error| errors::raise(py, error))
    }

    /// The full names of the message types that the set declares, sorted.
    fn names(&self) -> Vec<&str> {
        self.0.names()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.0.declares(name)
    }

    /// The field table with which messages of type `name` are read.
    fn schema(&self, py: Python<'_>, name: &str) -> PyResult<Schema> {
        py.detach(|| self.0.schema(name)).map(Schema::of).map_err(|error| errors::raise(py, error))
    }

    /// The canonical descriptor set of the type `name` and of all types that it reaches.
    fn canonical<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let canonical = py.detach(|| self.0.canonical(name));
        canonical.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| errors::raise(py, error))
    }

    /// Like `canonical`, but if the type reaches `Any`, with all types of the set, unless these are too large.
    fn canonical_with_any<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let canonical = py.detach(|| self.0.canonical_with_any(name));
        canonical.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| errors::raise(py, error))
    }

    /// Digests of the set's declarations, for comparison with another set.
    fn declarations(&self, py: Python<'_>) -> Declarations {
        Declarations(py.detach(|| self.0.declarations()))
    }

    /// The first type, by name, that `others` declare differently; None when no declaration differs.
    fn differing(&self, py: Python<'_>, others: &Bound<'_, Declarations>) -> Option<String> {
        let others = &others.get().0;
        py.detach(|| self.0.differing(others).map(str::to_owned))
    }

    /// Approximate memory of the types, in bytes.
    #[getter]
    fn weight(&self) -> usize {
        self.0.weight()
    }
}

/// Digests of the types that a descriptor set declares, 32 bytes for each type.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Declarations(descriptor::Declarations);

#[pymethods]
impl Declarations {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.0.declares(name)
    }
}
