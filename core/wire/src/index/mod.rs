//! The index: which bytes of a proto hold which field.
//!
//! It has a node for every message at or above a floor in size, and for every node its fields one after the other, so
//! that a field is found without reading the proto. `docs/index-format.md` draws its serialized form.

mod build;
mod layout;
mod read;

pub use build::Builder;
pub(crate) use build::saved;
pub use layout::{NodeRecord, VERSION};
pub use read::{Entries, FieldSummary, Index, IndexBytes, Node, Occurrences};
