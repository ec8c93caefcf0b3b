//! The building of ropes.

use std::sync::Arc;

use super::{Piece, Rope, Segment, Shared, SourceId};
use crate::error::{Kind, Result, WireError};
use crate::limits::Limits;
use crate::varint;

/// Builds a rope from front to back.
#[derive(Debug, Default)]
pub struct RopeBuilder {
    shared: Shared,
    limit: Option<usize>,
    overflow: bool,
}

impl RopeBuilder {
    /// Makes a builder whose [`RopeBuilder::check`] fails once there are more pieces than `limits` allow.
    pub fn new(limits: &Limits) -> Self {
        Self { limit: Some(limits.pieces), ..Self::default() }
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.shared.segments.last().map_or(0, |segment| segment.end)
    }

    /// True if nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `len` bytes of `source`.
    pub fn extent(&mut self, source: SourceId, offset: u64, len: u64) {
        self.push(Some(source), offset, len);
    }

    /// Appends `bytes`.
    pub fn literal(&mut self, bytes: &[u8]) {
        let at = self.shared.literals.len() as u64;
        self.shared.literals.extend_from_slice(bytes);
        self.push(None, at, bytes.len() as u64);
    }

    /// Appends the shortest varint of `value`.
    pub fn varint(&mut self, value: u64) {
        let mut bytes = Vec::with_capacity(varint::MAX_LEN);
        varint::write(value, &mut bytes);
        self.literal(&bytes);
    }

    /// Appends one piece.
    pub fn piece(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Extent { source, offset, len } => self.extent(source, offset, len),
            Piece::Literal(bytes) => self.literal(bytes),
        }
    }

    /// Appends all of `rope`.
    pub fn rope(&mut self, rope: &Rope) {
        rope.pieces().for_each(|piece| self.piece(piece));
    }

    /// Fails once the rope has more pieces than allowed.
    pub fn check(&self) -> Result<()> {
        if self.overflow {
            return Err(WireError::new(Kind::Corrupt, "the result would be longer than 2^64 bytes"));
        }
        match self.limit {
            Some(limit) if self.shared.segments.len() > limit => {
                let message = format!("the response would consist of more than {limit} parts; ask for less at a time");
                Err(WireError::new(Kind::Limit, message))
            }
            _ => Ok(()),
        }
    }

    /// Finishes the rope.
    pub fn finish(mut self) -> Rope {
        let end = self.len();
        self.shared.segments.shrink_to_fit();
        Rope { shared: Arc::new(self.shared), start: 0, end }
    }

    fn push(&mut self, source: Option<SourceId>, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let begin = self.len();
        let Some(end) = begin.checked_add(len) else {
            self.overflow = true;
            return;
        };
        let before = self.shared.segments.len().checked_sub(2).and_then(|i| self.shared.segments.get(i));
        let from = before.map_or(0, |segment| segment.end);
        if let Some(last) = self.shared.segments.last_mut()
            && last.source == source
            && last.at + (begin - from) == at
        {
            last.end = end;
            return;
        }
        self.shared.segments.push(Segment { end, at, source });
    }
}
