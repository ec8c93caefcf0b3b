//! Shuffling of long lists, for which Python would need a microsecond per object.

use pyo3::prelude::*;
use pyo3::types::PyList;

/// A sequence of random numbers (splitmix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A random number below `count`, which must not be 0. The probabilities differ by at most 2^-64 of `count`.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
}

/// A new list of the `items` in a random order that `seed` determines; all orders are equally likely.
#[pyfunction]
pub(crate) fn shuffled<'py>(items: &Bound<'py, PyList>, seed: u64) -> PyResult<Bound<'py, PyList>> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    let mut draws = Draws(seed);
    for last in (1..order.len()).rev() {
        order.swap(last, draws.below(last + 1));
    }
    PyList::new(items.py(), order.into_iter().map(|at| items.get_item(at)).collect::<PyResult<Vec<_>>>()?)
}
