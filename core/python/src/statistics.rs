//! `_core.Statistics` and `_core.Delta`: statistics of tensor elements, and of the distances between two tensors.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use wire::statistics;

use crate::errors;
use crate::source::RopeArgument;

/// Numbers of elements: total, zeros, NaNs and infinities.
type Counts = (u64, u64, u64, u64);
/// Minimum, maximum, mean and standard deviation of the finite elements.
type Moments = (f64, f64, f64, f64);
/// Start of the first bin, width of each bin, and the bins' counts.
type Bins = (f64, f64, Vec<u64>);

/// Numbers of pairs: total, different pairs, different pairs without a distance, and pairs of finite numbers.
type Pairs = (u64, u64, u64, u64);

/// The statistics of elements of one type, which are read piece by piece.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Statistics(Mutex<statistics::Statistics>);

#[pymethods]
impl Statistics {
    #[new]
    fn new(py: Python<'_>, dtype: &str) -> PyResult<Self> {
        let made = statistics::Statistics::new(dtype);
        made.map(|made| Self(Mutex::new(made))).map_err(|error| errors::raise(py, error))
    }

    /// Takes the elements in the bytes of `data` from `start` to `end`; both must be at an element's border.
    fn read(&self, py: Python<'_>, data: RopeArgument<'_>, start: u64, end: u64) -> PyResult<()> {
        let data = data.held()?;
        py.detach(|| {
            let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            data.with(|source| found.read(source, start, end))
        })
        .map_err(|error| errors::raise(py, error))
    }

    /// Takes `element` another `times` times.
    fn repeat(&self, element: &[u8], times: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).repeat(element, times);
    }

    /// The counts of the elements so far. If any element is finite, also their moments and up to `most` bins.
    fn found(&self, most: usize) -> (Counts, Option<Moments>, Option<Bins>) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = found.counts();
        let moments = found.moments().map(|each| (each.min, each.max, each.mean, each.deviation()));
        let bins = found.bins(most).map(|bins| (bins.start, bins.width, bins.counts));
        ((counts.all, counts.zeros, counts.nans, counts.infinities), moments, bins)
    }
}

/// The distances between the elements of two tensors of one type, which are read piece by piece.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Delta(Mutex<statistics::Delta>);

#[pymethods]
impl Delta {
    #[new]
    fn new(py: Python<'_>, dtype: &str) -> PyResult<Self> {
        let made = statistics::Delta::new(dtype);
        made.map(|made| Self(Mutex::new(made))).map_err(|error| errors::raise(py, error))
    }

    /// Takes the pairs of elements in the bytes from `start` to `end` of both sides.
    fn read(
        &self,
        py: Python<'_>,
        one: RopeArgument<'_>,
        other: RopeArgument<'_>,
        start: u64,
        end: u64,
    ) -> PyResult<()> {
        let (one, other) = (one.held()?, other.held()?);
        py.detach(|| {
            let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            one.with(|before| other.with(|after| found.read(before, after, start, end)))
        })
        .map_err(|error| errors::raise(py, error))
    }

    /// Takes the pair of the elements `one` and `other` another `times` times.
    fn repeat(&self, one: &[u8], other: &[u8], times: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).repeat(one, other, times);
    }

    /// The counts of the pairs so far, the largest distance, and the sum of all distances. Then two values that take
    /// both tensors as vectors: the relative length of their difference, and their cosine.
    fn found(&self) -> (Pairs, f64, f64, Option<f64>, Option<f64>) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).distances();
        let pairs = (found.all, found.changed, found.incomparable, found.finite);
        (pairs, found.max, found.sum, found.relative(), found.cosine())
    }
}
