//! The search for all messages of some types, at any depth of a proto.
//!
//! The search walks through large messages with the index. Smaller messages are walked in memory, in windows that
//! contain many neighbouring messages but none of the large payloads between them.

mod findings;
mod frame;
mod indexed;
mod memory;
mod window;

use crate::document::Document;
use crate::entry::Entry;
use crate::error::Result;
use crate::schema::{Field, FieldKind, MISFIT, Message, Schema, TypeId};

pub use findings::{Findings, Found};
use frame::{Frame, Step};
use window::Window;

/// The place of a field of a found message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Field number.
    pub number: u32,
    /// Wire type.
    pub wire: u8,
    /// The offset of the content; for a run of scalars, the offset of its first tag.
    pub start: u64,
    /// The offset after the content or after the run.
    pub end: u64,
    /// The number of scalars in a run; else 1.
    pub count: u64,
}

/// Longest string or message in a skeleton: converters build long names from all operations that they have fused.
const TELLING: u64 = 4096;

/// The query of a search.
#[derive(Clone, Copy, Debug)]
pub struct Query<'t> {
    /// Message types to find; None selects all types.
    pub types: Option<&'t [TypeId]>,
    /// Fields of up to this many bytes are included in skeletons. Unless this is 0, strings and messages of up to
    /// `TELLING` bytes (4096) are included too, because they identify a message.
    pub small: u64,
    /// Messages with fewer bytes are skipped. If this is above 0, smaller neighbouring elements share one place.
    pub least: u64,
}

impl Document<'_> {
    /// All messages that `query` selects, as protobuf defines them: repeated occurrences of a singular message are
    /// merged, and the last of several values counts. Map entries are found only if their values are not messages.
    pub fn find(&self, query: &Query<'_>) -> Result<Findings> {
        let root = self.root()?;
        let Some(type_id) = root.type_id else { return Ok(Findings::default()) };
        let roles = roles(self.schema, query.types);
        let masks = masks(self.schema, &roles);
        let found = Findings::new(self.limits.found_of(self.index.size()));
        let mut search = Search { doc: self, query, roles, masks, window: Window::new(self), found };
        let name = search.name_of(&root)?;
        search.message(&root, &Frame::told(type_id, None, None, Step::Alone, name), 0)?;
        Ok(search.found)
    }
}

impl Query<'_> {
    /// True if `entry`, a field of type `type_id`, is part of skeletons.
    fn shows(&self, schema: &Schema, type_id: TypeId, entry: &Entry) -> bool {
        let len = entry.end.saturating_sub(entry.start);
        let telling = |field: &Field| field.kind.is_message() || field.kind == FieldKind::String;
        len <= self.small
            || self.small > 0 && len <= TELLING && schema.field(Some(type_id), entry.number).is_some_and(telling)
    }
}

const WANTED: u8 = 1;
const LEADS: u8 = 2;

/// The role of each type in the search, as bits: `WANTED` means the type itself, `LEADS` means that it contains a
/// wanted type.
fn roles(schema: &Schema, types: Option<&[TypeId]>) -> Vec<u8> {
    let mut roles = vec![if types.is_none() { WANTED } else { 0 }; schema.len()];
    for id in types.unwrap_or_default() {
        if let Some(role) = roles.get_mut(*id as usize) {
            *role = WANTED;
        }
    }
    loop {
        let of = |target: u32| roles.get(target as usize).copied().unwrap_or(0);
        let leading = |field: &Field| field.kind.is_message() && of(field.target) > 0;
        let known = (0..).map_while(|id| schema.message(id).map(|message| (id, message)));
        let new: Vec<TypeId> = known
            .filter(|(id, message)| of(*id) & LEADS == 0 && message.fields().iter().any(leading))
            .map(|(id, _)| id)
            .collect();
        if new.is_empty() {
            return roles;
        }
        for id in new {
            if let Some(role) = roles.get_mut(id as usize) {
                *role |= LEADS;
            }
        }
    }
}

/// The fields of each type that a search must examine, as a bit for each number below 16. These fields lead to a wanted
/// type, or are members of a oneof that contains such a field.
fn masks(schema: &Schema, roles: &[u8]) -> Vec<u16> {
    let leads =
        |field: &Field| field.kind.is_message() && roles.get(field.target as usize).is_some_and(|role| *role > 0);
    let mask = |message: &Message| {
        let fields = message.fields();
        let matters = |field: &&Field| {
            let rival = |other: &Field| other.oneof == field.oneof && leads(other);
            leads(field) || (field.oneof > 0 && fields.iter().any(rival))
        };
        fields.iter().filter(matters).fold(0, |mask, field| mask | 1u16.checked_shl(field.number).unwrap_or(0))
    };
    (0..).map_while(|id| schema.message(id)).map(mask).collect()
}

struct Search<'d, 'a> {
    doc: &'d Document<'a>,
    query: &'d Query<'d>,
    roles: Vec<u8>,
    masks: Vec<u16>,
    window: Window<'d, 'a>,
    found: Findings,
}

impl Search<'_, '_> {
    /// Role of type `id`.
    fn role(&self, id: TypeId) -> u8 {
        self.roles.get(id as usize).copied().unwrap_or(0)
    }

    /// True if map entries of type `id` are found as such, because their values are not messages.
    fn takes_entries(&self, id: TypeId) -> bool {
        let value = self.doc.schema.field(Some(id), 2);
        self.role(id) & WANTED > 0 && value.is_some_and(|value| !value.kind.is_message())
    }

    /// Begins the finding of the message at `frame` and returns the end of its path; the message's fields follow.
    fn begin(&mut self, frame: &Frame<'_>) -> Result<u32> {
        let path = self.found.path(|text| frame.path(self.doc.limits.path, text));
        frame.names(self.doc.schema, self.doc.limits.depth, &mut self.found)?;
        Ok(path)
    }
}

impl Place {
    /// The place of `entry`; None when its wire type does not fit the schema.
    fn of(entry: &Entry) -> Option<Self> {
        let (start, end) = if entry.count > 1 { (entry.start, entry.end) } else { (entry.content, entry.content_end) };
        let place = Self { number: entry.number, wire: entry.wire as u8, start, end, count: entry.count };
        (entry.number & MISFIT == 0).then_some(place)
    }
}

/// Returns how often `number` was counted before, and counts it once more.
fn count_up(seen: &mut Vec<(u32, u64)>, number: u32) -> u64 {
    match seen.iter_mut().find(|(known, _)| *known == number) {
        Some((_, count)) => {
            *count += 1;
            *count - 1
        }
        None => {
            seen.push((number, 1));
            0
        }
    }
}
