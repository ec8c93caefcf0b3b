//! `_core.Schema`: a descriptor closure as the engine's flat table.

use std::sync::Arc;

use pyo3::prelude::*;
use wire::schema as table;
use wire::{Kind, WireError};

use crate::errors;

/// One field: number, name, type number, repeated, oneof number, target index.
type FieldRow = (u32, String, u8, bool, u32, u32);

/// Message types that refer to each other, flattened by `protoslice.schema`.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Schema {
    inner: Arc<table::Schema>,
}

impl Schema {
    /// Wraps a table of the engine.
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
    #[new]
    fn new(
        py: Python<'_>,
        messages: Vec<(String, bool, Vec<FieldRow>)>,
        enums: Vec<table::EnumValues>,
    ) -> PyResult<Self> {
        let built = messages.into_iter().map(message).collect::<wire::Result<_>>();
        let inner = built.and_then(|messages| table::Schema::new(messages, enums));
        inner.map(Self::of).map_err(|error| errors::raise(py, error))
    }

    /// The full names of the message types, in the order of their numbers.
    #[getter]
    fn message_names(&self) -> Vec<&str> {
        self.inner.messages().iter().map(|message| message.name.as_str()).collect()
    }

    /// The message types: full name, True for a map entry, and the fields by number.
    #[getter]
    fn messages(&self) -> Vec<(&str, bool, Vec<FieldRow>)> {
        let rows = |message: &table::Message| message.fields().iter().map(row).collect();
        self.inner.messages().iter().map(|each| (each.name.as_str(), each.map_entry, rows(each))).collect()
    }

    /// The values of each enum, by name.
    #[getter]
    fn enums(&self) -> Vec<table::EnumValues> {
        self.inner.enums().to_vec()
    }

    /// Approximate memory of the table, in bytes.
    #[getter]
    fn weight(&self) -> usize {
        self.inner.weight()
    }

    /// The number of the message type named `name`.
    fn type_named(&self, name: &str) -> Option<u32> {
        self.inner.type_named(name)
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __repr__(&self) -> String {
        format!("<Schema of {} message types>", self.inner.len())
    }
}

fn message((name, map_entry, rows): (String, bool, Vec<FieldRow>)) -> wire::Result<table::Message> {
    let fields = rows.into_iter().map(|row| field(&name, row)).collect::<wire::Result<_>>()?;
    Ok(table::Message::new(name, map_entry, fields))
}

fn row(field: &table::Field) -> FieldRow {
    (field.number, field.name.clone(), field.kind as u8, field.repeated, field.oneof, field.target)
}

fn field(message: &str, (number, name, kind, repeated, oneof, target): FieldRow) -> wire::Result<table::Field> {
    let Some(kind) = table::FieldKind::from_number(kind) else {
        let text = format!("the schema's {message}.{name} has the type number {kind}, which does not exist");
        return Err(WireError::new(Kind::Syntax, text));
    };
    Ok(table::Field { number, name, kind, repeated, oneof, target })
}
