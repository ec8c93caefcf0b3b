//! Windows of bytes for a search; a window ends where a large payload begins.

use std::ops::Range;
use std::rc::Rc;

use crate::document::Document;
use crate::entry::NodeId;
use crate::error::{Result, WireError};

/// Largest window in bytes, unless a single field is longer.
pub(super) const WINDOW: u64 = 1 << 20;

/// The window that was read last.
pub(super) struct Window<'d, 'a> {
    doc: &'d Document<'a>,
    /// The sorted offsets of payloads above the index's floor; they are collected at the first read.
    large: Option<Vec<u64>>,
    start: u64,
    bytes: Rc<Vec<u8>>,
}

/// A part of a window, which stays valid after the next window was read.
pub(super) struct Held {
    window: Rc<Vec<u8>>,
    range: Range<usize>,
}

impl Held {
    pub(super) fn bytes(&self) -> &[u8] {
        self.window.get(self.range.clone()).unwrap_or_default()
    }
}

impl<'d, 'a> Window<'d, 'a> {
    pub(super) fn new(doc: &'d Document<'a>) -> Self {
        Self { doc, large: None, start: 0, bytes: Rc::default() }
    }

    /// The bytes of `span`.
    pub(super) fn get(&mut self, span: &Range<u64>) -> Result<Held> {
        if let Some(held) = self.inside(span) {
            return Ok(held);
        }
        let end = self.end(span)?;
        let len = usize::try_from(end - span.start);
        let len = len.map_err(|_| WireError::corrupt(span.start, "a field is larger than memory"))?;
        let bytes = self.doc.source().read(span.start, len)?.into_owned();
        (self.start, self.bytes) = (span.start, Rc::new(bytes));
        self.inside(span)
            .ok_or_else(|| WireError::corrupt(span.start, "the source returned fewer bytes than requested"))
    }

    /// The bytes of `span`, read together with the bytes from `front` on unless a large payload is between them.
    pub(super) fn get_with(&mut self, front: u64, span: &Range<u64>) -> Result<Held> {
        if self.inside(span).is_none() && front < span.start && self.end(&(front..front))? >= span.end {
            self.get(&(front..span.end))?;
        }
        self.get(span)
    }

    fn inside(&self, span: &Range<u64>) -> Option<Held> {
        let start = usize::try_from(span.start.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(span.end.checked_sub(self.start)?).ok()?;
        (start <= end && end <= self.bytes.len()).then(|| Held { window: Rc::clone(&self.bytes), range: start..end })
    }

    /// The end of a window that begins with `span`: after one stride, or before the next large payload, but at least
    /// after `span`.
    fn end(&mut self, span: &Range<u64>) -> Result<u64> {
        let stride = self.doc.source().stride().clamp(1, WINDOW);
        let far = span.start.saturating_add(stride).min(self.doc.source().len());
        let large = match &mut self.large {
            Some(large) => large,
            none => none.insert(large_payloads(self.doc)?),
        };
        let next = large.get(large.partition_point(|at| *at < span.start)).copied().unwrap_or(u64::MAX);
        Ok(far.min(next).max(span.end))
    }
}

fn large_payloads(doc: &Document<'_>) -> Result<Vec<u64>> {
    let mut large = Vec::new();
    for id in 0..NodeId::try_from(doc.index.node_count()).unwrap_or(NodeId::MAX) {
        doc.carry_on()?;
        for entry in doc.index.node(id)?.entries() {
            let entry = entry?;
            if entry.node.is_none() && entry.content_len() > doc.index.floor() {
                large.push(entry.content);
            }
        }
    }
    large.sort_unstable();
    Ok(large)
}
