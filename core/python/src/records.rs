//! `_core.RecordScanner`, `_core.Records`, and a function that indexes a stream in one call.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use wire::mask::Mask;
use wire::path::Path;
use wire::records::{self, Form, Framing, Index, Reading, RecordView};
use wire::{Kind, WireError};

use crate::errors;
use crate::limits::{self, Limits};
use crate::rope::Rope;
use crate::schema::Schema;
use crate::source::Sources;

/// Indexes a stream of records that arrives in pieces.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct RecordScanner(Mutex<Option<records::Scanner>>);

#[pymethods]
impl RecordScanner {
    #[new]
    #[pyo3(signature = (framing, *, limits=None))]
    fn new(py: Python<'_>, framing: &str, limits: Option<&Bound<'_, Limits>>) -> PyResult<Self> {
        let made = framing_of(framing).and_then(|framing| records::Scanner::new(framing, &limits::of(limits)));
        made.map(|scanner| Self(Mutex::new(Some(scanner)))).map_err(|error| errors::raise(py, error))
    }

    /// Takes the next piece of the stream; pieces may end anywhere.
    fn feed(&self, py: Python<'_>, piece: &[u8]) -> PyResult<()> {
        let fed = py.detach(|| {
            let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            held.as_mut().ok_or_else(finished)?.feed(piece)
        });
        fed.map_err(|error| errors::raise(py, error))
    }

    /// Skips bytes that the index does not need; returns the offset at which the next piece must begin.
    fn jump(&self, py: Python<'_>) -> PyResult<u64> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_mut().map(records::Scanner::jump).ok_or_else(|| errors::raise(py, finished()))
    }

    /// The saved index of a stream that ends after `size` bytes.
    fn finish<'py>(&self, py: Python<'py>, size: u64) -> PyResult<Bound<'py, PyBytes>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let saved = py.detach(|| held.ok_or_else(finished)?.finish(size).map(|index| index.save()));
        saved.map(|saved| PyBytes::new(py, &saved)).map_err(|error| errors::raise(py, error))
    }
}

/// The form in which records are taken for an answer in `framing`; a framing with chunks is made of framed records.
fn form_of(framing: Option<Framing>) -> Form {
    framing.map_or(Form::Bare, |framing| Form::Framed(if framing.is_chunked() { records::MADE_OF } else { framing }))
}

/// `stream`, a rope over `sources`, as a file in `framing` if this framing has chunks; else `stream` unchanged.
fn in_chunks(
    stream: wire::Rope,
    sources: &Sources,
    framing: Option<Framing>,
    limits: &wire::Limits,
) -> wire::Result<wire::Rope> {
    match framing.filter(|framing| framing.is_chunked()) {
        Some(framing) => sources.with(Some(&stream), |bytes| records::chunked(&stream, bytes, framing, limits)),
        None => Ok(stream),
    }
}

/// A file in `framing`, riegeli or ArrayRecord, made of the records in `stream`, a rope over `sources`. In `stream`,
/// each record follows its length in eight bytes. All of it is read for the checksums of chunks. Raises `LimitExceeded`
/// for more than `limits.held` bytes.
#[pyfunction]
#[pyo3(signature = (stream, sources, framing, *, limits=None))]
pub(crate) fn chunked(
    py: Python<'_>,
    stream: &Bound<'_, Rope>,
    sources: &Bound<'_, Sources>,
    framing: &str,
    limits: Option<&Bound<'_, Limits>>,
) -> PyResult<Rope> {
    let (stream, sources, limits) = (stream.get().0.clone(), sources.get(), limits::of(limits));
    let made = framing_of(framing).and_then(|framing| py.detach(|| in_chunks(stream, sources, Some(framing), &limits)));
    made.map(Rope).map_err(|error| errors::raise(py, error))
}

/// The saved index of the first source. Only the beginnings of records are read. `progress` is called periodically with
/// the number of bytes seen and the total. If `behind` is a saved index of the stream's beginning, the new index
/// continues it without reading that part again.
#[pyfunction]
#[pyo3(signature = (sources, framing, *, limits=None, progress=None, behind=None))]
pub(crate) fn index_records<'py>(
    py: Python<'py>,
    sources: &Bound<'py, Sources>,
    framing: &str,
    limits: Option<&Bound<'py, Limits>>,
    progress: Option<Py<PyAny>>,
    behind: Option<&[u8]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (sources, limits) = (sources.get(), limits::of(limits));
    let saved = framing_of(framing).and_then(|framing| {
        py.detach(|| {
            let known = behind.map_or_else(|| Ok(Index::empty(framing)), |saved| begun(saved, framing))?;
            sources.watched(None, progress, |source| records::index_behind(known, source, &limits))
        })
        .map(|index| index.save())
    });
    saved.map(|saved| PyBytes::new(py, &saved)).map_err(|error| errors::raise(py, error))
}

/// The saved index of a stream in `framing`; raises `Unsupported` for an index of another framing.
fn begun(saved: &[u8], framing: Framing) -> wire::Result<Index> {
    let index = Index::load(saved)?;
    if index.framing() == framing {
        return Ok(index);
    }
    Err(WireError::new(Kind::Unsupported, "this index is for a stream with another framing; build a new one"))
}

/// The records of one stream, by number.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Records(Reading);

#[pymethods]
impl Records {
    #[new]
    #[pyo3(signature = (saved, *, limits=None))]
    fn new(py: Python<'_>, saved: &[u8], limits: Option<&Bound<'_, Limits>>) -> PyResult<Self> {
        let limits = limits::of(limits);
        let index = py.detach(|| Index::load(saved)).map_err(|error| errors::raise(py, error))?;
        Ok(Self(Reading::new(index, limits)))
    }

    /// The number of whole records.
    #[getter]
    fn count(&self) -> u64 {
        self.0.index().count()
    }

    /// The name of the framing.
    #[getter]
    fn framing(&self) -> &'static str {
        self.0.index().framing().name()
    }

    /// The end of the last whole record in bytes.
    #[getter]
    fn end(&self) -> u64 {
        self.0.index().end()
    }

    /// The size of the stream in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.index().size()
    }

    /// The offset and description of the damage that ends the records; None for an undamaged stream.
    #[getter]
    fn fault(&self) -> Option<(u64, String)> {
        self.0.index().fault().map(|fault| (fault.offset, fault.message.clone()))
    }

    /// The start of a record's frame, the start and end of its content, and the end of the frame.
    fn place(&self, py: Python<'_>, number: u64) -> PyResult<(u64, u64, u64, u64)> {
        let place = self.0.index().place(number).map_err(|error| errors::raise(py, error))?;
        Ok((place.start, place.content, place.content_end, place.end))
    }

    /// The number after the last of the records from `number` on whose frames have up to `bytes` bytes in total. At
    /// least one record is included.
    fn within(&self, py: Python<'_>, number: u64, bytes: u64) -> PyResult<u64> {
        self.0.index().within(number, bytes).map_err(|error| errors::raise(py, error))
    }

    /// The records of `ranges`, pairs of start and stop, in the framing `form`; None means without frames.
    fn rope(
        &self,
        py: Python<'_>,
        sources: &Bound<'_, Sources>,
        ranges: Vec<(u64, u64)>,
        form: Option<&str>,
    ) -> PyResult<Rope> {
        let sources = sources.get();
        let ranges: Vec<_> = ranges.into_iter().map(|(start, stop)| start..stop).collect();
        let rope = form.map(framing_of).transpose().and_then(|framing| {
            py.detach(|| {
                let stream = sources.with(None, |source| self.0.ropes(source, &ranges, form_of(framing)))?;
                in_chunks(stream, sources, framing, self.0.limits())
            })
        });
        rope.map(Rope).map_err(|error| errors::raise(py, error))
    }

    /// The part at `path` of each record of `ranges`, framed as in `rope`. `fields` selects fields of the part; fields
    /// larger than `omit` bytes are left out. A record without the part gives an empty record. All records are read.
    #[pyo3(signature = (sources, ranges, form, schema, root, path="", fields=None, omit=None))]
    #[allow(clippy::too_many_arguments, reason = "options with names")]
    fn views(
        &self,
        py: Python<'_>,
        sources: &Bound<'_, Sources>,
        ranges: Vec<(u64, u64)>,
        form: Option<&str>,
        schema: Option<&Bound<'_, Schema>>,
        root: Option<&str>,
        path: &str,
        fields: Option<Vec<String>>,
        omit: Option<u64>,
    ) -> PyResult<Rope> {
        let (sources, table) =
            (sources.get(), schema.map(|schema| Arc::clone(schema.get().table())).unwrap_or_default());
        let ranges: Vec<_> = ranges.into_iter().map(|(start, stop)| start..stop).collect();
        let rope = form.map(framing_of).transpose().and_then(|framing| {
            let limits = *self.0.limits();
            let path = Path::parse(path, &limits)?;
            let paths = fields.map(|fields| fields.iter().map(|field| Path::parse(field, &limits)).collect());
            let paths: Option<Vec<Path>> = paths.transpose()?;
            py.detach(|| {
                let mask = paths.map(|paths| Mask::new(&paths)).transpose()?;
                let root = root.and_then(|root| table.type_named(root));
                let view = RecordView { schema: &table, root, path: &path, mask: mask.as_ref(), omit };
                let stream = sources.with(None, |source| self.0.views(source, &ranges, form_of(framing), &view))?;
                in_chunks(stream, sources, framing, &limits)
            })
        });
        rope.map(Rope).map_err(|error| errors::raise(py, error))
    }

    /// As many records from `start` on as have up to `most` bytes and come before `stop`, but at least one. The
    /// checksums of TFRecords are compared.
    fn read<'py>(
        &self,
        py: Python<'py>,
        sources: &Bound<'py, Sources>,
        start: u64,
        stop: u64,
        most: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let sources = sources.get();
        let read = py.detach(|| sources.with(None, |source| self.0.read(source, start..stop, most)));
        let batch = read.map_err(|error| errors::raise(py, error))?;
        let records = PyList::new(py, batch.records().map(|record| PyBytes::new(py, record)).collect::<Vec<_>>());
        self.0.give_back(batch);
        records
    }
}

fn framing_of(name: &str) -> wire::Result<Framing> {
    let unknown = || {
        let message =
            format!("unknown framing {name:?}; use one of {}", Framing::names().collect::<Vec<_>>().join(", "));
        WireError::new(Kind::Syntax, message)
    };
    Framing::named(name).ok_or_else(unknown)
}

fn finished() -> WireError {
    WireError::new(Kind::Unsupported, "this RecordScanner is finished; create a new one")
}
