//! Views of a message as ropes: the whole message, the part that a mask keeps, or the skeleton without large fields.
//!
//! Fields that are kept stay unchanged and in order; only the lengths of enclosing messages are rewritten.

mod dropping;
mod masking;
mod resolved;
mod select;

use std::rc::Rc;

use masking::Masking;

use crate::document::Document;
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::header::{self, Wire};
use crate::mask::Mask;
use crate::omit::Omit;
use crate::resolve::Target;
use crate::rope::{IMAGE, Rope, RopeBuilder};

impl Document<'_> {
    /// A view of `target`: the fields that `mask` keeps, without fields larger than `omit` bytes.
    pub fn view(&self, target: &Target, mask: Option<&Mask>, omit: Option<u64>) -> Result<Rope> {
        self.view_without(target, mask, &Omit::new(omit, Vec::new()))
    }

    /// A view of `target`: the fields that `mask` keeps, without the fields that `omit` selects.
    pub fn view_without(&self, target: &Target, mask: Option<&Mask>, omit: &Omit) -> Result<Rope> {
        let Target::Message(message) = target else {
            if mask.is_some() {
                let text = "the parameter 'fields' only works on messages, but this path leads to a value";
                return Err(WireError::new(Kind::Unsupported, text));
            }
            return self.content(target);
        };
        let ropes = match mask {
            Some(mask) => {
                self.count_steps();
                Masking::new(self, omit).masked(message, &Rc::new(mask.clone()), 0)?
            }
            None if omit.is_empty() => return self.content(target),
            None => self.without_large(message, omit, 0)?,
        };
        let mut out = RopeBuilder::new(&self.limits);
        ropes.iter().for_each(|rope| out.rope(rope));
        out.check()?;
        Ok(out.finish())
    }

    /// Appends the field `entry` with `content` in place of its original content.
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

    /// Appends the tag of the length-delimited `entry`, as encoded in the proto.
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
}
