//! Seeded randomness, and what it does to bytes.

/// A small random generator: the same numbers for the same seed, everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when there is none.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const NASTY: [u8; 12] = [0, 1, 0x0a, 0x0b, 0x0c, 0x12, 0x2a, 0x7f, 0x80, 0x93, 0xfe, 0xff];
const LENGTHS: [&[u8]; 6] = [
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x10],
    &[0xff, 0xff, 0x7f],
    &[0x80, 0x00],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
];

/// `bytes` with one to four things wrong with them; some from `other`.
pub fn damaged(bytes: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(out.len() + 1);
        match rng.below(8) {
            0 if at < out.len() => out[at] ^= 1 << rng.below(8),
            1 if at < out.len() => out[at] = *rng.of(&NASTY),
            2 => out.truncate(at),
            3 => {
                let end = (at + 1 + rng.below(16)).min(out.len());
                out.drain(at..end);
            }
            4 => {
                let from = rng.below(other.len() + 1);
                let part = &other[from..(from + rng.below(64)).min(other.len())];
                out.splice(at..at, part.iter().copied());
            }
            5 => {
                let end = (at + 1).min(out.len());
                out.splice(at..end, rng.of(&LENGTHS).iter().copied());
            }
            6 => {
                let end = (at + rng.below(40)).min(out.len());
                let copy = out[at..end].to_vec();
                out.splice(at..at, copy);
            }
            _ => {
                for byte in out.iter_mut().skip(at).take(8) {
                    *byte = rng.next() as u8;
                }
            }
        }
    }
    out
}
