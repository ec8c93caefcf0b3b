//! `_core.Schema`: a descriptor closure as the flat table the engine reads.

use std::sync::Arc;

use pyo3::prelude::*;
use wire::schema as table;
use wire::{Kind, WireError};

use crate::errors;

/// One field: number, name, type number, repeated, oneof number, target index.
type FieldRow = (u32, String, u8, bool, u32, u32);

/// Message types that refer to each other, as `protoslice.schema` flattened them.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Schema {
    inner: Arc<table::Schema>,
    names: Vec<String>,
}

impl Schema {
    /// The table itself, for the engine's other classes.
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
        let names = messages.iter().map(|(name, ..)| name.clone()).collect();
        let built = messages.into_iter().map(message).collect::<wire::Result<_>>();
        let inner = built.and_then(|messages| table::Schema::new(messages, enums));
        inner.map(|inner| Self { inner: Arc::new(inner), names }).map_err(|error| errors::raise(py, error))
    }

    /// The full names of the message types, in the order of their numbers.
    #[getter]
    fn message_names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// The number of the message type named `name`.
    fn type_named(&self, name: &str) -> Option<u32> {
        self.inner.type_named(name)
    }

    fn __len__(&self) -> usize {
        self.names.len()
    }

    fn __repr__(&self) -> String {
        format!("<Schema of {} message types>", self.names.len())
    }
}

fn message((name, map_entry, rows): (String, bool, Vec<FieldRow>)) -> wire::Result<table::Message> {
    let fields = rows.into_iter().map(|row| field(&name, row)).collect::<wire::Result<_>>()?;
    Ok(table::Message::new(name, map_entry, fields))
}

fn field(message: &str, (number, name, kind, repeated, oneof, target): FieldRow) -> wire::Result<table::Field> {
    let Some(kind) = table::FieldKind::from_number(kind) else {
        let text = format!("the schema's {message}.{name} has the type number {kind}, which does not exist");
        return Err(WireError::new(Kind::Syntax, text));
    };
    Ok(table::Field { number, name, kind, repeated, oneof, target })
}
