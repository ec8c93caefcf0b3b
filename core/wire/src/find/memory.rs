//! The search in messages that are in memory.

use super::frame::{Frame, Piece, Step, key_of};
use super::{LEADS, Place, Search, WANTED, count_up};
use crate::entry::Entry;
use crate::error::Result;
use crate::fields::{Fields, InMemory};
use crate::header::Wire;
use crate::key::Key;
use crate::ondemand::append;
use crate::schema::{Field, TypeId};

use std::collections::HashMap;

/// Most entries of a map whose keys are compared pairwise instead of with a hash table.
const FEW: usize = 16;

/// A message field of a message.
#[derive(Clone, Copy)]
struct Child<'b, 's> {
    field: &'s Field,
    piece: Piece<'b>,
    /// How often, before this field, the oneof switched to another member.
    change: u32,
}

/// The current member of a oneof, and the number of switches so far.
struct Choice {
    oneof: u32,
    number: u32,
    change: u32,
}

impl<'a> Search<'_, 'a> {
    /// Searches the message at `frame`, which consists of `pieces`, and all messages below it.
    pub(super) fn within(&mut self, pieces: &[Piece<'_>], frame: &Frame<'_>, depth: u32) -> Result<()> {
        self.doc.limits.check_depth(depth, pieces.first().map_or(0, |piece| piece.base))?;
        if self.query.least > 0 && pieces.iter().map(|piece| piece.bytes.len() as u64).sum::<u64>() < self.query.least {
            return Ok(());
        }
        let role = self.role(frame.type_id);
        if role & WANTED > 0 {
            self.take_within(pieces, frame)?;
        }
        if role & LEADS == 0 {
            return Ok(());
        }
        let children = self.children(pieces, frame.type_id)?;
        if let [child] = children.as_slice() {
            return self.field_within(child.field, 0, std::slice::from_ref(&child.piece), frame, depth);
        }
        let mut seen = Vec::new();
        let mut rest = children.as_slice();
        while let Some((child, after)) = rest.split_first() {
            let ordinal = count_up(&mut seen, child.field.number);
            let element = child.field.repeated && !self.doc.schema.is_map(child.field);
            let same = |other: &&Child<'_, '_>| other.field.number == child.field.number;
            if element || (ordinal == 0 && !after.iter().any(|other| same(&other))) {
                self.field_within(child.field, ordinal, std::slice::from_ref(&child.piece), frame, depth)?;
            } else if ordinal == 0 {
                let pieces: Vec<Piece<'_>> = rest.iter().filter(same).map(|child| child.piece).collect();
                self.field_within(child.field, 0, &pieces, frame, depth)?;
            }
            rest = after;
        }
        Ok(())
    }

    /// Searches one element, the message of a singular field, or all entries of a map.
    fn field_within(
        &mut self,
        field: &Field,
        ordinal: u64,
        pieces: &[Piece<'_>],
        frame: &Frame<'_>,
        depth: u32,
    ) -> Result<()> {
        if self.doc.schema.is_map(field) {
            return self.map_within(field, pieces, frame, depth);
        }
        let step = if field.repeated { Step::Index(ordinal) } else { Step::Alone };
        self.within(pieces, &Frame::held(field.target, Some(frame), Some(field), step, pieces), depth + 1)
    }

    /// Searches a map that has one piece per entry. Of entries with equal keys, the last counts, at the position of the
    /// first.
    fn map_within(&mut self, field: &Field, entries: &[Piece<'_>], frame: &Frame<'_>, depth: u32) -> Result<()> {
        let schema = self.doc.schema;
        let Some(key_field) = schema.field(Some(field.target), 1) else { return Ok(()) };
        let mut kept: Vec<(Key<'_>, Piece<'_>)> = Vec::with_capacity(entries.len());
        let mut places: HashMap<Key<'_>, usize> = HashMap::new();
        for entry in entries {
            let key = key_of(key_field, std::slice::from_ref(entry), self.doc.limits.depth)?;
            let known = if entries.len() > FEW {
                places.get(&key).copied()
            } else {
                kept.iter().position(|(other, _)| *other == key)
            };
            if let Some(earlier) = known.and_then(|at| kept.get_mut(at)) {
                earlier.1 = *entry;
                continue;
            }
            if entries.len() > FEW {
                places.insert(key, kept.len());
            }
            kept.push((key, *entry));
        }
        for (key, entry) in &kept {
            let step = Step::Key(key_field.kind, *key);
            self.entry_within(field, step, std::slice::from_ref(entry), frame, depth)?;
        }
        Ok(())
    }

    /// Searches the value of one entry of the map `field`; the value consists of `pieces`.
    pub(super) fn entry_within(
        &mut self,
        field: &Field,
        step: Step<'_>,
        pieces: &[Piece<'_>],
        frame: &Frame<'_>,
        depth: u32,
    ) -> Result<()> {
        let entry = Frame::held(field.target, Some(frame), Some(field), step, pieces);
        if self.takes_entries(field.target) {
            return self.take_within(pieces, &entry);
        }
        let children = self.children(pieces, field.target)?;
        let Some(value) = self.doc.schema.field(Some(field.target), 2).filter(|_| !children.is_empty()) else {
            return Ok(());
        };
        let many: Vec<Piece<'_>>;
        let values = if let [child] = children.as_slice() {
            std::slice::from_ref(&child.piece)
        } else {
            many = children.iter().map(|child| child.piece).collect();
            &many
        };
        self.within(values, &Frame::held(value.target, Some(&entry), None, Step::Alone, values), depth + 1)
    }

    /// The fields of `pieces` that may contain messages of the query, except those that a later oneof member replaced.
    fn children<'b>(&self, pieces: &[Piece<'b>], type_id: TypeId) -> Result<Vec<Child<'b, 'a>>> {
        let mut children = Vec::new();
        let mut choices: Vec<Choice> = Vec::new();
        let Some(message) = self.doc.schema.message(type_id) else { return Ok(children) };
        let mask = self.masks.get(type_id as usize).copied().unwrap_or(u16::MAX);
        for piece in pieces {
            let mut fields = Fields::new(piece.bytes, piece.base, self.doc.limits.depth);
            while let Some(found) = fields.next_among(mask)? {
                let Some(field) = message.field(found.header.number) else { continue };
                let change =
                    if field.oneof > 0 && field.fits(found.header.wire) { choose(&mut choices, field) } else { 0 };
                if field.kind.is_message() && field.kind.wire() == found.header.wire && self.role(field.target) > 0 {
                    children.push(Child { field, piece: content_of(&found), change });
                }
            }
        }
        if !choices.is_empty() {
            children.retain(|child: &Child<'_, '_>| {
                let choice = choices.iter().find(|choice| choice.oneof == child.field.oneof);
                choice.is_none_or(|choice| choice.change == child.change)
            });
        }
        Ok(children)
    }

    fn take_within(&mut self, pieces: &[Piece<'_>], frame: &Frame<'_>) -> Result<()> {
        let path = self.begin(frame)?;
        let mut entries = Vec::new();
        for piece in pieces {
            entries.clear();
            let mut fields = Fields::new(piece.bytes, piece.base, self.doc.limits.depth);
            while let Some(found) = fields.next_field()? {
                let mut entry = entry_of(&found);
                entry.number = self.doc.schema.fitted(Some(frame.type_id), entry.number, entry.wire);
                append(&mut entries, entry);
            }
            for entry in &entries {
                Place::of(entry).into_iter().for_each(|place| self.found.place(place));
                if self.query.shows(self.doc.schema, frame.type_id, entry) {
                    let (from, to) = ((entry.start - piece.base) as usize, (entry.end - piece.base) as usize);
                    self.found.small(piece.bytes.get(from..to).unwrap_or_default());
                }
            }
        }
        self.found.end(frame.type_id, path)
    }
}

/// Makes `field` the current member of its oneof and returns the number of switches so far.
fn choose(choices: &mut Vec<Choice>, field: &Field) -> u32 {
    let Some(choice) = choices.iter_mut().find(|choice| choice.oneof == field.oneof) else {
        choices.push(Choice { oneof: field.oneof, number: field.number, change: 0 });
        return 0;
    };
    if choice.number != field.number {
        (choice.number, choice.change) = (field.number, choice.change.wrapping_add(1));
    }
    choice.change
}

fn content_of<'b>(found: &InMemory<'b>) -> Piece<'b> {
    Piece { bytes: found.content, base: found.start + u64::from(found.header.head_len) }
}

fn entry_of(found: &InMemory<'_>) -> Entry {
    let mut entry = Entry::new(&found.header, found.start);
    if entry.wire == Wire::Group {
        (entry.content_end, entry.end) = (entry.content + found.content.len() as u64, found.end);
    }
    entry
}
