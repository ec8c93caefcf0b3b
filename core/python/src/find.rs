//! `_core.Findings`: the messages that a search found.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use wire::find::Found;
use wire::links::{Ports, holder, text};
use wire::uses::Fields;

use crate::errors::raise;
use crate::links::Links;
use crate::uses::uses;

/// A field of a found message: number, wire type, start, end, count.
type Place = (u32, u8, u64, u64, u64);

/// The messages that `Document.find` found, in order. Each access makes a new Python object.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Findings {
    schema: Arc<wire::Schema>,
    found: Arc<wire::find::Findings>,
}

impl Findings {
    pub(crate) fn new(schema: Arc<wire::Schema>, found: wire::find::Findings) -> Self {
        Self { schema, found: Arc::new(found) }
    }
}

#[pymethods]
impl Findings {
    fn __len__(&self) -> usize {
        self.found.len()
    }

    fn __getitem__(&self, number: usize) -> PyResult<Finding> {
        if number >= self.found.len() {
            return Err(PyIndexError::new_err("index out of range: the scan found fewer messages"));
        }
        Ok(Finding { schema: Arc::clone(&self.schema), found: Arc::clone(&self.found), number })
    }

    /// The memory of the messages in bytes.
    #[getter]
    fn held(&self) -> u64 {
        self.found.held()
    }

    /// For each of `names`, the number of the message directly below `within` whose `field` has this name, or None.
    fn named(
        &self,
        py: Python<'_>,
        within: &str,
        field: Vec<u32>,
        names: Vec<Vec<u8>>,
    ) -> PyResult<Vec<Option<usize>>> {
        py.detach(|| {
            let mut numbers: HashMap<&[u8], Option<usize>> = names.iter().map(|name| (name.as_slice(), None)).collect();
            for (number, found) in self.found.iter().enumerate().filter(|(_, found)| holder(found.path) == within) {
                let name = text(found.skeleton, &field)?.unwrap_or_default();
                if let Some(place) = numbers.get_mut(name) {
                    place.get_or_insert(number);
                }
            }
            Ok(names.iter().map(|name| numbers.get(name.as_slice()).copied().flatten()).collect())
        })
        .map_err(|error| raise(py, error))
    }

    /// The numbers of up to `limit` messages whose path begins with `path`.
    fn below(&self, py: Python<'_>, path: &str, limit: usize) -> Vec<usize> {
        py.detach(|| {
            let found = self.found.iter().enumerate().filter(|(_, found)| found.path.starts_with(path));
            found.map(|(number, _)| number).take(limit).collect()
        })
    }

    /// The links between the messages, which are nodes of graphs. `name`, `outputs` and `inputs` are field numbers, one
    /// for each step down from a node. `op` leads to the operator's name. Otherwise, `kinds` is the first of
    /// several fields, and the one field that is set identifies the operator.
    #[pyo3(signature = (name, outputs, inputs, *, op=Vec::new(), kinds=0, qualified=false, ordered=false, numbers=false))]
    #[expect(clippy::too_many_arguments, reason = "options by name")]
    fn links(
        &self,
        py: Python<'_>,
        name: Vec<u32>,
        outputs: Vec<u32>,
        inputs: Vec<Vec<u32>>,
        op: Vec<u32>,
        kinds: u32,
        qualified: bool,
        ordered: bool,
        numbers: bool,
    ) -> PyResult<Links> {
        let ports = Ports { name, outputs, inputs, op, kinds, qualified, ordered, numbers };
        py.detach(|| Links::new(Arc::clone(&self.found), ports)).map_err(|error| raise(py, error))
    }

    /// The kinds of the values that no operator computes; the messages are the operators. The result has the kinds by
    /// value name, and for operators without inputs, by the operator's path. The first arguments are those of
    /// `wire::uses::Fields`. `describe` describes a type of operators, and `named` returns the kind for a name.
    #[expect(clippy::too_many_arguments, reason = "members of a tuple")]
    fn uses<'py>(
        &self,
        py: Python<'py>,
        name: Vec<u32>,
        op: Vec<u32>,
        inputs: Vec<u32>,
        outputs: Vec<u32>,
        qualified: bool,
        keyed: bool,
        reassigned: bool,
        numbers: bool,
        describe: Py<PyAny>,
        named: Py<PyAny>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let fields = Fields { name, op, inputs, outputs, qualified, keyed, reassigned, numbers };
        uses(py, &self.found, &fields, &describe, &named)
    }
}

/// One message that was found.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Finding {
    schema: Arc<wire::Schema>,
    found: Arc<wire::find::Findings>,
    number: usize,
}

#[pymethods]
impl Finding {
    /// The path of the message.
    #[getter]
    fn path(&self) -> PyResult<&str> {
        self.get().map(|found| found.path)
    }

    /// The full name of the message type.
    #[getter]
    fn r#type(&self) -> PyResult<&str> {
        self.get().map(|found| self.type_name(found.type_id))
    }

    /// The enclosing messages that have a name, the outermost first, each with type and name.
    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Vec<(&str, Bound<'py, PyBytes>)>> {
        let names = self.get()?.names;
        Ok(names.iter().map(|(id, name)| (self.type_name(*id), PyBytes::new(py, name))).collect())
    }

    /// The serialized message without its large fields.
    #[getter]
    fn skeleton<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.get().map(|found| PyBytes::new(py, found.skeleton))
    }

    /// All fields in order: number, wire type, start and end of the content, and count. A run of scalars is one row,
    /// which begins at the first tag of the run.
    #[getter]
    fn places(&self) -> PyResult<Vec<Place>> {
        let found = self.get()?;
        Ok(found.places.iter().map(|place| (place.number, place.wire, place.start, place.end, place.count)).collect())
    }
}

impl Finding {
    fn get(&self) -> PyResult<Found<'_>> {
        self.found
            .get(self.number)
            .ok_or_else(|| PyIndexError::new_err("index out of range: the scan found fewer messages"))
    }

    fn type_name(&self, id: u32) -> &str {
        self.schema.message(id).map_or("", |message| &message.name)
    }
}
