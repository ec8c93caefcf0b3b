//! This crate indexes any protobuf on the wire and represents every view of it as a rope.
//!
//! Nothing in this crate reads a file, opens a socket or depends on Python. An algorithm that needs more bytes reads
//! them from a [`source::Source`] that the caller provides.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod blocks;
pub mod bundle;
pub mod content;
pub mod cpb;
pub mod descriptor;
pub mod digest;
pub mod document;
pub mod elements;
pub mod entry;
pub mod error;
pub mod fields;
pub mod find;
pub mod header;
pub mod heaviest;
pub mod index;
pub mod inflate;
pub mod key;
pub mod largest;
pub mod limits;
pub mod links;
pub mod listing;
pub mod mask;
pub mod metadata;
pub mod omit;
pub mod ondemand;
pub mod path;
pub mod pattern;
pub mod plan;
mod plan_file;
pub mod reader;
pub mod records;
pub mod resolve;
pub mod riegeli;
pub mod rope;
pub mod scan;
pub mod schema;
pub mod source;
pub mod statistics;
pub mod strip;
pub mod table;
pub mod uses;
pub mod varint;
pub mod view;
pub mod xorb;

pub use error::{Kind, Result, WireError};
pub use limits::Limits;
pub use rope::{Rope, RopeBuilder, SourceId};
pub use schema::Schema;
