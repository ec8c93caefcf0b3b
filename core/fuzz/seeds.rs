//! Writes what fuzzing begins with: sound inputs of every target, in a folder of its name below the one that is given.
//! Says their names. Names behind the folder choose among the targets.
#[path = "../wire/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::damage::Rng;
use common::sealed::{self, joined};
use common::targets::TARGETS;
use common::{Bytes, corpus, schema, tables};
use wire::document::Document;
use wire::index::Index;
use wire::plan::{Plan, Policy};
use wire::riegeli::{Chunks, data};
use wire::scan::Scanner;
use wire::{Limits, Result, cpb};

const OPTIONS: [&str; 9] = [
    "",
    "uncompressed",
    "brotli:3,window_log:18",
    "zstd:1",
    "snappy,chunk_size:10",
    "transpose,zstd",
    "transpose,brotli:1,bucket_fraction:0.5",
    "uncompressed,transpose,chunk_size:1k",
    "default,initial_padding:4k,final_padding:64",
];

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("where to write the seeds"));
    let chosen: Vec<String> = std::env::args().skip(2).collect();
    let is_chosen = |target: &str| chosen.is_empty() || chosen.iter().any(|name| name == target);
    for (target, _) in TARGETS.iter().filter(|(target, _)| is_chosen(target)) {
        write(&folder.join(target), &seeds(target)).unwrap();
        println!("{target}");
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let protos = corpus::protos();
    let split = || protos.iter().map(|proto| split(proto).unwrap());
    let riegeli = || corpus::files("golden/riegeli", ".riegeli", 20_000);
    match target {
        "proto" | "untyped" => protos,
        "view" => views(&protos),
        "chunked" => split().map(|records| corpus::framed(&records)).chain(corpus::split()).collect(),
        "merge" => split().map(|records| records_of(&records)).collect(),
        "path" => corpus::PATHS.map(|path| path.as_bytes().to_vec()).to_vec(),
        "rope" => corpus::ropes(),
        "descriptors" => common::descriptors::sets(),
        "metadata" => split().filter_map(|mut records| records.pop()).collect(),
        "index" => corpus::indexes().iter().map(|(index, proto)| sealed::index_input(index, proto)).collect(),
        "scan" => protos.iter().map(|proto| scan(proto).unwrap()).collect(),
        "plan" => protos.iter().map(|proto| plan(proto).unwrap()).collect(),
        "elements" => (0..200).map(noise).collect(),
        "bundle" => corpus::tables(),
        "table" => corpus::tables().iter().flat_map(|data| table(data)).collect(),
        "riegeli" => riegeli(),
        "chunk" => riegeli().iter().flat_map(|file| chunks(file)).collect(),
        "options" => options(&protos),
        "stream" => common::streams::seeds(),
        "records" => common::streams::saved_seeds(),
        other => unreachable!("{other} has no seeds"),
    }
}

fn write(folder: &Path, seeds: &[Vec<u8>]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    (0..).zip(seeds).try_for_each(|(number, seed): (u32, _)| std::fs::write(folder.join(format!("seed{number}")), seed))
}

fn views(protos: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let small = protos.iter().filter(|proto| proto.len() < 4000);
    small.zip(corpus::PATHS.iter().cycle()).map(|(proto, path)| joined(&[path.as_bytes(), proto])).collect()
}

/// Records, each behind its length.
fn records_of(records: &[Vec<u8>]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    parts.push(&[]);
    joined(&parts)
}

fn scanner() -> Result<Scanner> {
    let schema = Arc::new(schema::schema());
    let root = schema.type_named(schema::ROOT);
    Scanner::new(schema, root, 16, Limits::default())
}

fn scan(proto: &[u8]) -> Result<Vec<u8>> {
    let (front, behind) = proto.split_at(proto.len() / 2);
    let mut scanner = scanner()?;
    scanner.feed(front)?;
    let state = scanner.save()?;
    Ok(joined(&[&state[..state.len() - 4], behind]))
}

fn planned<T>(proto: &[u8], made: impl FnOnce(&Plan) -> Result<T>) -> Result<T> {
    let (index, schema, source) = (Index::open(Arc::new(corpus::index(proto, 16)))?, schema::schema(), Bytes(proto));
    let document = Document::new(&index, &schema, &source, Limits::default())?;
    made(&document.plan(&Policy { min_chunk: 20, max_chunk: 400 })?)
}

fn plan(proto: &[u8]) -> Result<Vec<u8>> {
    planned(proto, |plan| {
        let mut bytes = plan.encode();
        bytes.truncate(bytes.len() - 4);
        Ok(bytes)
    })
}

/// The records of a chunked proto: its chunks and its metadata.
fn split(proto: &[u8]) -> Result<Vec<Vec<u8>>> {
    planned(proto, |plan| {
        let mut records: Vec<_> = plan.chunks.iter().map(|chunk| corpus::gather(&chunk.rope, &[proto])).collect();
        records.push(cpb::metadata(plan, &Limits::default())?.encode());
        Ok(records)
    })
}

fn noise(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..24 + rng.below(60)).map(|_| rng.next() as u8).collect()
}

fn table(data: &[u8]) -> Vec<Vec<u8>> {
    let entries = tables::entries(data);
    let mut parts: Vec<&[u8]> = entries.iter().flat_map(|(key, value)| [key.as_slice(), value]).collect();
    parts.push(&[]);
    let whole = joined(&parts);
    [0u8, 3, 0x21].iter().map(|how| [&[*how], whole.as_slice()].concat()).collect()
}

fn chunks(file: &[u8]) -> Vec<Vec<u8>> {
    let sound = Chunks::new(file, 0).map_while(Result::ok);
    let seeds = sound.filter_map(|chunk| {
        let mut seed = vec![chunk.header.kind.byte()];
        wire::varint::write(chunk.header.records, &mut seed);
        wire::varint::write(chunk.header.decoded_size, &mut seed);
        seed.extend(data::read_all(file, &chunk).ok()?);
        Some(seed)
    });
    seeds.collect()
}

fn options(protos: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let small: Vec<Vec<u8>> = protos.iter().filter(|proto| proto.len() < 1000).cloned().collect();
    let records = records_of(&small);
    OPTIONS.iter().map(|text| joined(&[text.as_bytes(), &records])).collect()
}
