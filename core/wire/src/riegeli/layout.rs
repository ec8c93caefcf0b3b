//! Arithmetic for positions in a file that has a block header of 24 bytes at every multiple of 65536.

use crate::rope::{RopeBuilder, SourceId};

/// The size of a block in bytes; every multiple of this is the position of a block header.
pub const BLOCK: u64 = 1 << 16;
/// Length of a block header in bytes.
pub const BLOCK_HEADER: u64 = 24;
/// Bytes of a block that are available for chunks.
pub const USABLE: u64 = BLOCK - BLOCK_HEADER;
/// Length of a chunk header in bytes.
pub const CHUNK_HEADER: u64 = 40;

/// The number of bytes from `position` to the next block; 0 at the start of a block.
pub fn left_in_block(position: u64) -> u64 {
    position.wrapping_neg() % BLOCK
}

/// The start of the block that contains `position`.
pub fn block_of(position: u64) -> u64 {
    position - position % BLOCK
}

/// True if a chunk may begin at `position`, which is neither inside nor directly after a block header.
pub fn is_boundary(position: u64) -> bool {
    left_in_block(position) < USABLE
}

/// The first position from `position` on at which a chunk may begin; None beyond 2^64.
pub fn round_up(position: u64) -> Option<u64> {
    position.checked_add(left_in_block(position).saturating_sub(USABLE - 1))
}

/// The end of `count` bytes that begin at the boundary `position`; None beyond 2^64.
pub fn add(position: u64, count: u64) -> Option<u64> {
    let headers = count.checked_add((position % BLOCK + USABLE - 1) % BLOCK)? / USABLE;
    position.checked_add(count)?.checked_add(headers.checked_mul(BLOCK_HEADER)?)
}

/// The end of the chunk that begins at `begin`. It is after the chunk's data, and at least `records` positions after
/// `begin`, so that begin plus index identifies every record of a file. None beyond 2^64.
pub fn chunk_end(begin: u64, data_size: u64, records: u64) -> Option<u64> {
    let data = add(begin, data_size.checked_add(CHUNK_HEADER)?)?;
    Some(data.max(round_up(begin.checked_add(records)?)?))
}

/// The number of bytes that fit between two boundaries, without the block headers between them.
pub fn distance(begin: u64, end: u64) -> u64 {
    let usable = |position: u64| position / BLOCK * USABLE + (position % BLOCK).saturating_sub(BLOCK_HEADER);
    usable(end).saturating_sub(usable(begin))
}

/// The first position after `position` that is a multiple of `multiple`, at which a chunk may begin, and that leaves
/// room for a chunk header. None beyond 2^64.
pub fn padded(position: u64, multiple: u64) -> Option<u64> {
    let mut end = position.checked_add(multiple - position % multiple)?;
    while !is_boundary(end) || distance(position, end) < CHUNK_HEADER {
        end = end.checked_add(multiple)?;
    }
    Some(end)
}

/// A run of bytes that contains no block header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The position in the file.
    pub position: u64,
    /// Length in bytes.
    pub len: u64,
    /// True if a block header is directly before the run.
    pub after_header: bool,
}

/// The runs of a chunk's bytes, in order.
#[derive(Clone, Debug)]
pub struct Runs {
    position: u64,
    left: u64,
}

/// The runs with the bytes `offset..offset + len` of the chunk at `begin`, counted from the start of the chunk's
/// header. The iterator ends at 2^64.
pub fn runs(begin: u64, offset: u64, len: u64) -> Runs {
    let position = add(begin, offset);
    Runs { position: position.unwrap_or(0), left: if position.is_some() { len } else { 0 } }
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let after_header = self.position.is_multiple_of(BLOCK);
        let position = if after_header { self.position.checked_add(BLOCK_HEADER)? } else { self.position };
        let len = self.left.min(left_in_block(position));
        self.position = position.checked_add(len)?;
        self.left -= len;
        Some(Run { position, len, after_header })
    }
}

/// Appends to `rope` the bytes `offset..offset + len` of the data of the chunk at `begin` in the file `source`.
pub fn extents(begin: u64, offset: u64, len: u64, source: SourceId, rope: &mut RopeBuilder) {
    for run in runs(begin, offset.saturating_add(CHUNK_HEADER), len) {
        rope.extent(source, run.position, run.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The position after `count` more bytes, computed byte by byte.
    fn slow_add(mut position: u64, count: u64) -> u64 {
        for _ in 0..count {
            if position.is_multiple_of(BLOCK) {
                position += BLOCK_HEADER;
            }
            position += 1;
        }
        position
    }

    fn boundary() -> impl Strategy<Value = u64> {
        (0u64..3, prop_oneof![Just(0u64), 25..100u64, BLOCK - 100..BLOCK]).prop_map(|(b, at)| b * BLOCK + at)
    }

    proptest! {
        #[test]
        fn adding_is_adding_byte_by_byte(begin in boundary(), n in prop_oneof![0u64..100, 65400u64..65600, 131000u64..131100]) {
            prop_assert_eq!(add(begin, n), Some(slow_add(begin, n)));
        }

        #[test]
        fn runs_are_the_bytes_one_by_one(begin in boundary(), offset in prop_oneof![0u64..100, 65400u64..65600], len in 1u64..140_000) {
            let mut expected = slow_add(begin, offset);
            for run in runs(begin, offset, len) {
                prop_assert_eq!(run.after_header, expected.is_multiple_of(BLOCK));
                prop_assert_eq!(run.position, if run.after_header { expected + 24 } else { expected });
                prop_assert!(run.len > 0 && run.len <= USABLE);
                prop_assert_eq!(block_of(run.position), block_of(run.position + run.len - 1));
                expected = run.position + run.len;
            }
            prop_assert_eq!(Some(expected), add(begin, offset + len));
            prop_assert_eq!(runs(begin, offset, len).map(|run| run.len).sum::<u64>(), len);
        }

        #[test]
        fn distance_takes_back_what_add_added(begin in boundary(), n in 0u64..200_000) {
            let end = add(begin, n).unwrap();
            prop_assert_eq!(distance(begin, end), n);
        }

        #[test]
        fn chunks_end_where_others_may_begin(begin in boundary(), size in 0u64..200_000, records in 0u64..200_000) {
            let end = chunk_end(begin, size, records).unwrap();
            prop_assert!(is_boundary(end));
            prop_assert!(end >= begin + records && end >= begin + 40 + size);
        }

        #[test]
        fn nothing_wraps_around(begin in any::<u64>(), size in any::<u64>(), records in any::<u64>()) {
            if let Some(end) = chunk_end(begin, size, records) {
                prop_assert!(end > begin);
            }
            prop_assert!(runs(begin, size, records).take(3).all(|run| run.len <= BLOCK));
            prop_assert!(distance(begin, size) <= size.max(begin));
        }
    }

    #[test]
    fn the_signature_ends_at_64() {
        assert_eq!(chunk_end(0, 0, 0), Some(64));
        assert!(is_boundary(0) && is_boundary(25) && is_boundary(65535));
        assert!(!is_boundary(1) && !is_boundary(24));
        assert_eq!(round_up(65537), Some(65536 + 25));
    }
}
