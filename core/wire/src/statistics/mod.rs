//! Statistics of numbers, computed in one pass over their bytes; the memory does not depend on their number.

mod delta;
mod histogram;

use crate::elements::Numbers;
use crate::error::{Kind, Result, WireError};
use crate::source::Source;

pub use delta::{Delta, Distances};
pub use histogram::Bins;
use histogram::Histogram;

/// Elements that are decoded at a time, so that their 64-bit form stays in the first-level cache of a processor.
const BLOCK: usize = 2048;
/// Sums that are computed side by side, so that an addition does not wait for the previous one.
const LANES: usize = 8;
const LEAST_READ: u64 = 64 << 10;

/// The statistics of the elements read so far. NaNs and infinities are only counted.
pub struct Statistics {
    numbers: Numbers,
    counts: Counts,
    moments: Moments,
    histogram: Histogram,
}

/// The numbers of elements by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All elements.
    pub all: u64,
    /// Elements that are zero, with either sign.
    pub zeros: u64,
    /// Elements that are NaN.
    pub nans: u64,
    /// Infinities of either sign.
    pub infinities: u64,
}

/// The extremes, mean and spread of finite numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// The number of finite elements.
    pub count: u64,
    /// The smallest finite element; infinity when there is none.
    pub min: f64,
    /// The largest finite element; minus infinity when there is none.
    pub max: f64,
    /// The mean of the finite elements.
    pub mean: f64,
    /// The sum of the squared distances from the mean.
    squares: f64,
}

impl Statistics {
    /// Starts statistics of elements of type `dtype`, such as `F32`; fails with an `Unsupported` error for types
    /// without numbers.
    pub fn new(dtype: &str) -> Result<Self> {
        let numbers = Numbers::named(dtype).ok_or_else(|| {
            WireError::new(Kind::Unsupported, format!("statistics of elements of type {dtype} cannot be computed"))
        })?;
        Ok(Self { numbers, counts: Counts::default(), moments: Moments::NONE, histogram: Histogram::new() })
    }

    /// Takes the elements in the bytes of `source` from `start` to `end`; both must be at an element's border.
    pub fn read(&mut self, source: &(impl Source + ?Sized), start: u64, end: u64) -> Result<()> {
        let width = self.numbers.width() as u64;
        if !start.is_multiple_of(width) || !end.is_multiple_of(width) {
            let message = format!("the bytes from {start} to {end} are not whole elements of {width} bytes");
            return Err(WireError::new(Kind::Syntax, message));
        }
        let piece = source.stride().clamp(LEAST_READ, 1 << 20);
        let mut buffer = vec![0; usize::try_from(piece.min(end.saturating_sub(start))).unwrap_or_default()];
        let mut at = start;
        while at < end {
            source.carry_on()?;
            let len = usize::try_from(piece.min(end - at)).unwrap_or_default();
            let room = buffer.get_mut(..len).unwrap_or_default();
            source.read_into(at, room)?;
            self.take(room);
            at += piece;
        }
        Ok(())
    }

    /// Takes the elements in `bytes`; an incomplete last element is ignored.
    pub fn take(&mut self, bytes: &[u8]) {
        let mut block = [0.0; BLOCK];
        for some in bytes.chunks(BLOCK * self.numbers.width()) {
            let count = self.numbers.decode(some, &mut block);
            let values = block.get_mut(..count).unwrap_or_default();
            self.counts.all += count as u64;
            let finite = self.finite(values);
            self.counts.zeros += finite.iter().map(|value| u64::from(*value == 0.0)).sum::<u64>();
            if !finite.is_empty() {
                let moments = Moments::of(finite);
                self.moments = self.moments.with(&moments);
                self.histogram.take(finite, self.moments.min, self.moments.max);
            }
        }
    }

    /// Takes the element in `bytes` another `times` times.
    pub fn repeat(&mut self, bytes: &[u8], times: u64) {
        let mut block = [0.0; BLOCK];
        let count = self.numbers.decode(bytes, &mut block).min(1);
        let Some(value) = block.get(..count).and_then(<[f64]>::first).copied().filter(|_| times > 0) else { return };
        self.counts.all += times;
        if !value.is_finite() {
            self.counts.nans += if value.is_nan() { times } else { 0 };
            self.counts.infinities += if value.is_infinite() { times } else { 0 };
            return;
        }
        self.counts.zeros += if value == 0.0 { times } else { 0 };
        let repeated = Moments { count: times, min: value, max: value, mean: value, squares: 0.0 };
        self.moments = self.moments.with(&repeated);
        self.histogram.repeat(value, times, self.moments.min, self.moments.max);
    }

    /// Moves the finite values to the front and returns them; counts the other values.
    fn finite<'v>(&mut self, values: &'v mut [f64]) -> &'v [f64] {
        // The product of zero and a number that is not finite is NaN, and so is every sum that contains it.
        let probe = in_lanes(values, |value| value * 0.0).iter().sum::<f64>();
        if !probe.is_nan() {
            return values;
        }
        let mut kept = 0;
        for at in 0..values.len() {
            let Some(value) = values.get(at).copied() else { break };
            if value.is_finite() {
                values.swap(at, kept);
                kept += 1;
            } else {
                self.counts.nans += u64::from(value.is_nan());
                self.counts.infinities += u64::from(value.is_infinite());
            }
        }
        values.get(..kept).unwrap_or_default()
    }

    /// The numbers of elements so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The extremes, mean and spread so far; None without a finite element.
    pub fn moments(&self) -> Option<Moments> {
        Some(self.moments).filter(|moments| moments.count > 0)
    }

    /// The finite elements so far in up to `most` bins; None without a finite element.
    pub fn bins(&self, most: usize) -> Option<Bins> {
        self.histogram.bins(most)
    }
}

impl Moments {
    const NONE: Self = Self { count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, mean: 0.0, squares: 0.0 };

    /// The standard deviation of these elements as a whole population, not as a sample.
    pub fn deviation(&self) -> f64 {
        (self.squares / self.count as f64).sqrt()
    }

    fn of(values: &[f64]) -> Self {
        let mut moments = Self { count: values.len() as u64, ..Self::NONE };
        moments.mean = in_lanes(values, |value| value).iter().sum::<f64>() / values.len() as f64;
        let mean = moments.mean;
        moments.squares = in_lanes(values, |value| (value - mean) * (value - mean)).iter().sum();
        let (mut least, mut most) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        let (some, rest) = values.as_chunks::<LANES>();
        for lanes in some {
            for ((value, low), high) in lanes.iter().zip(&mut least).zip(&mut most) {
                *low = if *value < *low { *value } else { *low };
                *high = if *value > *high { *value } else { *high };
            }
        }
        moments.min = least.iter().chain(rest).copied().fold(f64::INFINITY, f64::min);
        moments.max = most.iter().chain(rest).copied().fold(f64::NEG_INFINITY, f64::max);
        moments
    }

    /// The moments of both sets of numbers together (Chan, Golub and LeVeque).
    fn with(&self, other: &Self) -> Self {
        if self.count == 0 {
            return *other;
        }
        let count = self.count + other.count;
        let share = other.count as f64 / count as f64;
        let apart = other.mean - self.mean;
        Self {
            count,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            mean: self.mean + apart * share,
            squares: self.squares + other.squares + apart * apart * (self.count as f64) * share,
        }
    }
}

/// Eight sums of `term`, each over every eighth value.
fn in_lanes(values: &[f64], term: impl Fn(f64) -> f64) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    let (some, rest) = values.as_chunks::<LANES>();
    for lanes in some {
        for (sum, value) in sums.iter_mut().zip(lanes) {
            *sum += term(*value);
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += term(*value);
    }
    sums
}

#[cfg(test)]
mod tests;
