//! `_core.Statistics`: statistics of the elements of tensors.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use wire::statistics;

use crate::errors;
use crate::rope::Rope;
use crate::source::Sources;

/// Numbers of elements: all, zeros, NaN, infinities.
type Counts = (u64, u64, u64, u64);
/// Least, greatest, mean and deviation of the finite elements.
type Moments = (f64, f64, f64, f64);
/// Beginning of the first bin, width of each, and their counts.
type Bins = (f64, f64, Vec<u64>);

/// Statistics of elements of one type, read piece by piece.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Statistics(Mutex<statistics::Statistics>);

#[pymethods]
impl Statistics {
    #[new]
    fn new(py: Python<'_>, dtype: &str) -> PyResult<Self> {
        let made = statistics::Statistics::new(dtype);
        made.map(|made| Self(Mutex::new(made))).map_err(|error| errors::raise(py, error))
    }

    /// Takes the elements in the bytes of `rope` from `start` up to `end`, both at borders of elements.
    fn read(
        &self,
        py: Python<'_>,
        rope: &Bound<'_, Rope>,
        sources: Vec<Bound<'_, PyAny>>,
        start: u64,
        end: u64,
    ) -> PyResult<()> {
        let (rope, sources) = (&rope.get().0, Sources::new(&sources)?);
        py.detach(|| {
            let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            sources.with(Some(rope), |source| found.read(source, start, end))
        })
        .map_err(|error| errors::raise(py, error))
    }

    /// Counts of the elements so far, and, if any of them is finite, their moments and at most `most` bins of them.
    fn found(&self, most: usize) -> (Counts, Option<Moments>, Option<Bins>) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = found.counts();
        let moments = found.moments().map(|each| (each.min, each.max, each.mean, each.deviation()));
        let bins = found.bins(most).map(|bins| (bins.start, bins.width, bins.counts));
        ((counts.all, counts.zeros, counts.nans, counts.infinities), moments, bins)
    }
}
