//! Exceptions: each kind of [`WireError`] corresponds to one class of `protoslice.errors`.

use pyo3::prelude::*;
use wire::{Kind, WireError};

/// The exception for `error`; if a Python source failed, the exception that the source raised.
pub(crate) fn raise(py: Python<'_>, error: WireError) -> PyErr {
    let class = match error.kind() {
        Kind::Corrupt => "CorruptModel",
        Kind::Checksum => "IntegrityError",
        Kind::Limit => "LimitExceeded",
        Kind::Syntax => "InvalidInput",
        Kind::NotFound => "NotFound",
        Kind::Inconsistent => "InconsistentChunks",
        Kind::Source => return source_error(error),
        _ => "Unsupported",
    };
    build(py, class, &error).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, class: &str, error: &WireError) -> PyResult<PyErr> {
    let class = py.import("protoslice.errors")?.getattr(class)?;
    let exception = class.call1((error.message(), error.offset(), error.path()))?;
    Ok(PyErr::from_value(exception))
}

fn source_error(error: WireError) -> PyErr {
    let text = error.to_string();
    let cause = error.into_cause().and_then(|cause| cause.downcast::<PyErr>().ok());
    cause.map_or_else(|| pyo3::exceptions::PyOSError::new_err(text), |cause| *cause)
}
