//! The places of the fields that a view leaves out by path.

use std::ops::Range;
use std::rc::Rc;

use super::resolved::resolve;
use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::mask::Mask;
use crate::path::{Path, Select};
use crate::resolve::Target;

/// Steps of work counted for each place that is kept in memory.
const HELD: u64 = 8;

impl Document<'_> {
    /// The spans of the fields and elements at `paths` below `target`; a path that leads to nothing gives no span.
    pub fn spans_at(&self, target: &Target, paths: &[Path]) -> Result<Vec<Range<u64>>> {
        let Target::Message(message) = target else {
            let text = "the parameter 'omit' only works on messages, but this path leads to a value";
            return Err(WireError::new(Kind::Unsupported, text));
        };
        if paths.iter().any(|path| path.segments.is_empty()) {
            return Err(WireError::new(Kind::Syntax, "the parameter 'omit' has an empty path: name a field"));
        }
        self.count_steps();
        let mut spans = Vec::new();
        self.add_spans(message, &Rc::new(Mask::new(paths)?), 0, &mut spans)?;
        Ok(spans)
    }

    fn add_spans(&self, message: &Message, mask: &Rc<Mask>, depth: u32, spans: &mut Vec<Range<u64>>) -> Result<()> {
        let first = message.parts.first().map(|part| self.span(part)).transpose()?;
        self.limits.check_depth(depth, first.map_or(0, |span| span.start))?;
        for (number, group) in &resolve(self, message, mask)? {
            let mut inside: Vec<(Entry, Rc<Mask>)> = Vec::new();
            let mut take = |_: usize, entry: Entry, mask: &Rc<Mask>| {
                self.spend(HELD)?;
                if mask.whole {
                    spans.push(entry.span());
                } else {
                    inside.push((entry, Rc::clone(mask)));
                }
                Ok(())
            };
            self.select_told(message, *number, group, &mut take)?;
            self.select_placed(message, *number, group, &mut take)?;
            let is_map = group.field.is_some_and(|field| self.schema.is_map(field));
            for (select, _) in
                group.keyed.iter().filter(|(select, mask)| is_map && mask.whole && !matches!(select, Select::Where(_)))
            {
                // If only the entry in effect were left out, an earlier entry with the same key would take effect.
                let wanted = self.wanted(*number, group.field, select)?;
                self.map_entries(message, &wanted, &mut |entry| {
                    spans.push(entry.span());
                    self.spend(HELD)
                })?;
            }
            let Some((_, first)) = inside.first() else { continue };
            let Some(type_id) = group.field.filter(|field| field.kind.is_message()).map(|field| field.target) else {
                let name = group.field.map_or("", |field| field.name.as_str());
                return Err(WireError::new(Kind::NotFound, format!("{name} has no fields: end the path at {name}")));
            };
            if group.field.is_some_and(|field| !field.repeated) {
                // The occurrences of a singular message form one message, so positions count through all of them.
                let parts = inside.iter().map(|(entry, _)| Part::of(entry, Some(type_id))).collect();
                self.add_spans(&Message { type_id: Some(type_id), parts }, first, depth + 1, spans)?;
                continue;
            }
            for (entry, mask) in &inside {
                let part = Part::of(entry, Some(type_id));
                if is_map {
                    self.add_spans_of_value(&part, type_id, mask, depth + 1, spans)?;
                } else {
                    self.add_spans(&Message { type_id: Some(type_id), parts: vec![part] }, mask, depth + 1, spans)?;
                }
            }
        }
        Ok(())
    }

    /// Does the same for the value of a map entry.
    fn add_spans_of_value(
        &self,
        part: &Part,
        entry_type: u32,
        mask: &Rc<Mask>,
        depth: u32,
        spans: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let value = self.schema.field(Some(entry_type), 2).filter(|field| field.kind.is_message());
        let Some(type_id) = value.map(|field| field.target) else {
            return Err(WireError::new(
                Kind::NotFound,
                "the values of this map have no fields: end the path at the map",
            ));
        };
        for entry in self.entries(part)? {
            let entry = entry?;
            if entry.number == 2 {
                let parts = vec![Part::of(&entry, Some(type_id))];
                self.add_spans(&Message { type_id: Some(type_id), parts }, mask, depth, spans)?;
            }
        }
        Ok(())
    }
}
