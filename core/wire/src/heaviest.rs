//! The search for the largest children of a path, of any number of children.

use std::cmp::Reverse;

use crate::document::{Document, Message};
use crate::entry::Entry;
use crate::error::Result;
use crate::listing::Child;
use crate::resolve::Target;
use crate::schema::Field;

/// An element with its size and position.
type Weighed = (u64, u64, Entry);

/// The largest children of a place, and its totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heaviest {
    /// The largest children, in falling order.
    pub children: Vec<Child>,
    /// Number of all children.
    pub total: u64,
    /// The size of all children in bytes, including their tags.
    pub size: u64,
}

impl Document<'_> {
    /// Up to `most` children of `target` that have at least `least` bytes, the largest first.
    pub fn heaviest(&self, target: &Target, most: usize, least: u64) -> Result<Heaviest> {
        match target {
            Target::Message(message) => self.heaviest_fields(message, most, least),
            Target::Repeated { owner, number, field }
                if !field.as_ref().is_some_and(|field| field.kind.is_packable()) =>
            {
                self.heaviest_elements(owner, *number, field.as_ref(), (most, least))
            }
            _ => Ok(Heaviest::default()),
        }
    }

    fn heaviest_fields(&self, message: &Message, most: usize, least: u64) -> Result<Heaviest> {
        let fields = self.fields_in(message)?;
        let (total, size) = (fields.len() as u64, fields.values().map(|(_, bytes)| bytes).sum());
        let mut large: Vec<_> = fields.into_iter().filter(|(_, (_, bytes))| *bytes >= least).collect();
        large.sort_by_key(|(number, (_, bytes))| (Reverse(*bytes), *number));
        large.truncate(most);
        let children =
            large.into_iter().map(|(number, (count, bytes))| self.field_child(message, number, count, bytes));
        Ok(Heaviest { children: children.collect::<Result<_>>()?, total, size })
    }

    fn heaviest_elements(
        &self,
        owner: &Message,
        number: u32,
        field: Option<&Field>,
        (most, least): (usize, u64),
    ) -> Result<Heaviest> {
        let mut kept: Vec<Weighed> = Vec::new();
        let (mut before, mut size) = (0u64, 0u64);
        for part in &owner.parts {
            self.visit(part, number, 0, &mut |at, entry| {
                if at % 4096 == 0 {
                    self.carry_on()?;
                }
                size += entry.end - entry.start;
                // A run contains numbers, none of which is large.
                if entry.content_len() >= least && entry.count == 1 {
                    kept.push((entry.content_len(), before + at, *entry));
                }
                if kept.len() > most.saturating_mul(2) {
                    largest_first(&mut kept, most);
                }
                Ok(true)
            })?;
            before += self.count(part, number)?;
        }
        largest_first(&mut kept, most);
        let children = kept.iter().map(|(_, at, entry)| self.element_child(entry, *at, field));
        Ok(Heaviest { children: children.collect::<Result<_>>()?, total: before, size })
    }
}

fn largest_first(kept: &mut Vec<Weighed>, most: usize) {
    kept.sort_unstable_by_key(|(size, at, _)| (Reverse(*size), *at));
    kept.truncate(most);
}
