//! Views of a message as ropes: all of it, what a mask keeps, what is left without the large fields.
//!
//! What is kept stays as it stands on the wire, in its order; of what encloses it, the lengths alone are written anew.

mod select;

use std::collections::BTreeMap;

use select::Selected;

use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::header::{self, Wire};
use crate::mask::Mask;
use crate::resolve::Target;
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::TypeId;

impl Document<'_> {
    /// What stands at `target`, as far as `mask` keeps it, without the fields larger than `omit`.
    pub fn view(&self, target: &Target, mask: Option<&Mask>, omit: Option<u64>) -> Result<Rope> {
        let Target::Message(message) = target else {
            if mask.is_some() {
                let text = "fields can be selected of a message only, and this path leads to something else";
                return Err(WireError::new(Kind::Unsupported, text));
            }
            return self.content(target);
        };
        let ropes = match mask {
            Some(mask) => self.masked(message, &[mask], omit, 0)?,
            None if omit.is_none() => return self.content(target),
            None => self.without_large(message, omit, 0)?,
        };
        let mut out = RopeBuilder::new(&self.limits);
        ropes.iter().for_each(|rope| out.rope(rope));
        out.check()?;
        Ok(out.finish())
    }

    /// Appends the field `entry` with `content` in place of its own.
    pub fn rewrap(&self, entry: &Entry, content: &Rope, out: &mut RopeBuilder) -> Result<()> {
        if entry.wire == Wire::Group || content.len() == entry.content_len() {
            out.extent(IMAGE, entry.start, entry.content - entry.start);
        } else {
            self.tag(entry, out)?;
            out.varint(content.len());
        }
        out.rope(content);
        out.extent(IMAGE, entry.content_end, entry.end - entry.content_end);
        out.check()
    }

    /// Appends the tag of the length-delimited `entry`, in the bytes it stands in.
    fn tag(&self, entry: &Entry, out: &mut RopeBuilder) -> Result<()> {
        if entry.content - entry.start == Entry::minimal_head(entry.number, entry.content_len()) {
            out.varint(header::tag(entry.number, Wire::Len));
            return Ok(());
        }
        let bytes = self.read_span(&(entry.start..entry.content))?;
        let header = header::read(&bytes, entry.start)?;
        let len = header.map_or(0, |header| usize::from(header.tag_len));
        out.literal(bytes.get(..len).unwrap_or_default());
        Ok(())
    }

    /// What `masks` together keep of `message`: a rope for each of its pieces.
    fn masked(&self, message: &Message, masks: &[&Mask], omit: Option<u64>, depth: u32) -> Result<Vec<Rope>> {
        if masks.iter().any(|mask| mask.whole) {
            return self.without_large(message, omit, depth);
        }
        let first = message.parts.first().map(|part| self.span(part)).transpose()?;
        self.limits.check_depth(depth, first.map_or(0, |span| span.start))?;
        let mut selected: Vec<Selected<'_>> = message.parts.iter().map(|_| Selected::new()).collect();
        for pick in masks.iter().flat_map(|mask| &mask.picks) {
            self.select(message, pick, &mut selected)?;
        }
        let merged = self.singular_children(message, &selected, omit, depth)?;
        let entries = selected.iter().flat_map(BTreeMap::values).map(|(entry, _)| entry);
        let hidden = omit.map(|limit| self.hidden(entries, message.type_id, limit)).unwrap_or_default();
        let mut ropes = Vec::new();
        for chosen in &selected {
            let mut out = RopeBuilder::new(&self.limits);
            for (entry, masks) in chosen.values() {
                match merged.get(&entry.start) {
                    _ if self.is_hidden(entry, message.type_id, &hidden) => {}
                    Some(rope) => self.rewrap(entry, rope, &mut out)?,
                    None => self.chosen(entry, message.type_id, masks, omit, depth, &mut out)?,
                }
            }
            ropes.push(out.finish());
        }
        Ok(ropes)
    }

    /// What is kept of the singular messages that `selected` goes into: their occurrences are one message, whose
    /// elements are counted through. By the offset of each occurrence.
    fn singular_children(
        &self,
        message: &Message,
        selected: &[Selected<'_>],
        omit: Option<u64>,
        depth: u32,
    ) -> Result<BTreeMap<u64, Rope>> {
        let mut groups: BTreeMap<u32, Vec<&(Entry, Vec<&Mask>)>> = BTreeMap::new();
        for chosen in selected.iter().flat_map(BTreeMap::values) {
            groups.entry(chosen.0.number).or_default().push(chosen);
        }
        let mut ropes = BTreeMap::new();
        for (number, group) in groups {
            let field = self.schema.field(message.type_id, number);
            let Some(field) = field.filter(|field| field.kind.is_message() && !field.repeated) else { continue };
            let Some((_, masks)) = group.first() else { continue };
            let type_id = Some(field.target);
            let parts = group.iter().map(|(entry, _)| Part::of(entry, type_id)).collect();
            let contents = self.masked(&Message { type_id, parts }, masks, omit, depth + 1)?;
            ropes.extend(group.iter().map(|(entry, _)| entry.start).zip(contents));
        }
        Ok(ropes)
    }

    /// Appends what is kept of `entry`, an element or a field without parts.
    #[allow(clippy::too_many_arguments, reason = "a step of a recursion")]
    fn chosen(
        &self,
        entry: &Entry,
        type_id: Option<TypeId>,
        masks: &[&Mask],
        omit: Option<u64>,
        depth: u32,
        out: &mut RopeBuilder,
    ) -> Result<()> {
        let field = self.schema.field(type_id, entry.number);
        if masks.iter().any(|mask| mask.whole) {
            return match omit {
                Some(limit) => self.kept_small(entry, type_id, limit, depth, out),
                None => {
                    out.extent(IMAGE, entry.start, entry.end - entry.start);
                    out.check()
                }
            };
        }
        let child = field.filter(|field| field.kind.is_message()).map(|field| field.target);
        if field.is_some() && child.is_none() {
            let name = field.map_or("", |field| field.name.as_str());
            let text = format!("nothing lies below {name}: a mask ends there");
            return Err(WireError::new(Kind::NotFound, text));
        }
        let part = Part::of(entry, child);
        let rope = if field.is_some_and(|field| self.schema.is_map(field)) {
            self.masked_map_entry(&part, child, masks, omit, depth + 1)?
        } else {
            let parts = vec![part];
            self.masked(&Message { type_id: child, parts }, masks, omit, depth + 1)?.pop().unwrap_or_default()
        };
        self.rewrap(entry, &rope, out)
    }

    /// A map's entry whose value is kept in part: the key stays.
    fn masked_map_entry(
        &self,
        part: &Part,
        type_id: Option<TypeId>,
        masks: &[&Mask],
        omit: Option<u64>,
        depth: u32,
    ) -> Result<Rope> {
        self.limits.check_depth(depth, self.span(part)?.start)?;
        let mut out = RopeBuilder::new(&self.limits);
        for entry in self.entries(part)? {
            let entry = entry?;
            match entry.number {
                2 => self.chosen(&entry, type_id, masks, omit, depth, &mut out)?,
                1 => out.extent(IMAGE, entry.start, entry.end - entry.start),
                _ => {}
            }
        }
        Ok(out.finish())
    }
}
