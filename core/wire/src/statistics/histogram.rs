//! Histograms of numbers whose range is not known beforehand; they are exact after one pass.
//!
//! All bins have the same width, a power of two, and begin at multiples of the width. Bins that turn out to be too
//! narrow are joined in pairs, so no number has to move across a border.

/// Bins that are kept during the pass. This is more than any caller shows, because each doubling of the range halves
/// the number of bins in use.
const BINS: usize = 1024;
/// Numbers whose bins are computed before they are counted.
const BATCH: usize = 256;
/// The lowest exponent of a width whose reciprocal is a normal number too.
const LEAST: i32 = -1022;
/// The bits of a bin's number, which stays below 2^50. In this range, floats are exact and the trick of `floor` works.
const PRECISION: i32 = 50;
/// 1.5 × 2^52: a sum with this number has no room for a fraction, so adding and subtracting it rounds to a whole
/// number.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// Bins of equal width; each contains the numbers from its start to the start of the next bin.
#[derive(Clone, Debug, PartialEq)]
pub struct Bins {
    /// The start of the first bin.
    pub start: f64,
    /// The width of each bin, a power of two.
    pub width: f64,
    /// How many numbers each bin contains.
    pub counts: Vec<u64>,
}

pub(super) struct Histogram {
    /// The exponent of the width; None before the first number.
    exponent: Option<i32>,
    /// The number of the first bin; its start is this number times the width.
    first: f64,
    counts: Box<[u64; BINS]>,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { exponent: None, first: 0.0, counts: Box::new([0; BINS]) }
    }

    /// Counts `values`, which must be finite. All numbers so far, including these, are from `min` to `max`.
    pub(super) fn take(&mut self, values: &[f64], min: f64, max: f64) {
        let exponent = self.cover(min, max);
        let (scale, first) = (2f64.powi(-exponent), self.first);
        let mut places = [0usize; BATCH];
        for some in values.chunks(BATCH) {
            for (place, value) in places.iter_mut().zip(some) {
                *place = (floor(scaled(*value, scale)) - first + ROUNDING).to_bits() as usize % BINS;
            }
            for place in places.iter().take(some.len()) {
                if let Some(count) = self.counts.get_mut(*place) {
                    *count += 1;
                }
            }
        }
    }

    /// Counts `value`, which must be finite, `times` times. All numbers so far, including this one, are from `min` to
    /// `max`.
    pub(super) fn repeat(&mut self, value: f64, times: u64, min: f64, max: f64) {
        let exponent = self.cover(min, max);
        let place = number(value, exponent) - self.first;
        if let Some(count) = self.counts.get_mut(place as usize) {
            *count += times;
        }
    }

    /// Widens the bins until they cover `min` to `max`, and returns the exponent of their width.
    fn cover(&mut self, min: f64, max: f64) -> i32 {
        let now = self.exponent.unwrap_or_else(|| finest(min, max));
        let mut exponent = now.max(reaching(min, max));
        while number(max, exponent) - number(min, exponent) >= BINS as f64 {
            exponent += 1;
        }
        let first = number(min, exponent);
        if self.exponent.is_some() && (exponent, first) != (now, self.first) {
            self.move_to(exponent - now, first);
        }
        (self.exponent, self.first) = (Some(exponent), first);
        exponent
    }

    /// Joins 2^`doublings` bins each to one bin, and makes `first` the number of the first bin.
    fn move_to(&mut self, doublings: i32, first: f64) {
        let mut counts = Box::new([0; BINS]);
        for (place, count) in (0u32..).zip(self.counts.iter()).filter(|(_, count)| **count > 0) {
            let bin = ((self.first + f64::from(place)) * 2f64.powi(-doublings.min(1000))).floor() - first;
            if let Some(sum) = counts.get_mut(bin as usize) {
                *sum += count;
            }
        }
        self.counts = counts;
    }

    /// The numbers in up to `most` bins, but at least four, without empty bins at the ends; None without numbers.
    pub(super) fn bins(&self, most: usize) -> Option<Bins> {
        let mut exponent = self.exponent?;
        let used = || self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(place, _)| place as f64);
        let (low, high) = (self.first + used().next()?, self.first + used().next_back()?);
        let bin =
            |number: f64, exponent: i32| (number * 2f64.powi(self.exponent.unwrap_or_default() - exponent)).floor();
        while bin(high, exponent) - bin(low, exponent) >= most.max(4) as f64 {
            exponent += 1;
        }
        let first = bin(low, exponent);
        let mut counts = vec![0; (bin(high, exponent) - first) as usize + 1];
        for (place, count) in (0u32..).zip(self.counts.iter()).filter(|(_, count)| **count > 0) {
            if let Some(sum) = counts.get_mut((bin(self.first + f64::from(place), exponent) - first) as usize) {
                *sum += count;
            }
        }
        let width = 2f64.powi(exponent);
        // The bin of the lowest possible numbers would begin at -2^1024, which is not a float.
        Some(Bins { start: (first * width).max(f64::MIN), width, counts })
    }
}

/// The exponent of a width with which `min` to `max` take about half of the bins.
fn finest(min: f64, max: f64) -> i32 {
    // The values are halved, so that the distance of the largest numbers is still a float.
    let half = max / 2.0 - min / 2.0;
    if half > 0.0 { exponent_of(half) + 3 - BINS.ilog2().cast_signed() } else { LEAST }
}

/// The lowest exponent of a width with which all numbers of bins are exact.
fn reaching(min: f64, max: f64) -> i32 {
    (exponent_of(min.abs().max(max.abs())) - PRECISION).max(LEAST)
}

/// The exponent of the largest power of two that is at most `number`; for subnormal numbers and zero, a lower exponent.
fn exponent_of(number: f64) -> i32 {
    i32::try_from(number.to_bits() >> 52 & 0x7ff).unwrap_or_default() - 1023
}

/// The number of the bin that contains `value`.
fn number(value: f64, exponent: i32) -> f64 {
    scaled(value, 2f64.powi(-exponent)).floor()
}

/// The product of `value` and `scale`. A negative product that is too small for a float stays below zero.
fn scaled(value: f64, scale: f64) -> f64 {
    let product = value * scale;
    if value < 0.0 && product == 0.0 { -f64::MIN_POSITIVE } else { product }
}

/// The largest whole number that is at most `value`, which must be below 2^51. On older processors, `f64::floor` would
/// be a function call.
fn floor(value: f64) -> f64 {
    let rounded = value + ROUNDING - ROUNDING;
    if rounded > value { rounded - 1.0 } else { rounded }
}
