//! Seeded damage to the golden riegeli files, with and without hashes put right again, and bombs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use std::path::PathBuf;

use common::riegeli as body;
use wire::riegeli::{
    self as records, ChunkHeader, ChunkKind, ChunkRef, Chunks,
    codec::{self, Codec, Compression},
    data,
};
use wire::{Kind, varint};

/// Seeded chance (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % (n.max(1) as u64)) as usize
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/riegeli");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "riegeli"));
    let files: Vec<_> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(files.len() > 25);
    files
}

/// One to four small changes.
fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        let (at, len) = (dice.below(bytes.len()), dice.below(40));
        let end = (at + len).min(bytes.len());
        match dice.below(6) {
            _ if bytes.is_empty() => bytes.push(7),
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = [0, 0x7f, 0x80, 0xff][dice.below(4)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => bytes[at..end].fill(0),
            _ => {
                let copy = bytes[at..end].to_vec();
                let to = dice.below(bytes.len());
                bytes.splice(to..to, copy);
            }
        }
    }
}

#[test]
fn damaged_files_do_no_harm() {
    let mut dice = Dice(0x5eed_0f5e_ed01);
    for file in corpus() {
        body::exercise(&file);
        for _ in 0..(4_000_000 / (file.len() + 10_000)).min(200) {
            let mut bytes = file.clone();
            mutate(&mut bytes, &mut dice);
            body::exercise(&bytes);
        }
    }
}

fn small_chunks(file: &[u8]) -> Vec<(ChunkRef, Vec<u8>)> {
    let chunks = Chunks::new(file, 0).map_while(Result::ok).filter(|chunk| chunk.header.data_size < 100_000);
    chunks.filter_map(|chunk| data::read_all(file, &chunk).ok().map(|data| (chunk, data))).collect()
}

#[test]
fn nonsense_under_sound_hashes_does_no_harm() {
    let mut dice = Dice(0x5eed_0f5e_ed01);
    for file in corpus() {
        for (chunk, data) in small_chunks(&file).into_iter().take(8) {
            for _ in 0..(2_000_000 / (data.len() + 5_000)).min(150) {
                let mut data = data.clone();
                let mut header = chunk.header;
                mutate(&mut data, &mut dice);
                match dice.below(8) {
                    0 => header.records = dice.below(1 << 20) as u64,
                    1 => header.records = header.records.saturating_sub(1),
                    2 => header.decoded_size = dice.below(1 << 30) as u64 * 5,
                    3 => header.kind = ChunkKind::from_byte(b"smprtx"[dice.below(6)]),
                    _ => {}
                }
                body::exercise(&body::resealed(&header, &data));
            }
        }
    }
}

fn packed(codec: Codec, bytes: &[u8]) -> Vec<u8> {
    codec::pack(&Compression { codec, level: 3, window_log: None }, bytes).unwrap().into_owned()
}

/// The first chunk of `file` after the signature, decoded within a mebibyte.
fn verdict(file: &[u8]) -> Kind {
    let chunk = records::chunk_at(file, 64).unwrap().unwrap();
    records::decode(file, &chunk, &body::limits()).unwrap_err().error.kind()
}

#[test]
fn bombs_are_refused_before_they_go_off() {
    for codec in [Codec::Brotli, Codec::Zstd, Codec::Snappy] {
        let bytes = vec![0; 64 << 20];
        let mut sizes = Vec::new();
        varint::write(bytes.len() as u64, &mut sizes);
        let (sizes, values) = (packed(codec, &sizes), packed(codec, &bytes));
        let mut data = vec![codec.byte()];
        varint::write(sizes.len() as u64, &mut data);
        data.extend([sizes, values].concat());
        let header = ChunkHeader {
            data_size: 0,
            data_hash: 0,
            kind: ChunkKind::Simple,
            records: 1,
            decoded_size: bytes.len() as u64,
        };
        assert_eq!(verdict(&body::resealed(&header, &data)), Kind::Limit, "{codec:?} honest");
        let modest = ChunkHeader { decoded_size: 1000, ..header };
        assert_eq!(verdict(&body::resealed(&modest, &data)), Kind::Limit, "{codec:?} modest header");
    }
}

#[test]
fn transposed_bombs_are_refused_too() {
    for codec in [Codec::Brotli, Codec::Zstd, Codec::Snappy] {
        let bucket = packed(codec, &vec![0; 64 << 20]);
        let mut head = vec![1, 1];
        varint::write(bucket.len() as u64, &mut head);
        varint::write(64 << 20, &mut head);
        head.extend([1, 1, 0, 0, 0]);
        let head = packed(codec, &head);
        let mut data = vec![codec.byte()];
        varint::write(head.len() as u64, &mut data);
        data.extend([head, bucket, packed(codec, &[])].concat());
        let header =
            ChunkHeader { data_size: 0, data_hash: 0, kind: ChunkKind::Transposed, records: 1, decoded_size: 1000 };
        assert_eq!(verdict(&body::resealed(&header, &data)), Kind::Limit, "{codec:?}");
    }
}

#[test]
fn more_records_than_memory_are_refused() {
    let header =
        ChunkHeader { data_size: 0, data_hash: 0, kind: ChunkKind::Transposed, records: 1 << 18, decoded_size: 0 };
    assert_eq!(verdict(&body::resealed(&header, &[0, 0])), Kind::Limit);
}
