//! Streams of records: how records are framed, where they are, and how any of them becomes a rope.
//!
//! [`framing`] defines the heads, and [`scanner`] indexes a stream while its bytes arrive. [`index`] keeps the place of
//! each record in one or two bytes. [`chunks`] does this for riegeli files, whose records are numbered chunk by chunk,
//! and [`array_record`] for such files with a footer. [`chunked`] makes files of both kinds. [`keys`] finds records by
//! a value.

mod array_record;
pub mod batch;
pub mod chunked;
pub mod chunks;
pub mod framing;
pub mod index;
pub mod keys;
mod lengths;
pub mod output;
mod saved;
pub mod scanner;
pub mod views;

pub use batch::Batch;
pub use chunked::{MADE_OF, chunked};
pub use framing::Framing;
pub use index::{Fault, Index, Place};
pub use keys::KeyTable;
pub use output::{Form, Reading};
pub use scanner::{Scanner, index_behind, index_source};
pub use views::RecordView;
