//! The distances between the elements of two tensors of the same type and shape, in one pass over both.

use super::{BLOCK, LANES, LEAST_READ, in_lanes};
use crate::elements::Numbers;
use crate::error::{Kind, Result, WireError};
use crate::source::Source;

/// The distances of the pairs of elements read so far.
pub struct Delta {
    numbers: Numbers,
    distances: Distances,
}

/// The numbers of pairs, and sums over the pairs of finite numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distances {
    /// All pairs.
    pub all: u64,
    /// Pairs whose bytes differ.
    pub changed: u64,
    /// Pairs that differ and in which at least one element is not a finite number.
    pub incomparable: u64,
    /// Pairs of finite numbers.
    pub finite: u64,
    /// The largest distance.
    pub max: f64,
    /// The sum of all distances.
    pub sum: f64,
    /// The sum of the squares of all distances.
    pub squares: f64,
    /// The scalar product of both tensors as vectors.
    pub product: f64,
    /// The squared length of the first vector.
    pub one: f64,
    /// The squared length of the second vector.
    pub other: f64,
}

impl Delta {
    /// Starts the distances of elements of type `dtype`, such as `F32`; fails with an `Unsupported` error for types
    /// without numbers.
    ///
    /// Each half of a complex number counts as one element.
    pub fn new(dtype: &str) -> Result<Self> {
        let halves = match dtype {
            "C64" => "F32",
            "C128" => "F64",
            other => other,
        };
        let numbers = Numbers::named(halves).ok_or_else(|| {
            WireError::new(Kind::Unsupported, format!("differences of elements of type {dtype} cannot be computed"))
        })?;
        Ok(Self { numbers, distances: Distances::default() })
    }

    /// Takes the pairs of elements in the bytes of both sources from `start` to `end`; both must be at an element's
    /// border.
    pub fn read(
        &mut self,
        one: &(impl Source + ?Sized),
        other: &(impl Source + ?Sized),
        start: u64,
        end: u64,
    ) -> Result<()> {
        let width = self.numbers.width() as u64;
        if !start.is_multiple_of(width) || !end.is_multiple_of(width) {
            let message = format!("the bytes from {start} to {end} are not whole elements of {width} bytes");
            return Err(WireError::new(Kind::Syntax, message));
        }
        let piece = one.stride().min(other.stride()).clamp(LEAST_READ, 1 << 20);
        let size = usize::try_from(piece.min(end.saturating_sub(start))).unwrap_or_default();
        let (mut before, mut after) = (vec![0; size], vec![0; size]);
        let mut at = start;
        while at < end {
            one.carry_on()?;
            let len = usize::try_from(piece.min(end - at)).unwrap_or_default();
            let (before, after) = (before.get_mut(..len).unwrap_or_default(), after.get_mut(..len).unwrap_or_default());
            one.read_into(at, before)?;
            other.read_into(at, after)?;
            self.take(before, after);
            at += piece;
        }
        Ok(())
    }

    /// Takes the pair of the elements in `one` and `other` another `times` times.
    pub fn repeat(&mut self, one: &[u8], other: &[u8], times: u64) {
        let mut found = Self { numbers: self.numbers.clone(), distances: Distances::default() };
        found.take(one, other);
        self.distances.add_times(&found.distances, times);
    }

    /// The distances so far.
    pub fn distances(&self) -> Distances {
        self.distances
    }

    /// Takes the pairs of elements in two slices of equal length; an incomplete last element is ignored.
    pub fn take(&mut self, one: &[u8], other: &[u8]) {
        let width = self.numbers.width();
        let (mut before, mut after) = ([0.0; BLOCK], [0.0; BLOCK]);
        for (ours, theirs) in one.chunks(BLOCK * width).zip(other.chunks(BLOCK * width)) {
            let count = self.numbers.decode(ours, &mut before).min(self.numbers.decode(theirs, &mut after));
            let (Some(before), Some(after)) = (before.get_mut(..count), after.get_mut(..count)) else { return };
            self.distances.all += count as u64;
            if ours != theirs {
                let pairs = || ours.chunks_exact(width).zip(theirs.chunks_exact(width));
                self.distances.changed += pairs().filter(|(our, their)| our != their).count() as u64;
                self.distances.incomparable += (pairs().zip(before.iter().zip(after.iter())))
                    .filter(|((our, their), (x, y))| our != their && !(x.is_finite() && y.is_finite()))
                    .count() as u64;
            }
            let finite = finite_pairs(before, after);
            let (Some(before), Some(after)) = (before.get(..finite), after.get(..finite)) else { return };
            self.distances.add(before, after);
        }
    }
}

impl Distances {
    /// The cosine of the angle between both vectors; None if one of them is zero or is too long for a float.
    pub fn cosine(&self) -> Option<f64> {
        let lengths = self.one.sqrt() * self.other.sqrt();
        Some(self.product / lengths).filter(|cosine| cosine.is_finite()).map(|cosine| cosine.clamp(-1.0, 1.0))
    }

    /// The length of the difference vector as a share of the first vector's length; None where this length is zero.
    pub fn relative(&self) -> Option<f64> {
        Some(self.squares.sqrt() / self.one.sqrt()).filter(|share| share.is_finite())
    }

    /// Adds the distances `found`, multiplied by `times`.
    fn add_times(&mut self, found: &Self, times: u64) {
        let weight = times as f64;
        if times > 0 {
            self.max = self.max.max(found.max);
        }
        self.all = self.all.saturating_add(found.all.saturating_mul(times));
        self.changed = self.changed.saturating_add(found.changed.saturating_mul(times));
        self.incomparable = self.incomparable.saturating_add(found.incomparable.saturating_mul(times));
        self.finite = self.finite.saturating_add(found.finite.saturating_mul(times));
        self.sum += found.sum * weight;
        self.squares += found.squares * weight;
        self.product += found.product * weight;
        self.one += found.one * weight;
        self.other += found.other * weight;
    }

    fn add(&mut self, before: &[f64], after: &[f64]) {
        let (mut sums, mut most) = ([0.0; LANES], [0.0; LANES]);
        let (mut products, mut squares) = ([0.0; LANES], [0.0; LANES]);
        let (ours, our_rest) = before.as_chunks::<LANES>();
        let (theirs, their_rest) = after.as_chunks::<LANES>();
        for (one, other) in ours.iter().zip(theirs) {
            let lanes = sums.iter_mut().zip(&mut most).zip(&mut products).zip(&mut squares);
            for (((((sum, high), product), square), x), y) in lanes.zip(one).zip(other) {
                let distance = (x - y).abs();
                *sum += distance;
                *square += distance * distance;
                *high = if distance > *high { distance } else { *high };
                *product += x * y;
            }
        }
        for (x, y) in our_rest.iter().zip(their_rest) {
            let distance = (x - y).abs();
            self.sum += distance;
            self.squares += distance * distance;
            self.max = self.max.max(distance);
            self.product += x * y;
        }
        self.finite += before.len() as u64;
        self.sum += sums.iter().sum::<f64>();
        self.max = most.iter().copied().fold(self.max, f64::max);
        self.squares += squares.iter().sum::<f64>();
        self.product += products.iter().sum::<f64>();
        self.one += in_lanes(before, |value| value * value).iter().sum::<f64>();
        self.other += in_lanes(after, |value| value * value).iter().sum::<f64>();
    }
}

/// Moves the pairs of finite numbers to the front and returns their number.
fn finite_pairs(before: &mut [f64], after: &mut [f64]) -> usize {
    // The product of zero and a number that is not finite is NaN, and so is every sum that contains it.
    let probe = |values: &[f64]| in_lanes(values, |value| value * 0.0).iter().sum::<f64>().is_nan();
    if !probe(before) && !probe(after) {
        return before.len();
    }
    let mut kept = 0;
    for at in 0..before.len() {
        let (Some(x), Some(y)) = (before.get(at).copied(), after.get(at).copied()) else { break };
        if x.is_finite() && y.is_finite() {
            before.swap(at, kept);
            after.swap(at, kept);
            kept += 1;
        }
    }
    kept
}
