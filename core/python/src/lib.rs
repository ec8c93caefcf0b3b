//! `protoslice._core`: the binding of the `wire` crate; `_core.pyi` declares its Python interface.

use pyo3::prelude::*;

mod bundle;
mod cached;
mod cpb;
mod descriptor;
mod digest;
mod document;
mod elements;
mod errors;
mod find;
mod index;
mod keys;
mod limits;
mod links;
mod pattern;
mod records;
mod riegeli;
mod rope;
mod schema;
mod shuffle;
mod source;
mod statistics;
mod strip;
mod uses;
mod xorb;

/// The wire engine, which finds facts in the bytes of protos.
#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::bundle::Bundle;
    #[pymodule_export]
    use super::cached::read_cached;
    #[pymodule_export]
    use super::cpb::{ChunkHasher, Chunked};
    #[pymodule_export]
    use super::descriptor::{Declarations, Descriptors};
    #[pymodule_export]
    use super::digest::{BlockSums, Sha256, crc32c, first_bad_block, first_piece};
    #[pymodule_export]
    use super::document::{Document, Plan};
    #[pymodule_export]
    use super::find::{Finding, Findings};
    #[pymodule_export]
    use super::index::{Index, Scanner, index_source};
    #[pymodule_export]
    use super::keys::KeyTable;
    #[pymodule_export]
    use super::limits::Limits;
    #[pymodule_export]
    use super::links::Links;
    #[pymodule_export]
    use super::pattern::Pattern;
    #[pymodule_export]
    use super::records::{RecordScanner, Records, chunked, index_records};
    #[pymodule_export]
    use super::riegeli::{RiegeliReader, RiegeliWriter};
    #[pymodule_export]
    use super::rope::Rope;
    #[pymodule_export]
    use super::schema::Schema;
    #[pymodule_export]
    use super::shuffle::shuffled;
    #[pymodule_export]
    use super::source::{Computed, CoreFile, Sources};
    #[pymodule_export]
    use super::statistics::{Delta, Statistics};
    #[pymodule_export]
    use super::strip::Strip;
    #[pymodule_export]
    use super::xorb::Xorb;

    #[pymodule_export]
    const DEFAULT_FLOOR: u64 = wire::scan::DEFAULT_FLOOR;

    #[pymodule_export]
    const SHORTEST_PIECE: usize = wire::content::SHORTEST;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        if cfg!(debug_assertions) {
            let warnings = module.py().import("warnings")?;
            let text = "protoslice._core is a debug build: ten times slower than a release build";
            warnings.call_method1("warn", (text, module.py().get_type::<pyo3::exceptions::PyRuntimeWarning>()))?;
        }
        Ok(())
    }
}
