//! The masking of a message. Elements are walked once, in order, for any number of selections.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::Peekable;
use std::rc::Rc;
use std::vec::IntoIter;

use super::resolved::{Group, Resolved, resolve};
use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::mask::Mask;
use crate::omit::Omit;
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::TypeId;

/// Steps of work counted for each field that is kept in memory while other fields are searched.
const HELD: u64 = 8;
/// Most picks that are looked up one by one; if there are more, the existing fields are listed first.
const FEW: usize = 4;

/// A selected field, and the mask of its content.
struct Row {
    entry: Entry,
    mask: Rc<Mask>,
}

/// A mask resolved for one message type. The mask is kept alive, because its address is the key of the cache.
type Meaning<'a> = (Rc<Mask>, Rc<Resolved<'a>>);

/// The masking of one document with one mask.
pub(super) struct Masking<'d, 'a> {
    doc: &'d Document<'a>,
    omit: &'d Omit,
    meanings: RefCell<HashMap<(*const Mask, Option<TypeId>), Meaning<'a>>>,
}

/// A builder of a masked message, piece by piece.
struct Kept<'k> {
    outs: Vec<RopeBuilder>,
    rows: Vec<Peekable<IntoIter<Row>>>,
    /// The masked contents of singular messages, by the offset of each occurrence.
    merged: &'k BTreeMap<u64, Rope>,
}

impl<'d, 'a> Masking<'d, 'a> {
    /// Makes a masking of `doc`; the fields that `omit` selects are left out.
    pub(super) fn new(doc: &'d Document<'a>, omit: &'d Omit) -> Self {
        Self { doc, omit, meanings: RefCell::default() }
    }

    /// The masked `message`, as a rope for each of its pieces.
    pub(super) fn masked(&self, message: &Message, mask: &Rc<Mask>, depth: u32) -> Result<Vec<Rope>> {
        if mask.whole {
            return self.doc.without_large(message, self.omit, depth);
        }
        let first = message.parts.first().map(|part| self.doc.span(part)).transpose()?;
        self.doc.limits.check_depth(depth, first.map_or(0, |span| span.start))?;
        self.doc.spend(1)?;
        let meaning = self.meaning(message, mask)?;
        let groups = self.present(message, &meaning)?;
        // The elements of one field need not be kept in memory, because the other selected fields are merged into them.
        let passing = groups.iter().filter(|(_, group)| !group.stretches.is_empty() && self.omit.is_empty());
        let passing = passing.max_by_key(|(number, _)| self.occurrences(message, *number)).map(|(number, _)| *number);
        let rows = self.rows(message, &groups, passing)?;
        let merged = self.singular_children(message, &rows, depth)?;
        let hidden = (!self.omit.is_empty()).then(|| {
            let entries = rows.iter().flatten().map(|row| &row.entry);
            self.doc.hidden(entries, message.type_id, self.omit)
        });
        let outs = rows.iter().map(|_| RopeBuilder::new(&self.doc.limits)).collect();
        let rows = rows.into_iter().map(|rows| rows.into_iter().peekable()).collect();
        let mut kept = Kept { outs, rows, merged: &merged };
        let is_hidden =
            |entry: &Entry| hidden.as_ref().is_some_and(|hidden| self.doc.is_hidden(entry, message.type_id, hidden));
        let keep = |kept: &mut Kept<'_>, part: usize, row: &Row| {
            if is_hidden(&row.entry) { Ok(()) } else { self.keep(kept, part, row, message.type_id, depth) }
        };
        if let Some((number, group)) = groups.iter().find(|(number, _)| Some(*number) == passing) {
            self.doc.select_placed(message, *number, group, &mut |part, entry, mask| {
                while let Some(row) = kept.before(part, &entry) {
                    keep(&mut kept, part, &row)?;
                }
                let mask = match kept.same(part, &entry) {
                    Some(row) => self.both(&row.mask, mask)?,
                    None => Rc::clone(mask),
                };
                keep(&mut kept, part, &Row { entry, mask })
            })?;
        }
        for part in 0..message.parts.len() {
            while let Some(row) = kept.rows.get_mut(part).and_then(Iterator::next) {
                keep(&mut kept, part, &row)?;
            }
        }
        Ok(kept.outs.into_iter().map(RopeBuilder::finish).collect())
    }

    /// `mask` resolved for the type of `message`; results are cached.
    fn meaning(&self, message: &Message, mask: &Rc<Mask>) -> Result<Rc<Resolved<'a>>> {
        let key = (Rc::as_ptr(mask), message.type_id);
        if let Some((_, known)) = self.meanings.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let resolved = Rc::new(resolve(self.doc, message, mask)?);
        self.meanings.borrow_mut().insert(key, (Rc::clone(mask), Rc::clone(&resolved)));
        Ok(resolved)
    }

    /// The groups whose fields may occur in `message`.
    fn present<'r>(&self, message: &Message, resolved: &'r Resolved<'a>) -> Result<Vec<(u32, &'r Group<'a>)>> {
        if resolved.len() <= FEW {
            return Ok(resolved.iter().map(|(number, group)| (*number, group)).collect());
        }
        let mut numbers = BTreeSet::new();
        for part in &message.parts {
            if let Part::Node(id) = part {
                for field in self.doc.index.node(*id)?.fields() {
                    numbers.insert(field?.number());
                }
            } else {
                for entry in self.doc.entries(part)? {
                    numbers.insert(entry?.number);
                }
            }
        }
        self.doc.spend(numbers.len() as u64)?;
        Ok(numbers.into_iter().filter_map(|number| Some((number, resolved.get(&number)?))).collect())
    }

    fn occurrences(&self, message: &Message, number: u32) -> u64 {
        message.parts.iter().map(|part| self.doc.count(part, number).unwrap_or(0)).fold(0, u64::saturating_add)
    }

    /// The fields that `groups` select, in order for each piece of `message`. Elements of the field `passing` that are
    /// selected by position are left out.
    fn rows(&self, message: &Message, groups: &[(u32, &Group<'_>)], passing: Option<u32>) -> Result<Vec<Vec<Row>>> {
        let mut rows: Vec<Vec<Row>> = message.parts.iter().map(|_| Vec::new()).collect();
        let mut add = |part: usize, entry: Entry, mask: &Rc<Mask>| {
            self.doc.spend(HELD)?;
            if let Some(rows) = rows.get_mut(part) {
                rows.push(Row { entry, mask: Rc::clone(mask) });
            }
            Ok(())
        };
        for (number, group) in groups {
            self.doc.select_told(message, *number, group, &mut add)?;
            if Some(*number) != passing {
                self.doc.select_placed(message, *number, group, &mut add)?;
            }
        }
        for rows in &mut rows {
            rows.sort_by_key(|row| row.entry.start);
            let mut once: Vec<Row> = Vec::with_capacity(rows.len());
            for row in rows.drain(..) {
                match once.last_mut().filter(|last| last.entry.start == row.entry.start) {
                    Some(last) => last.mask = self.both(&last.mask, &row.mask)?,
                    None => once.push(row),
                }
            }
            *rows = once;
        }
        Ok(rows)
    }

    fn both(&self, one: &Rc<Mask>, other: &Rc<Mask>) -> Result<Rc<Mask>> {
        if Rc::ptr_eq(one, other) {
            return Ok(Rc::clone(one));
        }
        Mask::union(&[Rc::clone(one), Rc::clone(other)], &mut || self.doc.spend(1))
    }

    /// The masked contents of the singular messages among `rows`, by the offset of each occurrence. The occurrences of
    /// a field are masked as one message, so positions count through all of them.
    fn singular_children(&self, message: &Message, rows: &[Vec<Row>], depth: u32) -> Result<BTreeMap<u64, Rope>> {
        let mut groups: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
        for row in rows.iter().flatten() {
            let field = self.doc.schema.field(message.type_id, row.entry.number);
            if field.is_some_and(|field| field.kind.is_message() && !field.repeated) {
                groups.entry(row.entry.number).or_default().push(row);
            }
        }
        let mut ropes = BTreeMap::new();
        for (number, group) in groups {
            let type_id = self.doc.schema.field(message.type_id, number).map(|field| field.target);
            let Some(first) = group.first() else { continue };
            let parts = group.iter().map(|row| Part::of(&row.entry, type_id)).collect();
            let contents = self.masked(&Message { type_id, parts }, &first.mask, depth + 1)?;
            ropes.extend(group.iter().map(|row| row.entry.start).zip(contents));
        }
        Ok(ropes)
    }

    /// Appends the masked `row`, a field of a message of type `type_id`.
    fn keep(&self, kept: &mut Kept<'_>, part: usize, row: &Row, type_id: Option<TypeId>, depth: u32) -> Result<()> {
        let Some(out) = kept.outs.get_mut(part).filter(|_| !self.omit.drops(&row.entry)) else { return Ok(()) };
        match kept.merged.get(&row.entry.start) {
            Some(rope) => self.doc.rewrap(&row.entry, rope, out),
            None => self.element(row, type_id, depth, out),
        }
    }

    /// Appends the masked `row`, which is an element or a field that has no parts.
    fn element(&self, row: &Row, type_id: Option<TypeId>, depth: u32, out: &mut RopeBuilder) -> Result<()> {
        let Row { entry, mask } = row;
        let field = self.doc.schema.field(type_id, entry.number);
        if mask.whole {
            return self.doc.kept_small(entry, type_id, self.omit, depth, out);
        }
        let child = field.filter(|field| field.kind.is_message()).map(|field| field.target);
        if field.is_some() && child.is_none() {
            let name = field.map_or("", |field| field.name.as_str());
            let text = format!("{name} has no fields: end the path at {name}");
            return Err(WireError::new(Kind::NotFound, text));
        }
        let part = Part::of(entry, child);
        let rope = if field.is_some_and(|field| self.doc.schema.is_map(field)) {
            self.map_entry(&part, child, mask, depth + 1)?
        } else {
            let parts = vec![part];
            self.masked(&Message { type_id: child, parts }, mask, depth + 1)?.pop().unwrap_or_default()
        };
        self.doc.rewrap(entry, &rope, out)
    }

    /// A map entry whose value is masked; the key stays.
    fn map_entry(&self, part: &Part, type_id: Option<TypeId>, mask: &Rc<Mask>, depth: u32) -> Result<Rope> {
        self.doc.limits.check_depth(depth, self.doc.span(part)?.start)?;
        let mut out = RopeBuilder::new(&self.doc.limits);
        for entry in self.doc.entries(part)? {
            let entry = entry?;
            match entry.number {
                2 => self.element(&Row { entry, mask: Rc::clone(mask) }, type_id, depth, &mut out)?,
                1 => out.extent(IMAGE, entry.start, entry.end - entry.start),
                _ => {}
            }
        }
        Ok(out.finish())
    }
}

impl Kept<'_> {
    /// The next row of a piece if it is before `entry`; else None.
    fn before(&mut self, part: usize, entry: &Entry) -> Option<Row> {
        self.rows.get_mut(part)?.next_if(|row| row.entry.start < entry.start)
    }

    /// The next row of a piece if it is `entry`; else None.
    fn same(&mut self, part: usize, entry: &Entry) -> Option<Row> {
        self.rows.get_mut(part)?.next_if(|row| row.entry.start == entry.start)
    }
}
