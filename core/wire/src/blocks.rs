//! Block sums: a CRC-32C for every 64 KiB of an object. They are computed while the bytes arrive and compared before
//! the bytes are served.

/// Bytes that one checksum covers.
pub const BLOCK: usize = 64 << 10;
const WIDTH: usize = 4;

/// Computes the block checksums of a stream.
#[derive(Debug, Default)]
pub struct BlockSums {
    sums: Vec<u8>,
    current: u32,
    filled: usize,
}

impl BlockSums {
    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.current = crc32c::crc32c_append(self.current, part);
            self.filled += part.len();
            if self.filled == BLOCK {
                self.flush();
            }
            bytes = rest;
        }
    }

    /// All checksums, four bytes each, little-endian. The last block may be short.
    pub fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.flush();
        }
        self.sums
    }

    fn flush(&mut self) {
        self.sums.extend_from_slice(&self.current.to_le_bytes());
        (self.current, self.filled) = (0, 0);
    }
}

/// The CRC-32C of data that continues with `bytes`; `before` is the CRC-32C of the data so far, 0 at the start.
pub fn crc32c(bytes: &[u8], before: u32) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// The number of the first block in `bytes` that differs from its checksum or has none; None when all blocks agree.
/// `bytes` begin with block number `first`.
pub fn first_bad_block(bytes: &[u8], first: usize, sums: &[u8]) -> Option<usize> {
    let stored = sums.chunks_exact(WIDTH).skip(first).map(Some).chain(std::iter::repeat(None));
    let bad =
        bytes.chunks(BLOCK).zip(stored).position(|(block, sum)| sum != Some(&crc32c::crc32c(block).to_le_bytes()));
    bad.map(|at| first + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_flipped_bit_is_noticed_in_its_block() {
        let mut bytes: Vec<u8> = (0..3 * BLOCK + 100).map(|i| (i ^ (i >> 16)) as u8).collect();
        let mut sums = BlockSums::default();
        bytes.chunks(1000).for_each(|piece| sums.update(piece));
        let sums = sums.finish();
        assert_eq!(sums.len(), 4 * WIDTH);
        assert_eq!(first_bad_block(&bytes, 0, &sums), None);
        assert_eq!(first_bad_block(&bytes[2 * BLOCK..], 2, &sums), None);
        for at in [0, BLOCK - 1, BLOCK, 3 * BLOCK + 99] {
            bytes[at] ^= 0x10;
            assert_eq!(first_bad_block(&bytes, 0, &sums), Some(at / BLOCK));
            bytes[at] ^= 0x10;
        }
        assert_eq!(first_bad_block(&bytes, 1, &sums), Some(1));
        assert_eq!(first_bad_block(b"more", 4, &sums), Some(4));
    }

    proptest! {
        #[test]
        fn how_it_is_cut_does_not_matter(cuts in prop::collection::vec(1usize..200_000, 1..6)) {
            let bytes: Vec<u8> = (0..300_000usize).map(|i| (i ^ (i >> 8)) as u8).collect();
            let mut whole = BlockSums::default();
            whole.update(&bytes);
            let mut cut = BlockSums::default();
            let mut rest = &bytes[..];
            for at in cuts {
                let (part, left) = rest.split_at(at.min(rest.len()));
                cut.update(part);
                rest = left;
            }
            cut.update(rest);
            prop_assert_eq!(cut.finish(), whole.finish());
        }
    }
}
