//! `_core.Chunked`, which reads a chunked proto's records and image, and `_core.ChunkHasher`, which helps to write one.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::cpb;
use wire::metadata::Metadata;
use wire::source::Source;
use wire::{Kind, WireError};

use crate::document::Plan;
use crate::errors;
use crate::limits::{self, Limits};
use crate::rope::Rope;
use crate::schema::Schema;
use crate::source::{PySource, RopeArgument, Sources, Watched};

/// The chunks of a chunked proto. In its ropes, source 0 is the file, and source 1 is the bytes written to `side`.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Chunked {
    chunked: cpb::Chunked,
    limits: wire::Limits,
}

#[pymethods]
impl Chunked {
    /// Finds the chunks of `source`. Compressed and transposed records are decoded and passed to `side.write`.
    /// `progress` is called periodically with the number of bytes examined and the total.
    #[new]
    #[pyo3(signature = (source, side, *, limits=None, progress=None))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        side: Py<PyAny>,
        limits: Option<&Bound<'_, Limits>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let (source, limits) = (PySource::new(source)?, limits::of(limits));
        let chunked = py.detach(|| cpb::open(&Watched::new(&source, progress), &mut PySide(side), &limits));
        chunked.map(|chunked| Self { chunked, limits }).map_err(|error| errors::raise(py, error))
    }

    /// The type name that a split proto of XLA declares; None for other files.
    #[getter]
    fn declared(&self) -> Option<&str> {
        self.chunked.declared.as_deref()
    }

    /// The chunks that belong directly to the root message, concatenated; type detection reads them.
    fn root(&self) -> Rope {
        Rope(self.chunked.root())
    }

    /// Reads the whole file `source` and fails unless every record matches its hash.
    #[staticmethod]
    fn verify(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = PySource::new(source)?;
        py.detach(|| wire::riegeli::verify_all(&Watched::new(&source, None))).map_err(|error| errors::raise(py, error))
    }

    /// Fails unless `record`, the last record of a file, is the metadata of a chunked proto.
    #[staticmethod]
    fn check_metadata(py: Python<'_>, record: &[u8]) -> PyResult<()> {
        let found = Metadata::naming_chunks(record, &wire::Limits::default());
        found.map(drop).map_err(|error| errors::raise(py, error))
    }

    /// The plan that was stored in the file, for a message of type `root`; None for a split proto of XLA.
    fn plan(&self, py: Python<'_>, schema: Option<&Bound<'_, Schema>>, root: Option<&str>) -> PyResult<Option<Plan>> {
        let schema = schema.map(|schema| schema.get().table().clone()).unwrap_or_default();
        let root = root.and_then(|root| schema.type_named(root));
        let plan = py.detach(|| self.chunked.plan(&schema, root, &self.limits));
        let plan = plan.map_err(|error| errors::raise(py, error))?;
        Ok(plan.map(|plan| Plan { plan, limits: self.limits }))
    }

    /// The merged proto of type `root`. `sources` are the file and the side object.
    #[pyo3(signature = (schema, root, sources))]
    fn image(
        &self,
        py: Python<'_>,
        schema: Option<&Bound<'_, Schema>>,
        root: Option<&str>,
        sources: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Rope> {
        let schema = schema.map(|schema| schema.get().table().clone()).unwrap_or_default();
        let sources = Sources::new(&sources)?;
        let root = root.and_then(|root| schema.type_named(root));
        let image = py.detach(|| {
            sources.with(Some(&self.chunked.records), |records| {
                cpb::image(&self.chunked, records, &schema, root, &self.limits)
            })
        });
        image.map(Rope).map_err(|error| errors::raise(py, error))
    }
}

/// A Python object with a method `write`.
struct PySide(Py<PyAny>);

impl cpb::Side for PySide {
    fn append(&mut self, bytes: &[u8]) -> wire::Result<()> {
        let written = Python::attach(|py| self.0.call_method1(py, "write", (PyBytes::new(py, bytes),)).map(drop));
        written.map_err(WireError::from_source)
    }
}

/// Computes the hash of a chunk, which is needed to write the chunk's record.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct ChunkHasher(Mutex<Option<Box<wire::riegeli::Hasher>>>);
// The hasher is in a box, because its vectors need an alignment that Python's allocator does not guarantee.

#[pymethods]
impl ChunkHasher {
    /// Starts the hash of a chunk of `size` bytes.
    #[new]
    fn new(size: u64) -> Self {
        Self(Mutex::new(Some(Box::new(cpb::Writing::hasher(size)))))
    }

    /// Takes the next bytes of the chunk.
    fn update(&self, py: Python<'_>, data: RopeArgument<'_>) -> PyResult<()> {
        let data = data.held()?;
        let done = py.detach(|| {
            let mut hasher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            data.with(|source| hasher.as_mut().map_or(Ok(()), |hasher| take(hasher, source)))
        });
        done.map_err(|error| errors::raise(py, error))
    }

    /// The hash; it can be taken only once.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let hasher = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let spent =
            || errors::raise(py, WireError::new(Kind::Unsupported, "the digest was already finished: start a new one"));
        hasher.map(|hasher| hasher.finish()).ok_or_else(spent)
    }
}

/// Feeds `hasher` all of `source`.
fn take(hasher: &mut wire::riegeli::Hasher, source: &dyn Source) -> wire::Result<()> {
    const PIECE: u64 = 256 << 10;
    let mut buffer = vec![0; PIECE as usize];
    let mut at = 0;
    while at < source.len() {
        let len = PIECE.min(source.len() - at);
        let piece = buffer.get_mut(..len as usize).unwrap_or_default();
        source.read_into(at, piece)?;
        hasher.update(piece);
        at += len;
    }
    Ok(())
}
