//! Computed elements over foreign bytes: whatever the numbers are, no panic, and every part of a reading is that part.

use std::borrow::Cow;
use std::sync::Arc;

use wire::Result;
use wire::elements::{Computed, Cut, Digits, Shared, Tile};
use wire::source::Source;

/// Bytes that last; windows on them are small, so that a few bytes already take several.
struct Held(Vec<u8>);

impl Source for Held {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.0.as_slice().read(offset, len)
    }

    fn stride(&self) -> u64 {
        16
    }
}

/// Numbers that foreign bytes choose: small ones, and the ones at the edges.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 1 };
        self.0 = rest;
        match first {
            0xf0..=0xff => u64::MAX >> ((first & 15) * 4),
            0xe0..=0xef => 1 << ((first & 15) * 4),
            small => u64::from(small % 32),
        }
    }

    fn several(&mut self, rank: u64) -> Vec<u64> {
        (0..rank).map(|_| self.next()).collect()
    }
}

/// A recipe, and what it is done to.
pub fn elements(data: &[u8]) {
    let (recipe, bytes) = data.split_at(data.len().min(24));
    let mut numbers = Numbers(recipe);
    let mut source: Shared = Arc::new(Held(bytes.to_vec()));
    for _ in 0..=numbers.next() % 3 {
        let Ok(made) = made(&mut numbers, source) else { return };
        source = Arc::new(made);
        look(&*source, &mut numbers);
    }
}

fn made(numbers: &mut Numbers<'_>, source: Shared) -> Result<Computed> {
    let width = 1usize << (numbers.next() % 5);
    let bits = numbers.next() as u32 % 10;
    let signed = numbers.next() % 2 == 1;
    let fitting = if numbers.next().is_multiple_of(4) { numbers.next() } else { source.len() / width as u64 };
    match numbers.next() % 7 {
        0 => Computed::swapped(source, width),
        1 => {
            let count = if bits > 0 && signed { source.len().saturating_mul(8) / u64::from(bits) } else { fitting };
            Computed::unpacked(source, bits, signed, count)
        }
        2 => Computed::cleaned(source, bits, signed),
        3 => Computed::packed(source, bits),
        4 => {
            let more = numbers.next();
            Computed::filled(source, width, fitting.saturating_add(more))
        }
        // Varints are counted, all of them: they are what lies in a file, and not made up.
        5 if source.len() < 1 << 16 => {
            let digits = [Digits::Plain, Digits::ZigZag, Digits::Truth][(numbers.next() % 3) as usize];
            Computed::varints(source, digits, width, fitting, signed)
        }
        5 => Computed::cleaned(source, bits, signed),
        _ => gathered(numbers, source, width),
    }
}

/// Mostly a tensor that fits its source, cut along its first dimension; now and then with a number out of place.
fn gathered(numbers: &mut Numbers<'_>, source: Shared, width: usize) -> Result<Computed> {
    let rank = 1 + numbers.next() % 3;
    let mut shape: Vec<u64> = numbers.several(rank).iter().map(|length| 1 + length % 4).collect();
    let inner: u64 = shape[1..].iter().product();
    shape[0] = (source.len() / width as u64 / inner).min(40);
    let mut strides: Vec<u64> = (0..shape.len()).map(|i| shape[i + 1..].iter().product()).collect();
    let mut cut = Cut { starts: vec![0; shape.len()], steps: vec![1; shape.len()], counts: Vec::new() };
    for (length, (start, step)) in shape.iter().zip(cut.starts.iter_mut().zip(&mut cut.steps)) {
        *start = numbers.next() % length.max(&1);
        *step = 1 + numbers.next() % 3;
        cut.counts.push(length.saturating_sub(*start).div_ceil(*step));
    }
    let first = numbers.next() % (shape[0] + 1);
    let mut starts = vec![0; shape.len()];
    let mut tile = |start: u64, length: u64, numbers: &mut Numbers<'_>| {
        starts[0] = start;
        let mut own = shape.clone();
        own[0] = length;
        let odd = [&mut starts, &mut own, &mut strides].into_iter().nth(numbers.next() as usize % 32);
        if let Some(number) = odd.and_then(|odd| odd.last_mut()) {
            *number = numbers.next();
        }
        Tile { start: starts.clone(), shape: own, strides: strides.clone(), source: Arc::clone(&source) }
    };
    let tiles = vec![tile(first, shape[0] - first, numbers), tile(0, first, numbers)];
    Computed::gathered(tiles, &shape, width, &cut)
}

/// Reads all of a small source, and parts of any; those of what could be read have to be the same.
fn look(source: &dyn Source, numbers: &mut Numbers<'_>) {
    let size = source.len();
    let all = (size <= 1 << 16).then(|| source.read(0, size as usize));
    for _ in 0..4 {
        let offset =
            if numbers.next().is_multiple_of(2) { numbers.next() } else { size.saturating_sub(numbers.next()) };
        let len = numbers.next().min(1 << 16) as usize;
        let part = source.read(offset, len);
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= size);
        assert!(inside || part.is_err());
        if let (Some(Ok(all)), true) = (&all, inside) {
            assert_eq!(part.expect("all of it can be read")[..], all[offset as usize..offset as usize + len]);
        }
    }
}
