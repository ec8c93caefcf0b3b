//! `protoslice._core`: glue only. What it does is in the `wire` crate; what it is called like is in `_core.pyi`.

use pyo3::prelude::*;

mod errors;
mod schema;
#[allow(dead_code, reason = "the first classes come next")]
mod source;

/// The wire engine: bytes in, facts out.
#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::schema::Schema;

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
