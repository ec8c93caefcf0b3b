//! Chunked files written here, read by the `riegeli` crate record by record, and merged again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use std::sync::Arc;

use common::schema::{ROOT, schema};
use common::{Bytes, corpus};
use wire::document::Document;
use wire::index::Index;
use wire::plan::Policy;
use wire::source::{RopeSource, Source};
use wire::{Limits, cpb};

/// The file that `policy` makes of `proto`, and its records.
fn written(proto: &[u8], policy: &Policy) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (schema, limits, source) = (schema(), Limits::default(), Bytes(proto));
    let index = Index::open(Arc::new(corpus::index(proto, 16))).unwrap();
    let plan = Document::new(&index, &schema, &source, limits).unwrap().plan(policy).unwrap();
    let mut writing = cpb::Writing::new(&plan, &limits);
    let mut records = Vec::new();
    for chunk in &plan.chunks {
        let bytes = corpus::gather(&chunk.rope, &[proto]);
        let mut hasher = cpb::Writing::hasher(bytes.len() as u64);
        hasher.update(&bytes);
        writing.push(hasher.finish()).unwrap();
        records.push(bytes);
    }
    let file = corpus::gather(&writing.finish().unwrap(), &[proto]);
    records.push(cpb::metadata(&plan, &limits).unwrap().encode());
    (file, records)
}

#[test]
fn the_crate_reads_every_record() {
    let mut many = 0;
    for proto in corpus::protos() {
        for (min_chunk, max_chunk) in [(1, 1), (16, 100), (500, 1 << 20)] {
            let (file, records) = written(&proto, &Policy { min_chunk, max_chunk });
            let options = riegeli::ReaderOptions::new();
            let mut reader = riegeli::RecordReader::new(std::io::Cursor::new(&file), options).unwrap();
            let read: Vec<Vec<u8>> = std::iter::from_fn(|| reader.read_record().unwrap()).collect();
            assert!(read == records);
            many += usize::from(records.len() > 10);
        }
    }
    assert!(many > 20, "the policies make chunks");
}

#[test]
fn the_same_input_gives_the_same_file() {
    for proto in corpus::protos() {
        let policy = Policy { min_chunk: 20, max_chunk: 300 };
        assert!(written(&proto, &policy) == written(&proto, &policy));
    }
}

/// `file` merged; nothing of it may have been decoded.
fn merged(file: &[u8]) -> Vec<u8> {
    let (schema, limits) = (schema(), Limits::default());
    let (file, mut side) = (Bytes(file), Vec::new());
    let chunked = cpb::open(&file, &mut side, &limits).unwrap();
    assert!(side.is_empty(), "what is not compressed is not copied");
    let sources: [&dyn Source; 1] = [&file];
    let records = RopeSource::new(&chunked.records, &sources);
    let image = cpb::image(&chunked, &records, &schema, schema.type_named(ROOT), &limits).unwrap();
    corpus::gather(&image, &[file.0])
}

#[test]
fn what_was_written_is_read_back() {
    for proto in corpus::protos() {
        let (file, mut records) = written(&proto, &Policy { min_chunk: 30, max_chunk: 300 });
        records.pop();
        assert!(corpus::records(&file).0 == records);
        assert!(!corpus::index(&merged(&file), 1).is_empty(), "the whole is sound at every level");
        let (file, _) = written(&proto, &Policy::default());
        assert!(merged(&file) == proto, "what is not split comes back byte for byte");
    }
}
