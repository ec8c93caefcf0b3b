//! ArrayRecord files whose footers lie: refused with the offset of the lie, without a panic and without memory for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use common::Bytes;
use wire::records::{Framing, Index, Reading, index_source};
use wire::riegeli::header::signature;
use wire::riegeli::writer::{header_of, put_chunk};
use wire::riegeli::{ChunkHeader, ChunkKind};
use wire::{Kind, Limits, Result};

const BLOCK: u64 = 1 << 16;
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A message of the varints `values` in fields 1, 2 and so on.
fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().zip(1u8..).flat_map(|(value, field)| [vec![field << 3], varint(*value)].concat()).collect()
}

fn simple(records: &[Vec<u8>]) -> (ChunkHeader, Vec<u8>) {
    let sizes: Vec<u8> = records.iter().flat_map(|record| varint(record.len() as u64)).collect();
    let values = records.concat();
    let data = [vec![0], varint(sizes.len() as u64), sizes, values.clone()].concat();
    (header_of(ChunkKind::Simple, &[&data], records.len() as u64, values.len() as u64), data)
}

/// The file of an ArrayRecord writer: three records in two chunks.
struct File {
    /// Version, chunks and records of the description.
    told: [u64; 3],
    /// Offset added to that of the second chunk, and its number of records.
    second: (i64, u64),
    /// Number added to the offset of the footer, and the magic number.
    last: (u64, u64),
}

const SOUND: File = File { told: [1, 2, 3], second: (0, 1), last: (0, MAGIC) };

impl File {
    fn bytes(&self) -> Vec<u8> {
        let mut file = signature();
        let mut offsets = Vec::new();
        let (told, (moved, count)) = (numbers(&self.told), self.second);
        let chunks = [simple(&[b"one".to_vec(), Vec::new()]), simple(&[b"three".to_vec()])];
        for (header, data) in chunks {
            offsets.push(file.len() as u64);
            put_chunk(&header, &[&data], file.len() as u64, &mut file).unwrap();
        }
        let footer = [
            [&[0x0a, told.len() as u8][..], &told].concat(),
            numbers(&[offsets[0], 3, 2]),
            numbers(&[offsets[1].wrapping_add_signed(moved), 5, count]),
        ];
        let footer_at = file.len() as u64;
        let (header, data) = simple(&footer);
        put_chunk(&header, &[&data], footer_at, &mut file).unwrap();
        let padding = vec![0; (BLOCK - file.len() as u64 - 40) as usize];
        put_chunk(&header_of(ChunkKind::Padding, &[&padding], 0, 0), &[&padding], file.len() as u64, &mut file)
            .unwrap();
        let (header, data) = simple(&vec![numbers(&[footer_at + self.last.0, self.last.1]); 3]);
        put_chunk(&header, &[&data], BLOCK, &mut file).unwrap();
        let padding = vec![0; (2 * BLOCK - file.len() as u64 - 40) as usize];
        put_chunk(&header_of(ChunkKind::Padding, &[&padding], 0, 0), &[&padding], file.len() as u64, &mut file)
            .unwrap();
        assert_eq!(file.len() as u64, 2 * BLOCK);
        file
    }

    fn index(&self) -> Result<Index> {
        index_source(Framing::ArrayRecord, &Bytes(&self.bytes()), &Limits::default())
    }
}

#[test]
fn the_chunks_are_those_of_the_footer() {
    let (index, bytes) = (SOUND.index().unwrap(), SOUND.bytes());
    assert_eq!((index.count(), index.fault()), (3, None));
    let reading = Reading::new(Index::load(&index.save()).unwrap(), Limits::default());
    let found: Vec<Vec<u8>> =
        (0..3).map(|n| reading.read(&Bytes(&bytes), n..n + 1, 0).unwrap().records().next().unwrap().to_vec()).collect();
    assert_eq!(found, [&b"one"[..], b"", b"three"]);
}

#[test]
fn a_footer_that_lies_is_refused_where_it_lies() {
    let lies = [
        (File { told: [1, 3, 3], ..SOUND }, "the footer lists other numbers"),
        (File { told: [1, 2, 4], ..SOUND }, "the footer lists other numbers"),
        (File { second: (0, u64::MAX), ..SOUND }, "inconsistent"),
        (File { second: (0, 0), ..SOUND }, "the footer lists other numbers"),
        (File { second: (-1000, 1), ..SOUND }, "out of order"),
        (File { second: (1 << 20, 1), ..SOUND }, "out of order"),
        (File { last: (0, MAGIC + 1), ..SOUND }, "last block"),
        (File { last: (1 << 40, MAGIC), ..SOUND }, "last block"),
    ];
    for (file, reason) in lies {
        let error = file.index().unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.message().contains(reason), "{} is not about {reason}", error.message());
    }
    let error = File { told: [2, 2, 3], ..SOUND }.index().unwrap_err();
    assert_eq!((error.kind(), error.message().contains("version 2")), (Kind::Unsupported, true));
    assert!(File { last: (1, MAGIC), ..SOUND }.index().is_err());
}

#[test]
fn a_chunk_of_other_records_than_the_footer_counts_is_an_error_of_its_own() {
    let file = File { told: [1, 2, 4], second: (0, 2), ..SOUND };
    let (bytes, reading) = (file.bytes(), Reading::new(file.index().unwrap(), Limits::default()));
    assert!(reading.read(&Bytes(&bytes), 0..2, 0).is_ok());
    let error = reading.read(&Bytes(&bytes), 2..3, 0).unwrap_err();
    assert!(
        error.message().contains("has 1 records") && error.message().contains("index of the file says 2"),
        "{}",
        error.message()
    );
}

#[test]
fn bytes_that_change_are_an_error_or_the_same_records() {
    let bytes = SOUND.bytes();
    let sound = index_source(Framing::ArrayRecord, &Bytes(&bytes), &Limits::default()).unwrap();
    for at in (0..bytes.len()).filter(|at| bytes[*at] != 0) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        if let Ok(index) = index_source(Framing::ArrayRecord, &Bytes(&changed), &Limits::default()) {
            assert_eq!(index, sound);
        }
    }
    for cut in [0, 1, 65_536, 65_600, bytes.len() - 65_536] {
        assert!(index_source(Framing::ArrayRecord, &Bytes(&bytes[..cut]), &Limits::default()).is_err());
    }
}
