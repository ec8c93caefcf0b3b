//! `_core.Limits`, the limits on the engine's work.

use pyo3::prelude::*;

/// Limits on the work that the engine does for one input.
#[pyclass(frozen, module = "protoslice._core")]
#[derive(Clone, Copy)]
pub(crate) struct Limits(pub(crate) wire::Limits);

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (*, depth=None, nodes=None, path=None, decoded=None, held=None, side=None, pieces=None, steps=None, metadata=None, chunks=None, records=None, found=None))]
    #[allow(clippy::too_many_arguments, reason = "options with names")]
    fn new(
        depth: Option<u32>,
        nodes: Option<u64>,
        path: Option<usize>,
        decoded: Option<u64>,
        held: Option<u64>,
        side: Option<u64>,
        pieces: Option<usize>,
        steps: Option<u64>,
        metadata: Option<u64>,
        chunks: Option<u64>,
        records: Option<u64>,
        found: Option<u64>,
    ) -> Self {
        let default = wire::Limits::default();
        Self(wire::Limits {
            depth: depth.unwrap_or(default.depth),
            nodes: nodes.unwrap_or(default.nodes),
            path: path.unwrap_or(default.path),
            decoded: decoded.unwrap_or(default.decoded),
            held: held.unwrap_or(default.held),
            side: side.unwrap_or(default.side),
            pieces: pieces.unwrap_or(default.pieces),
            steps: steps.unwrap_or(default.steps),
            metadata: metadata.unwrap_or(default.metadata),
            chunks: chunks.unwrap_or(default.chunks),
            records: records.unwrap_or(default.records),
            found: found.unwrap_or(default.found),
        })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// The caller's limits, or the default limits for None.
pub(crate) fn of(limits: Option<&Bound<'_, Limits>>) -> wire::Limits {
    limits.map_or_else(wire::Limits::default, |limits| limits.get().0)
}
