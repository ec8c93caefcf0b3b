//! The result of `_core.Findings.uses`: the kinds of the values that a graph stores.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use wire::find::Findings;
use wire::key::Key;
use wire::uses::{Fields, Kind, Operator};
use wire::{Result, WireError};

use crate::errors::raise;
use crate::links::shown;

const KINDS: [(Kind, &str); 8] = [
    (Kind::Attention, "attention"),
    (Kind::Linear, "linear"),
    (Kind::Convolution, "convolution"),
    (Kind::Normalization, "normalization"),
    (Kind::Embedding, "embedding"),
    (Kind::Recurrent, "recurrent"),
    (Kind::Quantization, "quantization"),
    (Kind::Other, "other"),
];

/// The description of an operator type that Python returned.
#[derive(FromPyObject)]
struct Described {
    kind: Option<String>,
    slots: Vec<(u32, String)>,
    product: Option<(u32, u32)>,
    traits: HashSet<String>,
}

impl From<Described> for Operator {
    fn from(described: Described) -> Self {
        let has = |name: &str| described.traits.contains(name);
        Self {
            kind: described.kind.as_deref().map(kind),
            slots: described.slots.iter().map(|(slot, name)| (*slot, kind(name))).collect(),
            product: described.product,
            layer: has("layer"),
            passing: has("passing"),
            cutting: has("cutting"),
            joining: has("joining"),
            setting: has("setting"),
            adding: has("adding"),
            scaling: has("scaling"),
            dividing: has("dividing"),
            inverting: has("inverting"),
            rooting: has("rooting"),
            quantizing: has("quantizing"),
        }
    }
}

fn kind(name: &str) -> Kind {
    KINDS.iter().find(|(_, known)| *known == name).map_or(Kind::Other, |(kind, _)| *kind)
}

/// The kinds of values by their names, and by the paths of operators without inputs.
pub(crate) fn uses<'py>(
    py: Python<'py>,
    found: &Findings,
    fields: &Fields,
    describe: &Py<PyAny>,
    named: &Py<PyAny>,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let mut operator = |op: &[u8]| asked(describe, op, |answer| answer.extract::<Described>().map(Operator::from));
    let mut kind_named = |name: &[u8]| asked(named, name, |answer| Ok(kind(answer.extract()?)));
    let found = py
        .detach(|| wire::uses::uses(found, fields, &mut operator, &mut kind_named))
        .map_err(|error| raise(py, error))?;
    let (values, constants) = (PyDict::new(py), PyDict::new(py));
    let names = KINDS.map(|(kind, name)| (kind, PyString::intern(py, name)));
    let name = |wanted: Kind| names.iter().find(|(kind, _)| *kind == wanted).map(|(_, name)| name);
    for (key, kind) in found.values {
        match key {
            Key::Text(text) => values.set_item(shown(text), name(kind))?,
            Key::Number(number) => values.set_item(number.to_string(), name(kind))?,
        }
    }
    for (path, kind) in found.constants {
        constants.set_item(path, name(kind))?;
    }
    Ok((values, constants))
}

/// Calls a Python function with a text and returns its result.
fn asked<T>(function: &Py<PyAny>, text: &[u8], take: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
    Python::attach(|py| take(function.bind(py).call1((shown(text),))?.as_any()))
        .map_err(|error: PyErr| WireError::from_source(error))
}
