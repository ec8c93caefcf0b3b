//! Sorted tables and the indexes of bundles: what is written is read, and what is wrong is told with its place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use std::borrow::Cow;
use std::cell::Cell;

use common::tables::{Entries, Shape, table};
use common::{Bytes, corpus};
use proptest::prelude::*;
use wire::bundle::Bundle;
use wire::source::Source;
use wire::table::{MAX_BLOCK, walk};
use wire::{Kind, Limits, Result};

fn read(data: &[u8]) -> Result<Entries> {
    let mut all = Vec::new();
    walk(&Bytes(data), |entry| {
        all.push((entry.key.to_vec(), entry.value.to_vec()));
        Ok(())
    })?;
    Ok(all)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        all in prop::collection::btree_map("[a-c/]{0,12}", prop::collection::vec(any::<u8>(), 0..300), 0..80),
        block in 1usize..40,
        share: bool,
        snappy: bool,
    ) {
        let all: Entries = all.into_iter().map(|(key, value)| (key.into_bytes(), value)).collect();
        let data = table(&all, &Shape { block, share, snappy }, |_| ());
        prop_assert_eq!(read(&data).unwrap(), all);
    }

    #[test]
    fn every_flipped_bit_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8, snappy: bool) {
        let mut data = table(&some(), &Shape { block: 2, share: true, snappy }, |_| ());
        let at = at.index(data.len());
        data[at] ^= 1 << bit;
        // A block that is not read, and what fills the footer up, say nothing.
        prop_assert!(read(&data).map_or(true, |all| all == some()));
    }
}

fn some() -> Entries {
    ["", "a", "ab", "abc", "b", "ba"].iter().map(|key| (key.as_bytes().to_vec(), key.repeat(30).into_bytes())).collect()
}

fn plain(entries: &Entries) -> Vec<u8> {
    table(entries, &Shape { block: 2, share: true, snappy: false }, |_| ())
}

#[test]
fn a_table_that_is_cut_off_is_no_table() {
    let data = plain(&some());
    for len in 0..data.len() {
        assert_eq!(read(&data[..len]).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn blocks_that_cannot_be_are_refused() {
    let cases: [(&[u8], Kind, &str); 5] = [
        (b"", Kind::Corrupt, "restart points"),
        (&[0, 1, 0, b'x', 0xff, 0xff, 0xff, 0xff], Kind::Corrupt, "restart points"),
        (&[9, 1, 0, b'x', 0, 0, 0, 0, 1, 0, 0, 0], Kind::Corrupt, "bytes of the previous key"),
        (&[0, 99, 0, b'x', 0, 0, 0, 0, 1, 0, 0, 0], Kind::Corrupt, "99 bytes are needed"),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], Kind::Corrupt, "order"),
    ];
    for (block, kind, words) in cases {
        let data = table(&some(), &Shape { block: 100, share: true, snappy: false }, |content| {
            if content.len() > 100 {
                *content = block.to_vec();
            }
        });
        let error = read(&data).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.offset().is_some(), "{error}");
    }
}

#[test]
fn one_block_is_not_read_twice() {
    let mut handles = 0;
    let data = table(&some(), &Shape { block: 2, share: true, snappy: false }, |content| {
        handles += 1;
        if handles == 4 {
            let first = content[4..6].to_vec();
            let at = content.windows(3).rposition(|window| window[1] >= 0x80).unwrap();
            content.splice(at + 1..at + 3, first);
        }
    });
    assert!(read(&data).is_err());
}

#[test]
fn what_unpacks_to_more_than_can_be_is_refused() {
    let lies: [(u64, Kind); 2] = [(1 << 20, Kind::Corrupt), (MAX_BLOCK + 1, Kind::Limit)];
    for (lie, kind) in lies {
        let mut packed = Vec::new();
        wire::varint::write(lie, &mut packed);
        packed.extend([0, b'x']);
        assert_eq!(read(&resealed(&packed)).unwrap_err().kind(), kind);
    }
}

/// A table whose index block is these packed bytes.
fn resealed(packed: &[u8]) -> Vec<u8> {
    let mut out = packed.to_vec();
    out.push(1);
    let sum = crc32c::crc32c(&out).rotate_right(15).wrapping_add(0xa282_ead8);
    out.extend(sum.to_le_bytes());
    let mut footer = vec![0, 0, 0, packed.len() as u8];
    footer.resize(40, 0);
    out.extend(footer);
    out.extend(wire::table::MAGIC);
    out
}

/// A source that notes the longest read.
struct Noting<'a>(Bytes<'a>, Cell<usize>);

impl Source for Noting<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.1.set(self.1.get().max(len));
        self.0.read(offset, len)
    }
}

#[test]
fn a_long_index_is_read_block_by_block() {
    let all: Entries = (0..20_000u32).map(|at| (format!("{at:08}").into_bytes(), vec![7; 40])).collect();
    let data = table(&all, &Shape { block: 50, share: true, snappy: false }, |_| ());
    let source = Noting(Bytes(&data), Cell::new(0));
    let mut count = 0;
    walk(&source, |_| {
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(count, 20_000);
    assert!(source.1.get() < 20_000 && data.len() > 500_000, "the longest read was {}", source.1.get());
}

#[test]
fn bundles_know_their_slices() {
    let grid = corpus::tables()
        .into_iter()
        .find(|data| Bundle::open(&Bytes(data), &Limits::default()).is_ok_and(|bundle| bundle.find(b"grid").is_some()));
    let data = grid.unwrap();
    let bundle = Bundle::open(&Bytes(&data), &Limits::default()).unwrap();
    assert_eq!((bundle.len(), bundle.shards(), bundle.big_endian()), (5, 1, false));
    let number = bundle.find(b"grid").unwrap();
    let placed = bundle.tensor(number).unwrap();
    assert_eq!(placed.shape(), Some(&[8, 10][..]));
    assert_eq!(placed.slices.len(), 4);
    for slice in &placed.slices {
        assert!(bundle.slice(b"grid", slice).unwrap().is_some());
    }
    assert_eq!(bundle.slice(b"grid", &[(0, Some(1))]).unwrap(), None);
    assert_eq!(bundle.name(5), None);
}
