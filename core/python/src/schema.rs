//! `_core.Schema`: a message type and all types that it reaches, as a flat table.

use std::sync::Arc;

use pyo3::prelude::*;
use wire::schema as table;

/// One field: number, name, number of its kind, repeated, number of its oneof, index of its type.
type FieldRow = (u32, String, u8, bool, u32, u32);

/// Message types that refer to each other, as a flat table made by `protoslice.schema`.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Schema {
    inner: Arc<table::Schema>,
}

impl Schema {
    /// Wraps a table of the `wire` crate.
    pub(crate) fn of(table: table::Schema) -> Self {
        Self { inner: Arc::new(table) }
    }

    /// The wrapped table.
    pub(crate) fn table(&self) -> &Arc<table::Schema> {
        &self.inner
    }
}

#[pymethods]
impl Schema {
    /// The message types: full name, True for a map entry, and the fields sorted by number.
    #[getter]
    fn messages(&self) -> Vec<(&str, bool, Vec<FieldRow>)> {
        let rows = |message: &table::Message| message.fields().iter().map(row).collect();
        self.inner.messages().iter().map(|each| (each.name.as_str(), each.map_entry, rows(each))).collect()
    }

    /// The values of each enum by name.
    #[getter]
    fn enums(&self) -> Vec<table::EnumValues> {
        self.inner.enums().to_vec()
    }

    /// Approximate memory of the table, in bytes.
    #[getter]
    fn weight(&self) -> usize {
        self.inner.weight()
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __repr__(&self) -> String {
        format!("<Schema of {} message types>", self.inner.len())
    }
}

fn row(field: &table::Field) -> FieldRow {
    (field.number, field.name.clone(), field.kind as u8, field.repeated, field.oneof, field.target)
}
