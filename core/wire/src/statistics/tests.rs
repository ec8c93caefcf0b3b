#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;

fn of(dtype: &str, bytes: &[u8]) -> Statistics {
    let mut found = Statistics::new(dtype).unwrap();
    found.read(bytes, 0, bytes.len() as u64).unwrap();
    found
}

fn floats(values: &[f64]) -> Statistics {
    of("F64", &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

/// Numbers between -1 and 1, from a generator of Lehmer's.
fn some(count: usize) -> Vec<f64> {
    let mut state = 1u64;
    let next = |_| {
        state = state * 48271 % 0x7fff_ffff;
        state as f64 / f64::from(0x4000_0000) - 1.0
    };
    (0..count).map(next).collect()
}

#[test]
fn moments_are_those_of_two_passes() {
    let values: Vec<f64> = some(10_007).into_iter().map(|value| value * 3.0 + 1e6).collect();
    let found = floats(&values).moments().unwrap();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    assert_eq!(found.min, values.iter().copied().fold(f64::INFINITY, f64::min));
    assert_eq!(found.max, values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    assert!((found.mean - mean).abs() < 1e-9 * mean.abs());
    assert!((found.deviation() - (squares / values.len() as f64).sqrt()).abs() < 1e-6);
}

#[test]
fn what_is_no_finite_number_is_counted_apart() {
    let mut values = some(5000);
    values[7] = f64::NAN;
    values[4999] = f64::NEG_INFINITY;
    values[1] = f64::INFINITY;
    values[2048] = 0.0;
    values[2049] = -0.0;
    let found = floats(&values);
    assert_eq!(found.counts(), Counts { all: 5000, zeros: 2, nans: 1, infinities: 2 });
    assert_eq!(found.moments().unwrap().count, 4997);
    assert_eq!(found.bins(64).unwrap().counts.iter().sum::<u64>(), 4997);
    let nothing = floats(&[f64::NAN, f64::INFINITY]);
    assert_eq!((nothing.moments(), nothing.bins(64)), (None, None));
}

#[test]
fn every_bin_holds_the_numbers_between_its_borders() {
    let far = [-1e-300, 1e-9, -7.25, 0.0, 1e3, -3e8, 1e30, -1e300, 8e307, -8e307];
    for last in 1..=far.len() {
        for spread in [1.0, 1e-12, 1e9] {
            let mut values: Vec<f64> = some(3000).into_iter().map(|value| value * spread + 5.0 * spread).collect();
            values.extend(&far[..last]);
            for most in [4, 64] {
                let bins = floats(&values).bins(most).unwrap();
                assert!(bins.counts.len() <= most, "{} bins", bins.counts.len());
                for (bin, count) in bins.counts.iter().enumerate() {
                    let (low, high) = ((bin as f64), (bin as f64 + 1.0));
                    let quotient = |value: &f64| {
                        if *value < 0.0 { (value / bins.width).min(-1e-9) } else { value / bins.width }
                    };
                    let place = |value: &f64| quotient(value).floor() - bins.start / bins.width;
                    let within = values.iter().filter(|value| (low..high).contains(&place(value))).count();
                    assert_eq!(*count, within as u64, "bin {bin} of {bins:?}");
                }
            }
        }
    }
}

#[test]
fn equal_numbers_take_one_bin() {
    for value in [0.0, 1.0, -3.5, 1e300, 5e-324, 123_456_789.0] {
        let bins = floats(&[value; 100]).bins(64).unwrap();
        assert_eq!(bins.counts, [100]);
        assert!(bins.start <= value && value < bins.start + bins.width, "{value} in {bins:?}");
    }
}

#[test]
fn the_farthest_numbers_have_bins() {
    let bins = floats(&[-1.7e308, 1.7e308, 0.0]).bins(64).unwrap();
    assert_eq!(bins.counts.iter().sum::<u64>(), 3);
    assert!(bins.start.is_finite() && bins.width.is_finite(), "{bins:?}");
}

#[test]
fn elements_are_numbers_of_their_type() {
    let least = |dtype: &str, bytes: &[u8]| of(dtype, bytes).moments().map(|found| found.min);
    assert_eq!(least("BF16", &[0x80, 0x3f]), Some(1.0));
    assert_eq!(least("F16", &[0x01, 0x80]), Some(-(2f64.powi(-24))));
    assert_eq!(least("F16", &[0xff, 0x7b]), Some(65504.0));
    assert_eq!(least("F16", &[0x00, 0x7c]), None);
    assert_eq!(least("I4", &[0xf8]), Some(-8.0));
    assert_eq!(least("BOOL", &[7]), Some(1.0));
    assert_eq!(least("U64", &[255; 8]), Some(2f64.powi(64)));
    assert_eq!(least("C64", &[0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40]), Some(5.0));
    assert_eq!(least("F8_E4M3FN", &[0x7e]), Some(448.0));
    assert_eq!(least("F8_E4M3FN", &[0x7f]), None);
    assert_eq!(least("F4_E2M1", &[0x0f]), Some(-6.0));
    assert!(Statistics::new("STRING").is_err());
}

#[test]
fn pieces_end_between_elements() {
    assert!(Statistics::new("F32").unwrap().read(&[0u8; 8][..], 0, 6).is_err());
    let mut found = Statistics::new("F32").unwrap();
    found.read(&[0u8; 8][..], 4, 8).unwrap();
    assert_eq!(found.counts().all, 1);
}

fn distances(one: &[f64], other: &[f64]) -> Distances {
    let bytes = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let (one, other) = (bytes(one), bytes(other));
    let mut found = Delta::new("F64").unwrap();
    found.read(one.as_slice(), other.as_slice(), 0, one.len() as u64).unwrap();
    found.distances()
}

#[test]
fn distances_are_those_of_a_plain_loop() {
    let one = some(10_003);
    let mut other = one.clone();
    other[1] += 0.5;
    other[10_002] -= 2.0;
    let found = distances(&one, &other);
    assert_eq!((found.all, found.changed, found.incomparable, found.finite), (10_003, 2, 0, 10_003));
    assert_eq!(found.max, 2.0);
    assert!((found.sum - 2.5).abs() < 1e-12);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let cosine = dot(&one, &other) / (dot(&one, &one).sqrt() * dot(&other, &other).sqrt());
    assert!((found.cosine().unwrap() - cosine).abs() < 1e-12);
    let gaps: Vec<f64> = one.iter().zip(&other).map(|(x, y)| x - y).collect();
    assert!((found.relative().unwrap() - (dot(&gaps, &gaps) / dot(&one, &one)).sqrt()).abs() < 1e-12);
}

#[test]
fn pairs_without_a_distance_are_counted_apart() {
    let nan = f64::NAN;
    let found = distances(&[nan, nan, 1.0, f64::INFINITY, 4.0], &[nan, 1.0, nan, f64::INFINITY, 3.0]);
    assert_eq!((found.all, found.changed, found.incomparable, found.finite), (5, 3, 2, 1));
    assert_eq!((found.max, found.sum), (1.0, 1.0));
}

#[test]
fn a_vector_of_zeros_has_no_angle() {
    assert_eq!(distances(&[0.0, 0.0], &[1.0, 2.0]).cosine(), None);
    assert_eq!(distances(&[], &[]).cosine(), None);
    assert_eq!(distances(&[0.0, 0.0], &[1.0, 2.0]).relative(), None);
}

#[test]
fn halves_of_complex_numbers_have_distances_of_their_own() {
    let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
    let mut found = Delta::new("C64").unwrap();
    found.take(&bytes([1.0, 0.0]), &bytes([0.0, 1.0]));
    assert_eq!((found.distances().changed, found.distances().max), (2, 1.0));
    assert!(Delta::new("STRING").is_err());
}

#[test]
fn repeated_elements_count_as_if_they_were_read() {
    for value in [0.0, -0.0, 2.5, -1e300, f64::NAN, f64::INFINITY] {
        let mut values = some(300);
        let mut found = floats(&values);
        found.repeat(&value.to_le_bytes(), 5000);
        values.extend([value; 5000]);
        let read = floats(&values);
        assert_eq!(found.counts(), read.counts(), "{value}");
        assert_eq!(found.bins(64), read.bins(64), "{value}");
        let (one, other) = (found.moments().unwrap(), read.moments().unwrap());
        assert_eq!((one.count, one.min, one.max), (other.count, other.min, other.max));
        assert!((one.mean - other.mean).abs() <= 1e-9 * other.mean.abs().max(1.0));
        assert!(value < -1.0 || (one.deviation() - other.deviation()).abs() < 1e-9);
    }
    let mut vast = Statistics::new("F32").unwrap();
    vast.repeat(&1e30f32.to_le_bytes(), 1 << 60);
    assert_eq!(vast.counts().all, 1 << 60);
    assert_eq!((vast.moments().unwrap().deviation(), vast.bins(64).unwrap().counts), (0.0, vec![1 << 60]));
}

#[test]
fn repeated_pairs_count_as_if_they_were_read() {
    for (x, y) in [(1.0, 1.0), (3.0, -2.5), (f64::NAN, 1.0), (f64::NAN, f64::NAN)] {
        let (mut one, mut other) = (vec![1.0, 2.0, 3.0], vec![1.5, 2.0, 7.0]);
        let bytes = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let mut found = Delta::new("F64").unwrap();
        found.take(&bytes(&one), &bytes(&other));
        found.repeat(&x.to_le_bytes(), &y.to_le_bytes(), 4096);
        one.extend([x; 4096]);
        other.extend([y; 4096]);
        let (found, read) = (found.distances(), distances(&one, &other));
        let counts = |each: &Distances| (each.all, each.changed, each.incomparable, each.finite, each.max);
        assert_eq!(counts(&found), counts(&read));
        assert!((found.sum - read.sum).abs() < 1e-6 && (found.product - read.product).abs() < 1e-6);
    }
}
