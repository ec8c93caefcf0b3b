//! `RiegeliWriter`: writes records into a file or into any Python object with `write`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::riegeli::{RecordWriter, WriterOptions};

use super::sink::PySink;
use crate::errors::raise;

/// Writes records into a riegeli file.
#[pyclass(module = "protoslice._core")]
pub(crate) struct RiegeliWriter {
    writer: RecordWriter,
    sink: PySink,
    last: Option<(u64, u64)>,
}

#[pymethods]
impl RiegeliWriter {
    #[staticmethod]
    fn to_path(py: Python<'_>, path: PathBuf, options: &str, metadata: Option<&[u8]>, append: bool) -> PyResult<Self> {
        let options = WriterOptions::parse(options).map_err(|error| raise(py, error))?;
        let (sink, position) = PySink::open(&path, append)?;
        Self::begin(py, sink, options, position, metadata)
    }

    #[staticmethod]
    fn to_object(
        py: Python<'_>,
        file: Py<PyAny>,
        options: &str,
        metadata: Option<&[u8]>,
        position: u64,
    ) -> PyResult<Self> {
        let options = WriterOptions::parse(options).map_err(|error| raise(py, error))?;
        Self::begin(py, PySink::Object(file), options, position, metadata)
    }

    fn write(&mut self, py: Python<'_>, record: &Bound<'_, PyBytes>) -> PyResult<()> {
        let record = record.as_bytes();
        let written = if self.writer.completes(record.len() as u64) {
            py.detach(|| self.writer.write_record(record, &mut self.sink))
        } else {
            self.writer.write_record(record, &mut self.sink)
        };
        self.last = Some(written.map_err(|error| raise(py, error))?);
        Ok(())
    }

    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.writer.flush(&mut self.sink)).map_err(|error| raise(py, error))
    }

    #[getter]
    fn position(&self) -> (u64, u64) {
        self.writer.position()
    }

    #[getter]
    fn last_position(&self) -> Option<(u64, u64)> {
        self.last
    }
}

impl RiegeliWriter {
    fn begin(
        py: Python<'_>,
        mut sink: PySink,
        options: WriterOptions,
        position: u64,
        metadata: Option<&[u8]>,
    ) -> PyResult<Self> {
        let writer = py.detach(|| RecordWriter::new(options, position, metadata, &mut sink));
        let writer = writer.map_err(|error| raise(py, error))?;
        Ok(Self { writer, sink, last: None })
    }
}
