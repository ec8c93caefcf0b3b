//! `_core.Bundle`: the index of a tensor bundle.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use wire::bundle::{self, Extent, Placed};

use crate::errors::raise;
use crate::limits::{self, Limits};
use crate::source::PySource;

/// An entry of a bundle: number of the type, shape, shard, offset, size in bytes, CRC-32C. The shape is None if it is
/// malformed or its rank is unknown.
type Entry<'py> = (i32, Option<Bound<'py, PyTuple>>, i32, i64, i64, Option<u32>);

/// The index of a tensor bundle, which is read completely and kept in serialized form.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Bundle {
    bundle: bundle::Bundle,
}

#[pymethods]
impl Bundle {
    /// Reads the index in `source`.
    #[new]
    #[pyo3(signature = (source, *, limits=None))]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, limits: Option<&Bound<'_, Limits>>) -> PyResult<Self> {
        let source = PySource::new(source)?;
        let limits = limits::of(limits);
        let bundle = py.detach(|| bundle::Bundle::open(&source, &limits)).map_err(|error| raise(py, error))?;
        Ok(Self { bundle })
    }

    /// The number of shards.
    #[getter]
    fn shards(&self) -> u32 {
        self.bundle.shards()
    }

    /// True if the tensors are big-endian.
    #[getter]
    fn big_endian(&self) -> bool {
        self.bundle.big_endian()
    }

    /// The header and all entries as a serialized `protoslice.TensorBundle`.
    fn message<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.bundle.message()))
    }

    fn __len__(&self) -> usize {
        self.bundle.len()
    }

    /// The key of tensor `number`.
    fn name<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.key(number)?))
    }

    /// The number of the tensor with this key; None when the bundle has no such tensor.
    fn find(&self, key: &[u8]) -> Option<usize> {
        self.bundle.find(key)
    }

    /// The entry of tensor `number`.
    fn entry<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Entry<'py>> {
        self.key(number)?;
        entry(py, &self.bundle.tensor(number).map_err(|error| raise(py, error))?)
    }

    /// The slices in which tensor `number` is stored: start and length in each dimension, and the slice's entry. The
    /// entry is None if it is missing.
    fn slices<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Vec<(Vec<Extent>, Option<Entry<'py>>)>> {
        let name = self.key(number)?;
        let placed = self.bundle.tensor(number).map_err(|error| raise(py, error))?;
        let found = placed.slices.into_iter().map(|slice| {
            let part = self.bundle.slice(name, &slice).map_err(|error| raise(py, error))?;
            Ok((slice, part.map(|placed| entry(py, &placed)).transpose()?))
        });
        found.collect()
    }
}

impl Bundle {
    fn key(&self, number: usize) -> PyResult<&[u8]> {
        self.bundle.name(number).ok_or_else(|| PyIndexError::new_err("no such tensor"))
    }
}

fn entry<'py>(py: Python<'py>, placed: &Placed) -> PyResult<Entry<'py>> {
    let shape = placed.shape().map(|dims| PyTuple::new(py, dims)).transpose()?;
    Ok((placed.dtype, shape, placed.shard, placed.offset, placed.size, placed.crc))
}
