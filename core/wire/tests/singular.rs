//! A singular field that occurs more often than anybody keeps count of.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use std::sync::Arc;

use common::Bytes;
use common::schema::schema;
use wire::document::Document;
use wire::index::Index;
use wire::scan::{Scanner, index_source};
use wire::{Kind, Limits};

const LIMIT: usize = 1 << 22;
const NAME: u32 = 1;
const RIGHT: u32 = 52;

/// The value at the end of `occurrences` of field `number` of a node, all but the last of them empty.
fn last_value(number: u32, head: &[u8], occurrences: usize) -> Result<u8, (Kind, Option<u64>)> {
    let mut data = [head, b"\0"].concat().repeat(occurrences - 1);
    data.extend([head, b"\x01z"].concat());
    let schema = schema();
    let scanner = Scanner::new(Arc::new(schema.clone()), schema.type_named("Node"), 16, Limits::default()).unwrap();
    let index = Index::open(Arc::new(index_source(scanner, &Bytes(&data)).unwrap())).unwrap();
    let bytes = Bytes(&data);
    let document = Document::new(&index, &schema, &bytes, Limits::default()).unwrap();
    let found = document.singular(&document.root().unwrap(), number);
    found.map(|found| data[found.last().unwrap().content_span().start as usize]).map_err(|e| (e.kind(), e.offset()))
}

#[test]
fn the_last_of_very_many_occurrences_counts() {
    assert_eq!(last_value(NAME, b"\x0a", LIMIT), Ok(b'z'));
    assert_eq!(last_value(RIGHT, b"\xa2\x03", LIMIT), Ok(b'z'));
}

#[test]
fn too_many_occurrences_are_told_and_not_cut_off() {
    let beyond = |head: &[u8]| Some((LIMIT * (head.len() + 1)) as u64);
    assert_eq!(last_value(NAME, b"\x0a", LIMIT + 1), Err((Kind::Limit, beyond(b"\x0a"))));
    assert_eq!(last_value(RIGHT, b"\xa2\x03", LIMIT + 1), Err((Kind::Limit, beyond(b"\xa2\x03"))));
}
