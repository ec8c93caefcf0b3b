//! Streams of records: how each is framed, where each lies, and any of them as a rope.
//!
//! [`framing`] knows the heads, [`scanner`] indexes a stream as its bytes pass, [`index`] is where each record lies in
//! one or two bytes for each, [`chunks`] the same for riegeli files, whose records are
//! numbered chunk by chunk, and [`array_record`] for those with a footer;
//! [`chunked`] makes files of both kinds. [`keys`] finds records by a value.

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
