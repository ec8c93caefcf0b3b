//! Work that looks at many parts asks its source now and then whether to go on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use std::borrow::Cow;
use std::sync::Arc;

use common::schema::{ROOT, schema};
use wire::document::Document;
use wire::index::Index;
use wire::plan::Policy;
use wire::resolve::Target;
use wire::scan::{Scanner, index_source};
use wire::source::Source;
use wire::{Kind, Limits, Result, WireError};

/// Bytes of which nobody wants to know any more.
struct Ended(Vec<u8>);

impl Source for Ended {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.0.as_slice().read(offset, len)
    }

    fn carry_on(&self) -> Result<()> {
        Err(WireError::from_source("enough"))
    }
}

#[test]
fn what_takes_long_ends_when_it_is_told_to() {
    let node = [b"\x0a\x28\x12\x26".as_slice(), &[b'x'; 38]].concat();
    let source = Ended(node.repeat(100));
    let schema = schema();
    let scanner = Scanner::new(Arc::new(schema.clone()), schema.type_named(ROOT), 16, Limits::default()).unwrap();
    let index = Index::open(Arc::new(index_source(scanner, &common::Bytes(&source.0)).unwrap())).unwrap();
    let document = Document::new(&index, &schema, &source, Limits::default()).unwrap();
    let root = Target::Message(document.root().unwrap());
    let kinds = [
        document.largest(3).unwrap_err().kind(),
        document.plan(&Policy { min_chunk: 20, max_chunk: 100 }).map(|_| ()).unwrap_err().kind(),
        document.view(&root, None, Some(5)).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [Kind::Source; 3]);
}
