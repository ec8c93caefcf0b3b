//! Destinations of a writer: a file that this module opens, or a Python object with `write`.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::riegeli::Sink;
use wire::{Result, WireError};

/// Most buffers in one vectored write: `IOV_MAX` of Linux.
const VECTORS: usize = 1024;

pub(super) enum PySink {
    File(File),
    Object(Py<PyAny>),
}

impl PySink {
    /// Opens the file at `path` and returns it with its length; the file is emptied unless `append` is true.
    pub(super) fn open(path: &Path, append: bool) -> std::io::Result<(Self, u64)> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).append(append).truncate(!append).open(path)?;
        let position = file.metadata()?.len();
        Ok((Self::File(file), position))
    }

    /// Calls `write` with pieces that fit into a cache; calls it again if a raw file takes less than a piece.
    fn write_object(object: &Py<PyAny>, parts: &[&[u8]]) -> PyResult<()> {
        Python::attach(|py| {
            for group in groups(parts) {
                let mut rest = gather(py, group)?;
                while !rest.as_bytes().is_empty() {
                    let written = object.bind(py).call_method1("write", (&rest,))?.extract().unwrap_or(usize::MAX);
                    rest = PyBytes::new(py, rest.as_bytes().get(written..).unwrap_or_default());
                }
            }
            Ok(())
        })
    }
}

/// Splits `parts` into groups; a group ends as soon as it has 192 KiB.
fn groups<'a, 'b>(parts: &'a [&'b [u8]]) -> impl Iterator<Item = &'a [&'b [u8]]> {
    const ENOUGH: usize = 3 << 16;
    let mut held = 0;
    parts.split_inclusive(move |part| {
        held += part.len();
        let full = held >= ENOUGH;
        held = if full { 0 } else { held };
        full
    })
}

fn gather<'py>(py: Python<'py>, parts: &[&[u8]]) -> PyResult<Bound<'py, PyBytes>> {
    if let [part] = parts {
        return Ok(PyBytes::new(py, part));
    }
    let len = parts.iter().map(|part| part.len()).sum();
    PyBytes::new_with(py, len, |mut into| {
        for part in parts {
            into.write_all(part)?;
        }
        Ok(())
    })
}

impl Sink for PySink {
    fn write(&mut self, parts: &[&[u8]]) -> Result<()> {
        match self {
            Self::File(file) => write_all(file, parts).map_err(WireError::from_source),
            Self::Object(object) => Self::write_object(object, parts).map_err(WireError::from_source),
        }
    }
}

/// Writes `parts` to the file with vectored writes, without copying them.
fn write_all(file: &mut File, parts: &[&[u8]]) -> std::io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = slices.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let now = left.get(..VECTORS).unwrap_or(left);
        match file.write_vectored(now) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
