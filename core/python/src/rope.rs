//! `_core.Rope`: the bytes of a view, as extents of sources and literals.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::SourceId;
use wire::reader::Reader;
use wire::rope::{Bounds, Found, Piece};

use crate::errors;

/// A sequence of extents of numbered sources and of literal bytes.
#[pyclass(frozen, eq, module = "protoslice._core")]
#[derive(PartialEq)]
pub(crate) struct Rope(pub(crate) wire::Rope);

#[pymethods]
impl Rope {
    /// Makes a rope of `pieces`, each either bytes or (source, offset, length).
    #[new]
    fn new(py: Python<'_>, pieces: Vec<PieceArgument<'_>>) -> PyResult<Self> {
        let mut builder = wire::RopeBuilder::default();
        for piece in pieces {
            match piece {
                PieceArgument::Literal(bytes) => builder.literal(bytes.as_bytes()),
                PieceArgument::Extent(source, offset, len) => builder.extent(SourceId(source), offset, len),
                PieceArgument::Rope(rope) => builder.rope(&rope.get().0),
            }
        }
        builder.check().map_err(|error| errors::raise(py, error))?;
        Ok(Self(builder.finish()))
    }

    /// The length in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.len()
    }

    /// The number of pieces.
    #[getter]
    fn piece_count(&self) -> usize {
        self.0.piece_count()
    }

    /// The bytes from `start` to `stop`, as far as they exist.
    fn slice(&self, start: u64, stop: u64) -> Self {
        Self(self.0.slice(start..stop))
    }

    /// All pieces, each either bytes or (source, offset, length).
    fn pieces<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.0.pieces().map(|piece| to_python(py, piece)).collect()
    }

    /// The part from `at` on of the piece that contains the byte at `at`; None at the end.
    fn piece_at<'py>(&self, py: Python<'py>, at: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.slice(at..u64::MAX).pieces().next().map(|piece| to_python(py, piece)).transpose()
    }

    /// Start and end of each extent of `source` that has at least `least` bytes.
    fn extents(&self, source: u32, least: u64) -> Vec<(u64, u64)> {
        self.0.extents(SourceId(source), least).map(|span| (span.start, span.end)).collect()
    }

    /// The batch that begins at `start`: its end, and the spans that must be read for it as (source, start, end). See
    /// `wire::Rope::batch`.
    #[pyo3(signature = (start, stop, *, size, pieces, spans, covered, gap))]
    #[allow(clippy::too_many_arguments, reason = "named on the side of Python")]
    fn batch(
        &self,
        start: u64,
        stop: u64,
        size: u64,
        pieces: usize,
        spans: usize,
        covered: u64,
        gap: u64,
    ) -> (u64, Vec<(u32, u64, u64)>) {
        let bounds = Bounds { bytes: size, pieces, spans, covered, gap };
        let batch = self.0.batch(start..stop, &bounds);
        (batch.end, batch.spans.into_iter().map(|(source, span)| (source.0, span.start, span.end)).collect())
    }

    /// The bytes from `start` to `stop`. `found` has the bytes of each span of the batch, with source and offset.
    fn gather<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        stop: u64,
        found: Vec<(u32, u64, Bound<'py, PyBytes>)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found: Vec<Found<'_>> =
            found.iter().map(|(source, at, bytes)| (SourceId(*source), *at, bytes.as_bytes())).collect();
        let len = usize::try_from(stop.saturating_sub(start).min(self.0.len())).unwrap_or(usize::MAX);
        PyBytes::new_with(py, len, |out| self.0.gather(start, &found, out).map_err(|error| errors::raise(py, error)))
    }

    /// This rope with each extent of `source` replaced by those bytes of `base` that the extent refers to.
    fn through(&self, source: u32, base: &Bound<'_, Rope>) -> Self {
        Self(self.0.through(SourceId(source), &base.get().0))
    }

    /// The serialized rope.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut out = Vec::new();
        self.0.encode(&mut out);
        PyBytes::new(py, &out)
    }

    /// Reads a rope that `encode` returned.
    #[staticmethod]
    fn decode(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        let mut reader = Reader::new(data, 0);
        let rope = wire::Rope::decode(&mut reader, &wire::Limits::default());
        let rope = rope.and_then(|rope| reader.finish("a rope").map(|()| rope));
        rope.map(Self).map_err(|error| errors::raise(py, error))
    }

    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.0.len())
            .map_err(|_| PyIndexError::new_err("the rope is too long for len(): use size instead"))
    }

    fn __repr__(&self) -> String {
        format!("<Rope of {} bytes in {} pieces>", self.0.len(), self.0.piece_count())
    }
}

/// A piece as Python passes it.
#[derive(FromPyObject)]
enum PieceArgument<'py> {
    Rope(Bound<'py, Rope>),
    Literal(Bound<'py, PyBytes>),
    Extent(u32, u64, u64),
}

fn to_python<'py>(py: Python<'py>, piece: Piece<'_>) -> PyResult<Bound<'py, PyAny>> {
    match piece {
        Piece::Literal(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        Piece::Extent { source, offset, len } => Ok((source.0, offset, len).into_pyobject(py)?.into_any()),
    }
}
