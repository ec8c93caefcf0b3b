//! Conditions on elements, such as `name="x"` or `info.tags={"serve", "gpu"}`; commas separate several conditions.

use std::collections::BTreeSet;
use std::fmt;

use super::{Name, quote};

/// A condition on the values of one of an element's fields, or of a field further down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// The names of the fields on the way down; the last one is the field that is compared.
    pub field: Vec<Name>,
    /// The wanted values.
    pub values: Values,
}

/// The values that a condition wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Values {
    /// One of the field's values is this text.
    Has(Vec<u8>),
    /// The field's values are exactly these, in any order and with any repetitions.
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
