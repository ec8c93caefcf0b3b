//! Sound bytes of every kind, for damage to be done to.

use std::path::PathBuf;
use std::sync::Arc;

use wire::index::Index;
use wire::metadata::Metadata;
use wire::riegeli::{Framer, record_hasher};
use wire::rope::{Piece, RopeBuilder};
use wire::scan::{self, Scanner};
use wire::{Limits, Rope, SourceId, cpb};

use super::Bytes;
use super::damage::Rng;
use super::schema::{ROOT, schema};

/// The files of `folder` below the repository's `tests` that end in `ending` and have no more than `most` bytes.
pub fn files(folder: &str, ending: &str, most: usize) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_str().unwrap().ends_with(ending));
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).filter(|bytes| bytes.len() <= most).collect()
}

/// Chunked protos, TensorFlow's own.
pub fn chunked() -> Vec<Vec<u8>> {
    let found = files("golden/chunked", ".cpb", 100_000);
    assert!(found.len() >= 5);
    found
}

/// Split protos, as XLA writes them: a manifest, and the records that it tells of.
pub fn split() -> Vec<Vec<u8>> {
    let split = |seed| {
        let mut rng = Rng::new(seed);
        let (mut manifest, mut records) = (Vec::new(), vec![Vec::new()]);
        delimited(1, rng.of(&["t.Graph", "t.Graph", "a.b.C", "Graph"]).as_bytes(), &mut manifest);
        for _ in 0..rng.below(6) {
            let entries: [&[u8]; 5] = [&[0x12, 0], &[0x12, 0], &[0x1a, 6, 0x0a, 2, 8, 2, 16, 1], &[0x1a, 0], &[]];
            let entry = *rng.of::<&[u8]>(&entries);
            delimited(2, entry, &mut manifest);
            records.push(graph(&mut rng));
        }
        records[0] = manifest;
        framed(&records)
    };
    (0..20).map(split).collect()
}

/// Indexes of tensor bundles, TensorFlow's own.
pub fn tables() -> Vec<Vec<u8>> {
    let folders = ["tf_ckpt_grid_slices", "tf_ckpt_sharded", "tf_ckpt_v1_partitioned", "tf_checkpoint_object"];
    let found: Vec<_> =
        folders.iter().flat_map(|name| files(&format!("golden/models/{name}"), ".index", 9999)).collect();
    assert_eq!(found.len(), folders.len());
    found
}

/// Small protos of the tests' schema.
pub fn protos() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..40).map(|seed| graph(&mut Rng::new(seed))).collect();
    all.extend(files("golden/chunked", ".pb", 25_000));
    all.push(Vec::new());
    all
}

/// Indexes of them, with floors small and large.
pub fn indexes() -> Vec<(Vec<u8>, Vec<u8>)> {
    let floors = [1, 16, 300];
    let protos = protos().into_iter().zip(floors.into_iter().cycle());
    protos.map(|(proto, floor)| (index(&proto, floor), proto)).collect()
}

/// The index of `proto`.
pub fn index(proto: &[u8], floor: u64) -> Vec<u8> {
    let schema = Arc::new(schema());
    let root = schema.type_named(ROOT);
    scan::index_source(Scanner::new(schema, root, floor, Limits::default()).unwrap(), &Bytes(proto)).unwrap()
}

/// The chunks of a chunked proto and its metadata, as records.
pub fn records(file: &[u8]) -> (Vec<Vec<u8>>, Metadata) {
    let mut side = Vec::new();
    let chunked = cpb::open(&Bytes(file), &mut side, &Limits::default()).unwrap();
    let all = gather(&chunked.records, &[file, &side]);
    let chunk = |number| chunked.chunk(number).map(|range| all[range.start as usize..range.end as usize].to_vec());
    ((0..chunked.len() as u64).filter_map(chunk).collect(), chunked.metadata)
}

/// A riegeli file of `records`, one to a chunk, each hashed as it should be.
pub fn framed(records: &[Vec<u8>]) -> Vec<u8> {
    let mut framer = Framer::new(&Limits::default());
    for record in records {
        let mut hasher = record_hasher(record.len() as u64);
        hasher.update(record);
        framer.push(&Rope::literal(record), hasher.finish()).unwrap();
    }
    gather(&framer.finish(), &[])
}

/// Offsets of the records in the file that [`framed`] makes of them.
pub fn positions(records: &[Vec<u8>]) -> Vec<u64> {
    let mut framer = Framer::new(&Limits::default());
    records.iter().map(|record| framer.push(&Rope::literal(record), 0).unwrap()).collect()
}

/// The bytes of `rope`.
pub fn gather(rope: &Rope, sources: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in rope.pieces() {
        match piece {
            Piece::Extent { source, offset, len } => {
                let offset = offset as usize;
                out.extend_from_slice(&sources[source.0 as usize][offset..offset + len as usize]);
            }
            Piece::Literal(bytes) => out.extend_from_slice(bytes),
        }
    }
    out
}

/// Encoded ropes.
pub fn ropes() -> Vec<Vec<u8>> {
    let encode = |seed| {
        let mut rng = Rng::new(seed);
        let mut builder = RopeBuilder::default();
        for _ in 0..rng.below(20) {
            match rng.below(2) {
                0 => builder.literal(&vec![b'x'; rng.below(200)]),
                _ => builder.extent(SourceId(rng.below(3) as u32), rng.next() >> 20, rng.next() >> 30),
            }
        }
        let mut out = Vec::new();
        builder.finish().encode(&mut out);
        out
    };
    (0..20).map(encode).collect()
}

/// Paths, and what looks like them.
pub const PATHS: [&str; 14] = [
    "node[3].attr[\"value\"].tensor.content",
    "1[0].5[\"value\"].8.4",
    "node[name=\"conv1\"].attr[\"T\"].i",
    "library.function[0].node_def[1].name",
    "node[0].count[-5]",
    "node[2:10].op",
    "node[*].attr[\"a\\\"b\\xff\\n\"]",
    "node[:]",
    "node[1].part[0].node.left.right",
    "node[0].flag[18446744073709551615]",
    "node[0].short[1]",
    "node[0].longs",
    "536870911[0]",
    "node[0].attr[1=\"é\"].tensor.longs[70]",
];

/// True when `bytes` open as an index.
pub fn opens(bytes: &[u8]) -> bool {
    Index::open(Arc::new(bytes.to_vec())).is_ok()
}

/// A random proto of the schema.
pub fn graph(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.below(12) {
        match rng.below(5) {
            0 => delimited(2, &library(rng), &mut out),
            1 => unknown(rng, &mut out),
            _ => delimited(1, &node(rng, 0), &mut out),
        }
    }
    out
}

fn library(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.below(3) {
        let mut function = Vec::new();
        delimited(1, &node(rng, 1), &mut function);
        (0..rng.below(4)).for_each(|_| delimited(3, &node(rng, 1), &mut function));
        delimited(1, &function, &mut out);
    }
    out
}

fn node(rng: &mut Rng, depth: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.below(if depth < 4 { 9 } else { 3 }) {
        match rng.below(12) {
            0 => delimited(2, b"Const", &mut out),
            1 | 2 => delimited(5, &attr(rng), &mut out),
            3 if depth < 4 => delimited(51, &node(rng, depth + 1), &mut out),
            4 => delimited(52, &vec![7; rng.below(300)], &mut out),
            5 => number(53, rng.next(), &mut out),
            6 => delimited(54, &[8, rng.below(5) as u8, 16, 9], &mut out),
            7 => (0..rng.below(200)).for_each(|_| number(55, 1, &mut out)),
            8 => delimited(56, &vec![1; 4 * rng.below(40)], &mut out),
            9 if depth < 4 => group(*rng.of(&[50, 57]), &inside(rng, depth), &mut out),
            10 => unknown(rng, &mut out),
            _ => delimited(1, rng.of(&["conv1", "a", "", "x/y"]).as_bytes(), &mut out),
        }
    }
    out
}

fn inside(rng: &mut Rng, depth: u32) -> Vec<u8> {
    let mut out = vec![9, 1, 2, 3, 4, 5, 6, 7, 8];
    delimited(2, &node(rng, depth + 1), &mut out);
    group(3, &[], &mut out);
    out
}

fn attr(rng: &mut Rng) -> Vec<u8> {
    let mut tensor = vec![8, 1];
    delimited(4, &vec![0xab; rng.below(2000)], &mut tensor);
    delimited(10, &vec![0x85; rng.below(4) * 2], &mut tensor);
    let mut value = Vec::new();
    delimited(8, &tensor, &mut value);
    let mut out = Vec::new();
    delimited(1, rng.of(&["value", "T", "dtype"]).as_bytes(), &mut out);
    delimited(2, &value, &mut out);
    out
}

fn unknown(rng: &mut Rng, out: &mut Vec<u8>) {
    let number_of = 900 + rng.below(3) as u32;
    match rng.below(3) {
        0 => number(number_of, rng.next(), out),
        1 => delimited(number_of, &[1, 2, 3], out),
        _ => group(number_of, &[8, 1], out),
    }
}

fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    wire::varint::write(u64::from(field) << 3, out);
    wire::varint::write(value, out);
}

/// Appends a length-delimited field.
pub fn delimited(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    wire::varint::write(u64::from(field) << 3 | 2, out);
    wire::varint::write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn group(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    wire::varint::write(u64::from(field) << 3 | 3, out);
    out.extend_from_slice(bytes);
    wire::varint::write(u64::from(field) << 3 | 4, out);
}
