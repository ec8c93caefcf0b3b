//! Conditions on elements: `name="x"`, `info.tags={"serve", "gpu"}`, several of them with commas in between.

use std::collections::BTreeSet;
use std::fmt;

use super::{Name, quote};

/// Condition on an element: the values of a field of its, or of a field further down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// Names on the way down; the last one is the field that is compared.
    pub field: Vec<Name>,
    /// Values asked for.
    pub values: Values,
}

/// Values that a condition asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Values {
    /// One of the field's values is this text.
    Has(Vec<u8>),
    /// The field's values are exactly these, in any order and however often.
    Are(BTreeSet<Vec<u8>>),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.field.iter().enumerate() {
            write!(f, "{}{name}", if i > 0 { "." } else { "" })?;
        }
        match &self.values {
            Values::Has(value) => write!(f, "={}", quote(value)),
            Values::Are(values) => {
                let values: Vec<String> = values.iter().map(|value| quote(value)).collect();
                write!(f, "={{{}}}", values.join(", "))
            }
        }
    }
}
