//! `_core.Scanner`, `_core.Index`, and a function that indexes a source in one call.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use wire::scan::{self, DEFAULT_FLOOR};
use wire::schema::TypeId;
use wire::{Kind, WireError};

use crate::digest::each_piece;
use crate::errors;
use crate::limits::{self, Limits};
use crate::rope::Rope;
use crate::schema::Schema;
use crate::source::Sources;

/// Builds the index of a proto that is fed in pieces.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Scanner(Mutex<Option<scan::Scanner>>);

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(signature = (schema=None, root=None, *, floor=DEFAULT_FLOOR, limits=None))]
    fn new(
        py: Python<'_>,
        schema: Option<&Bound<'_, Schema>>,
        root: Option<&str>,
        floor: u64,
        limits: Option<&Bound<'_, Limits>>,
    ) -> PyResult<Self> {
        let scanner = scanner(schema, root, floor, limits).map_err(|error| errors::raise(py, error))?;
        Ok(Self(Mutex::new(Some(scanner))))
    }

    /// Takes the next piece of the proto; pieces may end anywhere.
    fn feed(&self, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        each_piece(piece, |py, piece| {
            // If the scanner need not look at a piece, releasing the GIL would cost more than passing over it.
            if let Ok(mut scanner) = self.0.try_lock()
                && scanner.as_mut().is_some_and(|scanner| scanner.pass(piece.len()))
            {
                return Ok(());
            }
            py.detach(|| self.take(piece)).map_err(|error| errors::raise(py, error))
        })
    }

    /// The offset of the next byte that the scan needs; `jump` may skip the bytes before it.
    #[getter]
    fn wants(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |scanner| Ok(scanner.wants()))
    }

    /// The offset of the next byte that `feed` expects.
    #[getter]
    fn offset(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |scanner| Ok(scanner.offset()))
    }

    /// Skips to the offset `wants` and returns it; the next piece must begin there.
    fn jump(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |scanner| Ok(scanner.jump()))
    }

    /// The serialized state of the scan, from which `load` continues.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.with(py, |scanner| scanner.save()).map(|bytes| PyBytes::new(py, &bytes))
    }

    /// Restores the scan that `save` serialized; schema and root type must be the same.
    #[staticmethod]
    #[pyo3(signature = (saved, schema=None, root=None, *, limits=None))]
    fn load(
        py: Python<'_>,
        saved: &[u8],
        schema: Option<&Bound<'_, Schema>>,
        root: Option<&str>,
        limits: Option<&Bound<'_, Limits>>,
    ) -> PyResult<Self> {
        let loaded = types(schema, root).and_then(|(table, root)| {
            let limits = limits::of(limits);
            py.detach(|| scan::Scanner::load(saved, table, root, limits))
        });
        loaded.map(|scanner| Self(Mutex::new(Some(scanner)))).map_err(|error| errors::raise(py, error))
    }

    /// The serialized index of a proto that ends after `size` bytes.
    fn finish<'py>(&self, py: Python<'py>, size: u64) -> PyResult<Bound<'py, PyBytes>> {
        let scanner = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let bytes = py.detach(|| scanner.ok_or_else(finished).and_then(|scanner| scanner.finish(size)));
        bytes.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| errors::raise(py, error))
    }
}

impl Scanner {
    /// Takes the next piece of the proto.
    pub(crate) fn take(&self, piece: &[u8]) -> wire::Result<()> {
        let mut scanner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        scanner.as_mut().ok_or_else(finished)?.feed(piece)
    }

    fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut scan::Scanner) -> wire::Result<R> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| {
            let mut scanner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            scanner.as_mut().ok_or_else(finished).and_then(f)
        });
        result.map_err(|error| errors::raise(py, error))
    }
}

fn finished() -> WireError {
    WireError::new(Kind::Unsupported, "this scan is finished; create a new one")
}

fn scanner(
    schema: Option<&Bound<'_, Schema>>,
    root: Option<&str>,
    floor: u64,
    limits: Option<&Bound<'_, Limits>>,
) -> wire::Result<scan::Scanner> {
    let (table, root) = types(schema, root)?;
    scan::Scanner::new(table, root, floor, limits::of(limits))
}

fn types(schema: Option<&Bound<'_, Schema>>, root: Option<&str>) -> wire::Result<(Arc<wire::Schema>, Option<TypeId>)> {
    let table = schema.map(|schema| Arc::clone(schema.get().table())).unwrap_or_default();
    let root = root.map(|root| {
        let unknown = || WireError::new(Kind::Unsupported, format!("the schema has no message type {root:?}"));
        table.type_named(root).ok_or_else(unknown)
    });
    Ok((table, root.transpose()?))
}

/// The serialized index of one source, or of the rope `image` over several sources. Only tags, lengths and keys are
/// read. `progress` is called periodically with the number of bytes scanned and the total.
#[pyfunction]
#[pyo3(signature = (sources, image=None, schema=None, root=None, *, floor=DEFAULT_FLOOR, limits=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "options with names")]
pub(crate) fn index_source<'py>(
    py: Python<'py>,
    sources: Vec<Bound<'py, PyAny>>,
    image: Option<&Bound<'py, Rope>>,
    schema: Option<&Bound<'py, Schema>>,
    root: Option<&str>,
    floor: u64,
    limits: Option<&Bound<'py, Limits>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let scanner = scanner(schema, root, floor, limits).map_err(|error| errors::raise(py, error))?;
    let image = image.map(|image| &image.get().0);
    let sources = Sources::new(&sources)?;
    let bytes = py.detach(|| sources.watched(image, progress, |source| scan::index_source(scanner, source)));
    bytes.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| errors::raise(py, error))
}

/// An opened index.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Index(Arc<wire::index::Index>);

#[pymethods]
impl Index {
    #[new]
    fn new(py: Python<'_>, data: PyBackedBytes) -> PyResult<Self> {
        let index = wire::index::Index::open(Arc::new(data));
        index.map(|index| Self(Arc::new(index))).map_err(|error| errors::raise(py, error))
    }

    /// The size of the indexed proto in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.size()
    }

    /// The size in bytes below which a message has no node.
    #[getter]
    fn floor(&self) -> u64 {
        self.0.floor()
    }

    /// The name of the root's message type; None when the scan did not know the type.
    #[getter]
    fn root_type(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let node = self.0.node(0).map_err(|error| errors::raise(py, error))?;
        Ok(self.0.type_name(node.record.type_name).map(str::to_owned))
    }

    /// Verifies every checksum.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.verify()).map_err(|error| errors::raise(py, error))
    }
}

impl Index {
    pub(crate) fn index(&self) -> &Arc<wire::index::Index> {
        &self.0
    }
}
