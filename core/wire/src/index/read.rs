//! Lazy reading of an index. Opening reads the header and the names of types, and a look-up only reads the records that
//! it needs. The checksum of a page is verified at the first access.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::broken;
use super::layout::{self, Layout, NodeRecord, PAGE, Record, Section};
use crate::error::{Kind, Result, WireError};
use crate::reader::Reader;

/// The bytes of an index, either in memory or in a mapped file.
pub type IndexBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An opened index.
pub struct Index {
    data: IndexBytes,
    layout: Layout,
    verified: Vec<AtomicBool>,
    types: Vec<String>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index of {} bytes, {} nodes", self.size(), self.node_count())
    }
}

impl Index {
    /// Opens the index in `data`; reads only the header and the names of types.
    pub fn open(data: IndexBytes) -> Result<Self> {
        let layout = Layout::parse((*data).as_ref())?;
        let verified = (0..layout.pages).map(|_| AtomicBool::new(false)).collect();
        let mut index = Self { data, layout, verified, types: Vec::new() };
        index.types = index.type_names()?;
        Ok(index)
    }

    /// The serialized form.
    pub fn bytes(&self) -> &[u8] {
        (*self.data).as_ref()
    }

    /// The size of the indexed proto in bytes.
    pub fn size(&self) -> u64 {
        self.layout.size
    }

    /// The size in bytes below which a message has no node.
    pub fn floor(&self) -> u64 {
        self.layout.floor
    }

    /// Number of nodes.
    pub fn node_count(&self) -> u64 {
        self.section_len(Section::Nodes) / NodeRecord::WIDTH as u64
    }

    /// Verifies the checksum of every page.
    pub fn verify(&self) -> Result<()> {
        let end = self.layout.bounds.last().copied().unwrap_or(0);
        self.body(0..end).map(drop)
    }

    /// The name of the message type that node records call `number`; None for 0 and unknown numbers.
    pub fn type_name(&self, number: u32) -> Option<&str> {
        let at = (number as usize).checked_sub(1)?;
        self.types.get(at).map(String::as_str)
    }

    fn type_names(&self) -> Result<Vec<String>> {
        let mut reader = Reader::new(self.section(Section::Types, 0, self.section_len(Section::Types))?, 0);
        let mut names = Vec::new();
        while !reader.is_empty() {
            let len = reader.varint()?;
            let name = std::str::from_utf8(reader.take(len)?);
            names.push(name.map_err(|_| broken("the name of a type in the saved scan is not UTF-8"))?.to_owned());
        }
        Ok(names)
    }

    fn section_len(&self, section: Section) -> u64 {
        let at = section as usize;
        let bound = |i: usize| self.layout.bounds.get(i).copied().unwrap_or(0);
        bound(at + 1) - bound(at)
    }

    /// `len` bytes of a section, from offset `at` on.
    pub(super) fn section(&self, section: Section, at: u64, len: u64) -> Result<&[u8]> {
        let base = self.layout.bounds.get(section as usize).copied().unwrap_or(0);
        let inside = at.checked_add(len).is_some_and(|end| end <= self.section_len(section));
        if !inside {
            return Err(broken("a record points outside of its section"));
        }
        self.body(base + at..base + at + len)
    }

    fn body(&self, range: Range<u64>) -> Result<&[u8]> {
        let body = self.bytes().get(self.layout.body..).unwrap_or_default();
        let (start, end) = (range.start as usize, range.end as usize);
        if start < end {
            for page in start / PAGE..=(end - 1) / PAGE {
                self.verify_page(page, body)?;
            }
        }
        body.get(start..end).ok_or_else(|| broken("a record points outside of the index"))
    }

    fn verify_page(&self, page: usize, body: &[u8]) -> Result<()> {
        let Some(done) = self.verified.get(page) else { return Err(broken("a page is missing")) };
        if done.load(Ordering::Relaxed) {
            return Ok(());
        }
        let from = page * PAGE;
        let bytes = body.get(from..body.len().min(from + PAGE)).unwrap_or_default();
        let sums = layout::HEADER + page * 4;
        let stored = Reader::new(self.bytes().get(sums..).unwrap_or_default(), 0).u32()?;
        if crc32c::crc32c(bytes) != stored {
            let message = "a page of the index fails its checksum: rebuild the index";
            return Err(WireError::new(Kind::Checksum, message).at((self.layout.body + from) as u64));
        }
        done.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The record at position `at` among the records of its kind.
    pub(super) fn record<R: Record>(&self, at: u64) -> Result<R> {
        let start = at.checked_mul(R::WIDTH as u64).ok_or_else(|| broken("a record's number overflows"))?;
        R::read(&mut Reader::new(self.section(R::SECTION, start, R::WIDTH as u64)?, 0))
    }

    /// The position, relative to `at`, of the first of `len` records from `at` on for which `before` is false.
    pub(super) fn partition<R: Record>(&self, at: u64, len: u64, before: impl Fn(&R) -> bool) -> Result<u64> {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            let record: R = self.record(at.saturating_add(middle))?;
            if before(&record) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}
