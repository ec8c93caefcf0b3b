//! The index of a tensor bundle: its tensors, and the shard, offset and size of each.
//!
//! The whole index is read once, block by block. Entries are kept serialized, so a tensor takes as much memory as its
//! entry. Each access decodes one entry.

use std::cmp::Ordering;

use crate::error::{Kind, Result, WireError};
use crate::fields::{Fields, InMemory};
use crate::header::Wire;
use crate::limits::Limits;
use crate::reader::Reader;
use crate::source::Source;
use crate::table::{self, Entry};

mod entry;
mod message;
mod slice_key;

pub use entry::{Extent, Placed};
pub use slice_key::slice_key;

/// The version of the bundle format that this reader supports.
const VERSION: u64 = 1;
/// Most bytes of keys per byte of the table. Keys share prefixes in the table, but no writer reaches this ratio.
const KEYS_RATIO: u64 = 32;
/// The largest initial capacity for the entries in bytes.
const FIRST_ROOM: u64 = 1 << 20;

/// All tensors of a bundle, by name.
#[derive(Debug, Default)]
pub struct Bundle {
    shards: u32,
    big_endian: bool,
    /// The header as stored, a `BundleHeaderProto`.
    header: Vec<u8>,
    /// The keys and values, concatenated.
    bytes: Vec<u8>,
    ends: Vec<Ends>,
    /// The number of slice entries. Their keys begin with a zero byte, so they are sorted before all tensors.
    first: usize,
    depth: u32,
}

/// The ends of an entry's key and value in `bytes`; the entry begins where the previous entry ends.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    key: usize,
    value: usize,
}

impl Bundle {
    /// Reads the index in `source`.
    pub fn open(source: &dyn Source, limits: &Limits) -> Result<Self> {
        let room = usize::try_from(source.len().min(FIRST_ROOM)).unwrap_or_default();
        let mut bundle = Self { bytes: Vec::with_capacity(room), depth: limits.depth, ..Self::default() };
        let mut most_keys = source.len().saturating_mul(KEYS_RATIO);
        table::walk(source, |entry| {
            if bundle.shards == 0 {
                return bundle.header(&entry);
            }
            let left = most_keys.checked_sub(entry.key.len() as u64);
            most_keys = left
                .filter(|_| (bundle.ends.len() as u64) < limits.nodes)
                .ok_or_else(|| WireError::new(Kind::Limit, "the bundle has too many names").at(entry.offset))?;
            bundle.push(&entry);
            Ok(())
        })?;
        if bundle.shards == 0 {
            return Err(WireError::corrupt(0, "the index of the bundle is empty: its header is missing"));
        }
        bundle.first = (0..bundle.ends.len()).take_while(|at| bundle.key(*at).first() == Some(&0)).count();
        Ok(bundle)
    }

    /// The number of shards.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// True if the tensors are big-endian.
    pub fn big_endian(&self) -> bool {
        self.big_endian
    }

    /// The number of tensors; slices do not count.
    pub fn len(&self) -> usize {
        self.ends.len() - self.first
    }

    /// True if there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of tensor `number`; None after the last tensor.
    pub fn name(&self, number: usize) -> Option<&[u8]> {
        (number < self.len()).then(|| self.key(self.first + number))
    }

    /// The entry of tensor `number`, which must be below `len`.
    pub fn tensor(&self, number: usize) -> Result<Placed> {
        self.decode(self.first.saturating_add(number))
    }

    /// The number of the tensor named `name`; None when the bundle has no such tensor.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.search(name)?.checked_sub(self.first)
    }

    /// The entry of the given slice of the tensor `name`; None when it is missing.
    pub fn slice(&self, name: &[u8], slice: &[Extent]) -> Result<Option<Placed>> {
        self.search(&slice_key(name, slice)).map(|at| self.decode(at)).transpose()
    }

    fn search(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    fn decode(&self, at: usize) -> Result<Placed> {
        let Ends { key, value } = self.ends.get(at).copied().unwrap_or_default();
        Placed::decode(self.bytes.get(key..value).unwrap_or_default(), self.depth).map_err(|error| {
            let name = String::from_utf8_lossy(self.key(at));
            let message = format!("the entry of {name:?} in the index of the bundle is broken: {}", error.message());
            WireError::new(error.kind(), message)
        })
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |ends| ends.value);
        let end = self.ends.get(at).map_or(start, |ends| ends.key);
        self.bytes.get(start..end).unwrap_or_default()
    }

    fn push(&mut self, entry: &Entry<'_>) {
        self.bytes.extend_from_slice(entry.key);
        let key = self.bytes.len();
        self.bytes.extend_from_slice(entry.value);
        self.ends.push(Ends { key, value: self.bytes.len() });
    }

    fn header(&mut self, entry: &Entry<'_>) -> Result<()> {
        if !entry.key.is_empty() {
            return Err(WireError::corrupt(entry.offset, "the index of the bundle does not start with its header"));
        }
        self.header = entry.value.to_vec();
        let mut fields = Fields::new(entry.value, entry.offset, self.depth);
        while let Some(field) = fields.next_field()? {
            match (field.header.number, field.header.wire) {
                (1, Wire::Varint) => self.shards = u32::try_from(field.header.value as i32).unwrap_or(0),
                (2, Wire::Varint) => self.big_endian = field.header.value == 1,
                (3, Wire::Len) => check_version(&field, self.depth)?,
                _ => {}
            }
        }
        if self.shards == 0 {
            return Err(WireError::corrupt(entry.offset, "the header of the bundle lists no shards"));
        }
        Ok(())
    }
}

/// Fails when `versions`, a `VersionDef`, excludes this version of the reader.
fn check_version(versions: &InMemory<'_>, depth: u32) -> Result<()> {
    let start = versions.end.saturating_sub(versions.content.len() as u64);
    let (mut newer, mut refused) = (false, false);
    let mut fields = Fields::new(versions.content, start, depth);
    while let Some(field) = fields.next_field()? {
        match (field.header.number, field.header.wire) {
            (2, Wire::Varint) => newer = field.header.value as i32 > VERSION as i32,
            (3, Wire::Varint) => refused |= field.header.value == VERSION,
            (3, Wire::Len) => {
                let mut all = Reader::new(field.content, field.start);
                while !all.is_empty() {
                    refused |= all.varint()? == VERSION;
                }
            }
            _ => {}
        }
    }
    if newer || refused {
        let message = format!("the bundle cannot be read by version {VERSION}, the only version supported here");
        return Err(WireError::new(Kind::Unsupported, message).at(start));
    }
    Ok(())
}
