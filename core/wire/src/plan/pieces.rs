//! Splitting of repeated fields into pieces of bounded size.

use super::Chunk;
use super::planner::{Outcome, Planner, join};
use crate::document::Message;
use crate::entry::Entry;
use crate::error::Result;
use crate::metadata::ChunkKind;
use crate::rope::RopeBuilder;

/// Collects the elements of one field into pieces of at most `max_chunk` bytes (or one element) and `every` elements, each a message of the
/// parent's type.
pub(super) struct Cutter<'p, 'a, 'd> {
    planner: &'p Planner<'a, 'd>,
    type_name: Option<String>,
    label: String,
    /// Most elements of a piece.
    every: u64,
    building: RopeBuilder,
    first: u64,
    seen: u64,
    done: Vec<Chunk>,
}

impl<'p, 'a, 'd> Cutter<'p, 'a, 'd> {
    pub(super) fn new(
        planner: &'p Planner<'a, 'd>,
        message: &Message,
        path: &str,
        number: u32,
        every: Option<u64>,
    ) -> Self {
        let doc = planner.doc;
        let name =
            doc.schema.field(message.type_id, number).map_or_else(|| number.to_string(), |field| field.name.clone());
        Self {
            planner,
            type_name: doc.name(message.type_id),
            label: join(path, &name),
            every: every.unwrap_or(u64::MAX),
            building: RopeBuilder::new(&doc.limits),
            first: 0,
            seen: 0,
            done: Vec::new(),
        }
    }

    /// The rope of the piece that `entry` belongs to.
    pub(super) fn next(&mut self, entry: &Entry, outcome: Option<&Outcome>) -> Result<&mut RopeBuilder> {
        let size = match outcome {
            Some(Outcome::Changed(rope)) => Entry::minimal_head(entry.number, rope.len()) + rope.len(),
            _ => entry.end - entry.start,
        };
        let full = self.building.len().saturating_add(size) > self.planner.policy.max_chunk;
        if !self.building.is_empty() && (full || self.seen - self.first >= self.every) {
            self.cut()?;
        }
        self.seen += entry.count;
        Ok(&mut self.building)
    }

    fn cut(&mut self) -> Result<()> {
        self.planner.count()?;
        let building = RopeBuilder::new(&self.planner.doc.limits);
        let rope = std::mem::replace(&mut self.building, building).finish();
        let path = format!("{}[{}:{}]", self.label, self.first, self.seen);
        self.done.push(Chunk { kind: ChunkKind::Message, type_name: self.type_name.clone(), path, rope });
        self.first = self.seen;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Vec<Chunk>> {
        if !self.building.is_empty() {
            self.cut()?;
        }
        Ok(self.done)
    }
}
