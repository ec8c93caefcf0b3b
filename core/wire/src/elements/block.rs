//! Boxes of a selection: they map an element's place in a source to its place in the output.

use std::ops::Range;

/// One dimension of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) count: u64,
    /// Distance to the next element in the source, in elements.
    pub(super) from: u64,
    /// Distance to the next element in the output, in elements.
    pub(super) to: u64,
}

/// A box: element `from` of a source belongs at place `to` of the output, and further elements follow along the
/// dimensions. Each dimension has more than one element. In the output, a step along a dimension is longer than the
/// extent of all inner dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) dims: Vec<Dim>,
}

impl Block {
    /// Makes a box and merges its dimensions where possible.
    pub(super) fn new(from: u64, to: u64, dims: impl IntoIterator<Item = Dim>) -> Self {
        let mut merged: Vec<Dim> = Vec::new();
        for dim in dims.into_iter().filter(|dim| dim.count > 1) {
            let all = (dim.from.checked_mul(dim.count), dim.to.checked_mul(dim.count));
            match merged.last_mut() {
                Some(outer) if all == (Some(outer.from), Some(outer.to)) => {
                    *outer = Dim { count: outer.count.saturating_mul(dim.count), ..dim };
                }
                _ => merged.push(dim),
            }
        }
        Self { from, to, dims: merged }
    }

    /// The place of the last element in the output.
    pub(super) fn last(&self) -> u64 {
        self.to + span(&self.dims)
    }

    /// Appends to `found` the boxes of the elements whose place is in `range` of the output: one or two per dimension.
    pub(super) fn within(&self, range: &Range<u64>, found: &mut Vec<Self>) {
        let last = self.last();
        if last < range.start || range.end <= self.to {
            return;
        }
        if range.start <= self.to && last < range.end {
            found.push(self.clone());
            return;
        }
        let Some((outer, inner)) = self.dims.split_first() else { return };
        let span = span(inner);
        let (start, end) = (range.start.saturating_sub(self.to), range.end - self.to);
        let touched = start.saturating_sub(span).div_ceil(outer.to)..outer.count.min((end - 1) / outer.to + 1);
        let whole = start.div_ceil(outer.to)..outer.count.min(end.saturating_sub(span).div_ceil(outer.to));
        let parts = (touched.start..whole.start.min(touched.end)).chain(whole.end.max(whole.start)..touched.end);
        for number in parts {
            self.at(number, outer, inner).within(range, found);
        }
        if let Some(count) = whole.end.checked_sub(whole.start).filter(|count| *count > 0) {
            let part = self.at(whole.start, outer, inner);
            let dims = [Dim { count, ..*outer }].into_iter().chain(part.dims.iter().copied());
            found.push(Self::new(part.from, part.to, dims));
        }
    }

    /// The part of the box at index `number` of the outermost dimension.
    fn at(&self, number: u64, outer: &Dim, inner: &[Dim]) -> Self {
        Self { from: self.from + number * outer.from, to: self.to + number * outer.to, dims: inner.to_vec() }
    }
}

/// The distance in the output from the first to the last element along `dims`.
fn span(dims: &[Dim]) -> u64 {
    dims.iter().map(|dim| (dim.count - 1) * dim.to).sum()
}
