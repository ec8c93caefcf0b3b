//! Records by key: the numbers of records by a hash of one field's value, in eight bytes per record.

use std::hash::{BuildHasher, RandomState};

use super::framing::Framing;
use crate::error::{Kind, Result, WireError};

const ENTRY: u64 = size_of::<u64>() as u64;
/// Fewest entries by which the table grows.
const STEP: usize = 1 << 12;

/// The hashes of keys with the numbers of their records. The upper bits of an entry are the hash, and the lower bits
/// are the number. A longer stream leaves fewer bits for hashes, but the reader compares all candidates anyway.
///
/// The hash has a random seed, so that no one can construct values whose hashes collide.
#[derive(Debug)]
pub struct KeyTable<S = RandomState> {
    entries: Vec<u64>,
    /// The number of bits for a record's number.
    bits: u32,
    most: u64,
    hasher: S,
}

impl KeyTable {
    /// Makes an empty table for a stream of `count` records; it takes up to `most` bytes of memory.
    pub fn new(count: u64, most: u64) -> Self {
        Self::hashed_by(RandomState::new(), count, most)
    }
}

impl<S: BuildHasher> KeyTable<S> {
    fn hashed_by(hasher: S, count: u64, most: u64) -> Self {
        // At least one bit belongs to the hash.
        Self { entries: Vec::new(), bits: (u64::BITS - count.leading_zeros()).min(u64::BITS - 1), most, hasher }
    }

    /// Number of records that have a key.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no record has a key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory.
    pub fn weight(&self) -> u64 {
        self.entries.capacity() as u64 * ENTRY
    }

    /// Appends record `number`, which has `key`; fails with a `Limit` error when the table would take too much memory.
    pub fn push(&mut self, number: u64, key: &[u8]) -> Result<()> {
        if self.entries.len() == self.entries.capacity() {
            self.grow()?;
        }
        self.entries.push(self.hash(key) | number & self.mask());
        Ok(())
    }

    /// Appends the records from number `first` on; `delimited` has their keys, and an empty key means no key.
    pub fn push_all(&mut self, first: u64, mut delimited: &[u8]) -> Result<()> {
        let mut number = first;
        while let Some(head) = Framing::Delimited.head(delimited, 0)? {
            let rest = delimited.get(head.len as usize..).unwrap_or_default();
            let len = usize::try_from(head.content).unwrap_or(usize::MAX);
            let (key, after) = rest
                .split_at_checked(len)
                .ok_or_else(|| WireError::corrupt(0, "the list of keys ends inside a key"))?;
            if !key.is_empty() {
                self.push(number, key)?;
            }
            (delimited, number) = (after, number + 1);
        }
        Ok(())
    }

    /// Sorts the table; must be called once, after the last record.
    pub fn sort(&mut self) {
        self.entries.sort_unstable();
        self.entries.shrink_to_fit();
    }

    /// The numbers of the records that may have `key`, in order, including records whose key has the same hash. Fails
    /// with a `Limit` error for more than `most`.
    pub fn numbers(&self, key: &[u8], most: usize) -> Result<Vec<u64>> {
        let (hash, mask) = (self.hash(key), self.mask());
        let begin = self.entries.partition_point(|entry| *entry < hash);
        let end = self.entries.partition_point(|entry| *entry <= hash | mask);
        let alike = self.entries.get(begin..end).unwrap_or_default();
        if alike.len() > most {
            let message = format!("{} records have the key, but at most {most} are returned at a time", alike.len());
            return Err(WireError::new(Kind::Limit, message));
        }
        Ok(alike.iter().map(|entry| entry & mask).collect())
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key) & !self.mask()
    }

    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Makes room for an eighth more entries, so that the counted memory equals the allocated memory.
    fn grow(&mut self) -> Result<()> {
        let room = usize::try_from(self.most / ENTRY).unwrap_or(usize::MAX).saturating_sub(self.entries.len());
        let step = STEP.max(self.entries.len() / 8).min(room);
        if step == 0 {
            let message = format!("the keys of a stream take more than {} bytes of memory", self.most);
            return Err(WireError::new(Kind::Limit, message));
        }
        self.entries.reserve_exact(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;

    /// A hash with which all values collide.
    #[derive(Default)]
    struct Alike;

    impl Hasher for Alike {
        fn write(&mut self, _: &[u8]) {}
        fn finish(&self) -> u64 {
            u64::MAX
        }
    }

    #[test]
    fn numbers_are_those_of_a_map() {
        let mut oracle = BTreeMap::<Vec<u8>, Vec<u64>>::new();
        let mut table = KeyTable::new(100_000, 1 << 20);
        for number in (0..100_000).filter(|number| number % 3 > 0) {
            let key = format!("{}", number * number % 1009).into_bytes();
            table.push(number, &key).unwrap();
            oracle.entry(key).or_default().push(number);
        }
        table.sort();
        for (key, numbers) in &oracle {
            assert_eq!(&table.numbers(key, 1000).unwrap(), numbers);
        }
        assert_eq!(table.numbers(b"none", 0).unwrap().len(), 0);
    }

    #[test]
    fn an_empty_key_is_of_a_record_without_one() {
        let mut table = KeyTable::new(4, 1 << 20);
        table.push_all(0, b"\x01a\x00").unwrap();
        table.push_all(2, b"\x01b\x01a").unwrap();
        table.sort();
        let found = [&b"a"[..], b"b", b""].map(|key| table.numbers(key, 2).unwrap());
        assert_eq!(found, [vec![0, 3], vec![2], vec![]]);
        assert!(table.push_all(4, b"\x05a").is_err());
    }

    #[test]
    fn values_that_collide_are_all_candidates() {
        let mut table = KeyTable::hashed_by(BuildHasherDefault::<Alike>::default(), 10, 1 << 20);
        for number in 0..10 {
            table.push(number, &[number as u8]).unwrap();
        }
        table.sort();
        assert_eq!(table.numbers(b"any", 10).unwrap(), (0..10).collect::<Vec<_>>());
        assert_eq!(table.numbers(b"any", 9).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn memory_is_counted_as_it_is_held_and_bounded() {
        let most = 100_000 * ENTRY;
        let mut table = KeyTable::new(1 << 40, most);
        let error = (0..).find_map(|number| table.push(number, b"a").err()).unwrap();
        assert_eq!((error.kind(), table.len()), (Kind::Limit, 100_000));
        assert_eq!(table.weight(), most);
    }

    #[test]
    fn numbers_of_any_size_leave_a_bit_of_the_hash() {
        for count in [0, 1, u64::from(u32::MAX), u64::MAX] {
            let mut table = KeyTable::new(count, 1 << 20);
            let number = count.saturating_sub(1) & (u64::MAX >> 1);
            table.push(number, b"a").unwrap();
            table.sort();
            assert_eq!(table.numbers(b"a", 1).unwrap(), [number]);
        }
    }
}
