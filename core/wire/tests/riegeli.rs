//! Riegeli files against the golden files of the reference implementation and against the `riegeli` crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::borrow::Cow;
use std::cell::Cell;
use std::path::PathBuf;

use proptest::prelude::*;
use wire::riegeli::{self as records, ChunkKind, Chunks, Framer, Next, RecordReader, RecordWriter, WriterOptions};
use wire::rope::Piece;
use wire::source::Source;
use wire::{Limits, Result, RopeBuilder, SourceId};

fn golden() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/riegeli");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "riegeli"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    assert!(files.len() > 25);
    files
}

fn sound() -> impl Iterator<Item = (String, Vec<u8>)> {
    golden().into_iter().filter(|(name, _)| !name.starts_with("bad_"))
}

/// The records as the `riegeli` crate reads them.
fn oracle(file: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = riegeli::RecordReader::new(std::io::Cursor::new(file), riegeli::ReaderOptions::new()).unwrap();
    std::iter::from_fn(|| reader.read_record().unwrap()).collect()
}

/// The records and their numeric positions as we read them, chunk by chunk.
fn ours(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    for chunk in Chunks::new(file, 0) {
        let chunk = chunk.unwrap();
        let decoded = records::decode(file, &chunk, &Limits::default()).unwrap();
        if chunk.header.kind != ChunkKind::Metadata {
            found.extend((0..decoded.len()).map(|i| (chunk.position(i as u64), decoded.get(i).unwrap().to_vec())));
            let (values, ends) = decoded.clone().into_parts();
            assert_eq!((&values[..], &ends[..]), (decoded.values(), decoded.ends()));
        }
    }
    found
}

#[test]
fn every_record_is_what_the_crate_reads() {
    for (name, file) in sound() {
        let records: Vec<Vec<u8>> = ours(&file).into_iter().map(|(_, record)| record).collect();
        assert!(records == oracle(&file), "{name}");
    }
}

#[test]
fn every_position_is_found_and_the_last_record_too() {
    for (name, file) in sound() {
        let all = ours(&file);
        for (position, _) in all.iter().step_by(all.len() / 50 + 1) {
            let (chunk, index) = records::find(&file[..], *position).unwrap().unwrap();
            assert_eq!(chunk.position(index), *position, "{name}");
        }
        let last = records::last_record(&file[..]).unwrap().map(|(chunk, index)| chunk.position(index));
        assert_eq!(last, all.last().map(|(position, _)| *position), "{name}");
    }
}

#[test]
fn uncompressed_records_are_extents_of_the_file() {
    let mut seen = 0;
    for (name, file) in sound() {
        for chunk in Chunks::new(&file[..], 0) {
            let chunk = chunk.unwrap();
            let decoded = records::decode(&file[..], &chunk, &Limits::default()).unwrap();
            let Some(spans) = records::spans(&file[..], &chunk, &Limits::default()).unwrap() else { continue };
            assert_eq!(spans.len(), decoded.len(), "{name}");
            for index in 0..spans.len() {
                let mut rope = RopeBuilder::default();
                assert!(spans.extents(&chunk, index, SourceId(3), &mut rope));
                let bytes: Vec<u8> = rope.finish().pieces().flat_map(|piece| bytes_of(&file, piece)).copied().collect();
                assert_eq!(bytes, decoded.get(index).unwrap(), "{name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 3000);
}

fn bytes_of<'a>(file: &'a [u8], piece: Piece<'a>) -> &'a [u8] {
    match piece {
        Piece::Extent { source: SourceId(3), offset, len } => &file[offset as usize..(offset + len) as usize],
        other => panic!("{other:?}"),
    }
}

/// A source that counts reads and bytes.
struct Counted<'a>(&'a [u8], Cell<usize>, Cell<usize>);

impl Source for Counted<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.1.set(self.1.get() + 1);
        self.2.set(self.2.get() + len);
        self.0.read(offset, len)
    }
}

#[test]
fn the_last_record_takes_a_handful_of_small_reads() {
    for (name, file) in sound() {
        let source = Counted(&file, Cell::new(0), Cell::new(0));
        records::last_record(&source).unwrap();
        assert!(source.1.get() <= 4, "{name}: {} reads", source.1.get());
        assert!(source.2.get() <= 65536 + 3 * 64, "{name}: {} bytes", source.2.get());
    }
}

#[test]
fn data_hashes_are_checked_apart_from_reading() {
    let (_, file) = sound().find(|(name, _)| name == "edges_uncompressed.riegeli").unwrap();
    for chunk in Chunks::new(&file[..], 0) {
        let chunk = chunk.unwrap();
        records::verify(&file[..], &chunk).unwrap();
        let mut bad = file.clone();
        bad[chunk.end as usize - 1] ^= 1;
        if chunk.header.data_size > 0 {
            let error = records::verify(&bad[..], &chunk).unwrap_err().error;
            assert_eq!((error.kind(), error.offset()), (wire::Kind::Corrupt, Some(chunk.end)));
        }
    }
}

#[test]
fn a_truncated_file_is_an_error() {
    let (_, file) = sound().find(|(name, _)| name == "edges_uncompressed.riegeli").unwrap();
    for cut in [1, 23, 24, 63, 65, 65537, 65560, 131_082, 131_072, 200_000, file.len() - 1] {
        let cut_file = &file[..cut];
        assert!(records::last_record(cut_file).is_err(), "{cut}");
        assert!(Chunks::new(cut_file, 0).any(|chunk| chunk.is_err()), "{cut}");
    }
}

#[test]
fn metadata_come_out() {
    for (name, file) in sound() {
        let metadata = records::metadata(&file[..], &Limits::default()).unwrap();
        assert_eq!(metadata.is_some(), name == "with_metadata.riegeli", "{name}");
        let mut reader =
            riegeli::RecordReader::new(std::io::Cursor::new(&file), riegeli::ReaderOptions::new()).unwrap();
        assert_eq!(metadata, reader.read_serialized_metadata().unwrap());
    }
}

/// The bytes of a rope whose extents are of `source`.
fn flatten(rope: &wire::Rope, source: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in rope.pieces() {
        match piece {
            Piece::Extent { offset, len, .. } => bytes.extend(&source[offset as usize..(offset + len) as usize]),
            Piece::Literal(literal) => bytes.extend(literal),
        }
    }
    bytes
}

/// A file of the records `sizes` long, as a rope over one run of bytes, and the records.
fn framed(sizes: &[u64]) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
    let total: u64 = sizes.iter().sum();
    let source: Vec<u8> = (0..total).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut framer = Framer::new(&Limits::default());
    let (mut at, mut expected) = (0, Vec::new());
    for &size in sizes {
        let record = &source[at as usize..(at + size) as usize];
        let mut rope = RopeBuilder::default();
        let middle = size / 3;
        rope.literal(&record[..middle as usize]);
        rope.extent(SourceId(1), at + middle, size - middle);
        let mut hasher = records::record_hasher(size);
        hasher.update(record);
        let position = framer.push(&rope.finish(), hasher.finish()).unwrap();
        expected.push((position, record.to_vec()));
        at += size;
    }
    (flatten(&framer.finish(), &source), expected)
}

#[test]
fn a_framed_file_is_the_golden_file_byte_for_byte() {
    let (_, file) = sound().find(|(name, _)| name == "edges_uncompressed.riegeli").unwrap();
    let mut framer = Framer::new(&Limits::default());
    for (position, record) in ours(&file) {
        let mut hasher = records::record_hasher(record.len() as u64);
        hasher.update(&record);
        assert_eq!(framer.push(&wire::Rope::literal(&record), hasher.finish()).unwrap(), position);
    }
    assert!(flatten(&framer.finish(), &[]) == file);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_is_framed_is_read(sizes in prop::collection::vec(edge(), 0..8)) {
        let (file, expected) = framed(&sizes);
        prop_assert!(ours(&file) == expected);
        let crates = oracle(&file);
        prop_assert!(crates.iter().eq(expected.iter().map(|(_, record)| record)));
        for (position, _) in &expected {
            let (chunk, index) = records::find(&file[..], *position).unwrap().unwrap();
            prop_assert_eq!((chunk.begin, index), (*position, 0));
        }
    }
}

/// Sizes that put the ends of chunks near the edges of blocks.
fn edge() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..4, 65300u64..65600, 130_900u64..131_200, 0u64..70_000]
}

#[test]
fn a_long_record_is_framed_in_linear_time() {
    let gib = 1u64 << 30;
    let mut framer = Framer::new(&Limits::default());
    framer.push(&wire::Rope::extent(SourceId(1), 5, gib), 1).unwrap();
    framer.push(&wire::Rope::extent(SourceId(1), 5, 6 * gib), 1).unwrap();
    let rope = framer.finish();
    let extents = rope.pieces().filter(|piece| matches!(piece, Piece::Extent { .. })).map(|piece| piece.len());
    assert_eq!(extents.sum::<u64>(), 7 * gib);
    assert!(rope.piece_count() as u64 <= 2 * (7 * gib / 65512 + 4));
}

fn read_all(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut reader = RecordReader::new(Bytes(file), Limits::default());
    let mut found = Vec::new();
    while let Some(next) = reader.next().unwrap() {
        let record = match next {
            Next::Held => reader.held().to_vec(),
            Next::Direct(len) => {
                let mut record = vec![0; len as usize];
                reader.read_direct(&mut record).unwrap();
                record
            }
        };
        let (begin, index) = reader.last_position().unwrap();
        found.push((begin + index, record));
    }
    reader.close().unwrap();
    found
}

/// Bytes as a source with a size, read block by block.
struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn stride(&self) -> u64 {
        1 << 16
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.0.read(offset, len)
    }
}

#[test]
fn reading_through_gives_every_record_at_its_position() {
    for (name, file) in sound() {
        assert!(read_all(&file) == ours(&file), "{name}");
    }
}

fn written(options: &str, records: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>) {
    let mut file = Vec::new();
    let options = WriterOptions::parse(options).unwrap();
    let mut writer = RecordWriter::new(options, 0, None, &mut file).unwrap();
    let positions = records
        .iter()
        .map(|record| writer.write_record(record, &mut file).map(|(begin, index)| begin + index).unwrap())
        .collect();
    writer.flush(&mut file).unwrap();
    (file, positions)
}

const OPTIONS: [&str; 20] = [
    "brotli:0,window_log:30",
    "brotli:11",
    "zstd:22,chunk_size:64K",
    "zstd:1,window_log:31",
    "transpose,brotli:1,window_log:30",
    "transpose,zstd,window_log:31",
    "uncompressed",
    "uncompressed,chunk_size:1M",
    "uncompressed,padding:4K",
    "",
    "brotli:1,chunk_size:100",
    "zstd,chunk_size:20K",
    "zstd:-7,window_log:12",
    "snappy,final_padding:1000",
    "transpose",
    "transpose,uncompressed",
    "transpose,zstd,bucket_fraction:0",
    "transpose,snappy,chunk_size:4K",
    "transpose,brotli:3,window_log:16",
    "parallelism:3,zstd:1",
];

#[test]
fn every_option_writes_what_both_readers_read() {
    let (_, golden) = sound().find(|(name, _)| name == "uncompressed_chunk1m.riegeli").unwrap();
    let records: Vec<Vec<u8>> = ours(&golden).into_iter().map(|(_, record)| record).collect();
    for options in OPTIONS {
        let (file, positions) = written(options, &records);
        let expected: Vec<_> = positions.into_iter().zip(records.clone()).collect();
        assert!(read_all(&file) == expected, "{options}");
        assert!(oracle(&file) == records, "{options}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_is_written_is_read(sizes in prop::collection::vec(edge(), 0..8), option in 0..OPTIONS.len()) {
        let records: Vec<Vec<u8>> = sizes.iter().map(|&n| (0..n).map(|i| (i * 3 + n) as u8).collect()).collect();
        let (file, positions) = written(OPTIONS[option], &records);
        let expected: Vec<_> = positions.into_iter().zip(records.clone()).collect();
        prop_assert!(read_all(&file) == expected);
        prop_assert!(oracle(&file) == records);
    }

    #[test]
    fn options_never_panic(text in "[a-z_:,0-9.KM-]{0,40}") {
        let _ = WriterOptions::parse(&text);
    }
}

/// A rope over endless zeros as a source.
struct Zeros(wire::Rope);

impl Source for Zeros {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let mut bytes = Vec::new();
        for piece in self.0.slice(offset..offset + len as u64).pieces() {
            match piece {
                Piece::Extent { len, .. } => bytes.resize(bytes.len() + len as usize, 0),
                Piece::Literal(literal) => bytes.extend_from_slice(literal),
            }
        }
        Ok(Cow::Owned(bytes))
    }
}

#[test]
fn positions_beyond_4_gib_are_found() {
    let gib = 1u64 << 30;
    let sizes = [5, 5 * gib, 0, 3 * gib + 1, 7];
    let mut framer = Framer::new(&Limits::default());
    let positions: Vec<u64> =
        sizes.iter().map(|&size| framer.push(&wire::Rope::extent(SourceId(1), 0, size), 0).unwrap()).collect();
    let source = Zeros(framer.finish());
    let last = records::last_record(&source).unwrap().unwrap();
    assert_eq!((last.0.begin, last.1), (positions[4], 0));
    for (&position, &size) in positions.iter().zip(&sizes) {
        let (chunk, index) = records::find(&source, position).unwrap().unwrap();
        let spans = records::spans(&source, &chunk, &Limits::default()).unwrap().unwrap();
        assert_eq!((chunk.begin, index, spans.len()), (position, 0, 1));
        let range = spans.get(0).unwrap();
        assert_eq!(range.end - range.start, size);
        let mut rope = RopeBuilder::default();
        spans.extents(&chunk, 0, SourceId(1), &mut rope);
        assert_eq!(rope.len(), size);
    }
}
