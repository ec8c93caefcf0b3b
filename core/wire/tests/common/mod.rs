//! Shared fixtures of the engine's tests: a schema, protos of it, and damage.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

use std::borrow::Cow;

use wire::Result;
use wire::source::Source;

pub mod bodies;
pub mod corpus;
pub mod damage;
pub mod descriptors;
pub mod elements;
pub mod memory;
pub mod riegeli;
pub mod schema;
pub mod sealed;
pub mod streams;
pub mod tables;
pub mod targets;
pub mod walker;

/// Bytes in memory as a source of any kind.
pub struct Bytes<'a>(pub &'a [u8]);

impl Source for Bytes<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.0.read(offset, len)
    }
}
