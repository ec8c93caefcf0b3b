//! `RiegeliReader`: reads records one by one, seeks to positions, and recovers from damage.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::riegeli::{Next, RecordReader};
use wire::{Limits, WireError};

use crate::errors::raise;
use crate::source::PySource;

/// Reads the records of a riegeli file.
#[pyclass(module = "protoslice._core")]
pub(crate) struct RiegeliReader(RecordReader<PySource>);

#[pymethods]
impl RiegeliReader {
    #[new]
    fn new(source: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(RecordReader::new(PySource::new(source)?, Limits::default())))
    }

    fn read<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let next = if self.0.is_ready() { self.0.next() } else { py.detach(|| self.0.next()) };
        match next.map_err(|error| raise(py, error))? {
            None => Ok(None),
            Some(Next::Held) => Ok(Some(PyBytes::new(py, self.0.held()))),
            Some(Next::Direct(len)) => self.read_direct(py, len).map(Some),
        }
    }

    fn recover(&mut self, py: Python<'_>) -> Option<(u64, u64, String)> {
        py.detach(|| self.0.recover()).map(|skipped| (skipped.begin, skipped.end, skipped.message))
    }

    #[getter]
    fn position(&self) -> (u64, u64) {
        self.0.position()
    }

    #[getter]
    fn last_position(&self) -> Option<(u64, u64)> {
        self.0.last_position()
    }

    fn seek(&mut self, py: Python<'_>, begin: u64, index: u64) -> PyResult<()> {
        py.detach(|| self.0.seek(begin, index)).map_err(|error| raise(py, error))
    }

    fn seek_numeric(&mut self, py: Python<'_>, position: u64) -> PyResult<()> {
        py.detach(|| self.0.seek_numeric(position)).map_err(|error| raise(py, error))
    }

    fn seek_back(&mut self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.0.seek_back()).map_err(|error| raise(py, error))
    }

    fn check_file_format(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.0.check_file_format()).map_err(|error| raise(py, error))
    }

    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let metadata = py.detach(|| self.0.metadata()).map_err(|error| raise(py, error))?;
        Ok(metadata.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.close()).map_err(|error| raise(py, error))
    }
}

impl RiegeliReader {
    /// Reads a large record from the file directly into a `bytes` object.
    fn read_direct<'py>(&mut self, py: Python<'py>, len: u64) -> PyResult<Bound<'py, PyBytes>> {
        let too_big = |_| raise(py, WireError::new(wire::Kind::Limit, "a record does not fit into memory"));
        PyBytes::new_with(py, usize::try_from(len).map_err(too_big)?, |into| {
            py.detach(|| self.0.read_direct(into)).map_err(|error| raise(py, error))
        })
    }
}
