//! The index of a proto: the offset and length of every field.
//!
//! An index has a node for every message that is at least as large as the floor. A node has the message's fields in
//! order, so that a field is found without reading the proto. `docs/explanation/index-format.md` describes the
//! serialized form.

mod build;
mod coding;
mod entries;
mod layout;
mod node;
mod read;

use crate::error::{Kind, WireError};

pub use build::Builder;
pub(crate) use build::saved;
pub use entries::{Entries, Occurrences};
pub use layout::{NodeRecord, VERSION};
pub use node::{FieldSummary, Node};
pub use read::{Index, IndexBytes};

fn broken(what: &str) -> WireError {
    WireError::new(Kind::Corrupt, format!("the index is broken: {what}; rebuild it"))
}
