//! Riegeli files: readers and writers of records.

mod reader;
mod sink;
mod writer;

pub(crate) use reader::RiegeliReader;
pub(crate) use writer::RiegeliWriter;
