//! Cuts by content: the bytes determine where a piece ends, so equal content has equal pieces at any offset.
//!
//! A gear hash of the last 64 bytes is compared with a mask. As in FastCDC (Xia et al., 2016 and 2020), the
//! mask is strict for short pieces and loose for long pieces. So most pieces have about a mebibyte.

/// Bytes of the shortest piece that ends because of its content.
pub const SHORTEST: usize = 256 << 10;
/// Length of a piece in bytes from which the loose mask applies.
const NORMAL: usize = 1 << 20;
/// Bits of the hash that must be 0 at the end of a piece: for pieces shorter than `NORMAL`, and for longer ones.
const STRICT_BITS: u32 = 22;
const LOOSE_BITS: u32 = 18;
/// Bytes that a hash depends on: each step shifts the influence of older bytes up by one bit.
const DEPTH: usize = u64::BITS as usize;

/// A random number for each byte value. It determines the cuts, so a changed table would change all pieces.
const GEAR: [u64; 256] = gear();

/// The length of the first piece of `window`: up to the first cut, or the whole window.
pub fn first_piece(window: &[u8]) -> usize {
    let mut hash = 0u64;
    for (at, byte) in window.iter().enumerate().skip(SHORTEST - DEPTH) {
        // The table has a row for each byte value, so the default is never used.
        hash = (hash << 1).wrapping_add(GEAR.get(usize::from(*byte)).copied().unwrap_or_default());
        let bits = if at < NORMAL { STRICT_BITS } else { LOOSE_BITS };
        if at >= SHORTEST && hash >> (u64::BITS - bits) == 0 {
            return at;
        }
    }
    window.len()
}

/// The table of random numbers, computed with SplitMix64.
const fn gear() -> [u64; 256] {
    let (mut table, mut state, mut row) = ([0; 256], 0u64, 0);
    while row < table.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        #[allow(clippy::indexing_slicing, reason = "a constant, made by the compiler")]
        {
            table[row] = mixed ^ (mixed >> 31);
        }
        row += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random bytes.
    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(next).collect()
    }

    fn ends(mut bytes: &[u8]) -> Vec<usize> {
        let len = bytes.len();
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let window = bytes.get(..(4 << 20).min(bytes.len())).unwrap();
            bytes = bytes.split_at(first_piece(window)).1;
            found.push(len - bytes.len());
        }
        found
    }

    #[test]
    fn short_windows_are_one_piece() {
        for len in [0, 1, SHORTEST - DEPTH, SHORTEST, SHORTEST + 1] {
            assert_eq!(first_piece(&noise(len, 1)), len);
        }
    }

    #[test]
    fn a_cut_depends_on_the_bytes_just_before_it() {
        let mut bytes = noise(8 << 20, 7);
        let cut = first_piece(&bytes);
        assert!((SHORTEST..4 << 20).contains(&cut));
        bytes[..cut - DEPTH].fill(3);
        assert_eq!(first_piece(&bytes), cut);
        bytes[cut - 1] ^= 1;
        assert_ne!(first_piece(&bytes), cut);
    }

    #[test]
    fn an_insertion_changes_a_piece_or_two() {
        let bytes = noise(24 << 20, 11);
        let longer = [noise(100, 5), bytes.clone()].concat();
        let before = ends(&bytes);
        let moved: Vec<usize> = ends(&longer).into_iter().filter(|end| !before.contains(&(end - 100))).collect();
        assert!(moved.len() <= 2, "{moved:?} of {before:?}");
        assert!((12..=36).contains(&before.len()), "{before:?}");
    }

    #[test]
    fn equal_bytes_are_cut_at_the_longest() {
        assert!((0..=255u8).all(|byte| first_piece(&vec![byte; 3 << 20]) == 3 << 20));
    }
}
