//! The ways to make a `_core.Computed`: elements of tensors that are computed when they are read.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::elements::{self, Cut, Digits, Float, Tile};
use wire::source::Source;
use wire::{Kind, WireError};

use crate::errors;
use crate::source::{Computed, RopeArgument};

/// A tile: start, shape, strides, bytes.
type TileArgument<'py> = (Vec<u64>, Vec<u64>, Vec<u64>, RopeArgument<'py>);

#[pymethods]
impl Computed {
    /// Elements of `width` bytes with their byte order reversed.
    #[staticmethod]
    fn swapped(py: Python<'_>, data: RopeArgument<'_>, width: usize) -> PyResult<Self> {
        Self::made(py, elements::Computed::swapped(data.held()?, width))
    }

    /// `count` elements of `bits` bits each, unpacked from a bit stream to one byte each.
    #[staticmethod]
    #[pyo3(signature = (data, bits, count, *, signed))]
    fn unpacked(py: Python<'_>, data: RopeArgument<'_>, bits: u32, count: u64, signed: bool) -> PyResult<Self> {
        Self::made(py, elements::Computed::unpacked(data.held()?, bits, signed, count))
    }

    /// Elements of `bits` bits in one byte each; the upper bits are cleared, or filled with the sign if `signed`.
    #[staticmethod]
    #[pyo3(signature = (data, bits, *, signed))]
    fn cleaned(py: Python<'_>, data: RopeArgument<'_>, bits: u32, signed: bool) -> PyResult<Self> {
        Self::made(py, elements::Computed::cleaned(data.held()?, bits, signed))
    }

    /// The lowest `bits` bits of every byte, packed into a bit stream.
    #[staticmethod]
    fn packed(py: Python<'_>, data: RopeArgument<'_>, bits: u32) -> PyResult<Self> {
        Self::made(py, elements::Computed::packed(data.held()?, bits))
    }

    /// `count` elements of `width` bytes. They are the elements of the rope, padded with its last element, or with
    /// zeros if it is empty.
    #[staticmethod]
    fn filled(py: Python<'_>, data: RopeArgument<'_>, width: usize, count: u64) -> PyResult<Self> {
        Self::made(py, elements::Computed::filled(data.held()?, width, count))
    }

    /// `count` varints as elements of `width` bytes. `digits` is the encoding: `plain`, `zigzag` or `truth` (bool).
    #[staticmethod]
    #[pyo3(signature = (data, digits, width, count, *, repeat = false))]
    fn varints(
        py: Python<'_>,
        data: RopeArgument<'_>,
        digits: &str,
        width: usize,
        count: u64,
        repeat: bool,
    ) -> PyResult<Self> {
        let digits = match digits {
            "plain" => Ok(Digits::Plain),
            "zigzag" => Ok(Digits::ZigZag),
            "truth" => Ok(Digits::Truth),
            _ => Err(WireError::new(
                Kind::Syntax,
                format!("invalid varint encoding {digits}: use plain, zigzag or truth"),
            )),
        };
        let digits = digits.map_err(|error| errors::raise(py, error))?;
        Self::made(py, elements::Computed::varints(data.held()?, digits, width, count, repeat))
    }

    /// `count` numbers of type `source_type` as floats of type `to`. `big_endian` is the byte order of the scales in
    /// block types of GGUF.
    #[staticmethod]
    #[pyo3(signature = (data, source_type, to, count, *, big_endian = false))]
    fn converted(
        py: Python<'_>,
        data: RopeArgument<'_>,
        source_type: &str,
        to: &str,
        count: u64,
        big_endian: bool,
    ) -> PyResult<Self> {
        let to = Float::named(to).ok_or_else(|| {
            let message = format!("invalid float type {to}: use F64, F32, F16 or BF16");
            errors::raise(py, WireError::new(Kind::Syntax, message))
        })?;
        Self::made(py, elements::Computed::converted(data.held()?, source_type, to, count, big_endian))
    }

    /// The elements of a tensor that `starts`, `steps` and `counts` select, in row-major order. The `tiles` together
    /// cover the tensor.
    #[staticmethod]
    fn gathered(
        py: Python<'_>,
        tiles: Vec<TileArgument<'_>>,
        shape: Vec<u64>,
        width: usize,
        cut: (Vec<u64>, Vec<u64>, Vec<u64>),
    ) -> PyResult<Self> {
        let tiles = tiles
            .into_iter()
            .map(|(start, shape, strides, data)| Ok(Tile { start, shape, strides, source: data.held()? }));
        let tiles = tiles.collect::<PyResult<_>>()?;
        let (starts, steps, counts) = cut;
        Self::made(py, elements::Computed::gathered(tiles, &shape, width, &Cut { starts, steps, counts }))
    }

    /// The number of bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.len()
    }

    /// The number of stored bytes from which these bytes are computed.
    #[getter]
    fn stored(&self) -> u64 {
        self.0.stored()
    }

    /// The number of bytes before the part in which one element repeats up to the end; all bytes without such a part.
    #[getter]
    fn distinct(&self) -> u64 {
        self.0.distinct()
    }

    /// Exactly the `length` bytes at `offset`.
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.read(offset, length));
        bytes.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| errors::raise(py, error))
    }
}

impl Computed {
    fn made(py: Python<'_>, made: wire::Result<elements::Computed>) -> PyResult<Self> {
        made.map(|made| Self(Arc::new(made))).map_err(|error| errors::raise(py, error))
    }
}
