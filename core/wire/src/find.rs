//! Every message of some types, wherever in a proto it stands.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::listing::key_label;
use crate::schema::{Field, FieldKind, MISFIT, Schema, TypeId};

/// Names up to this many bytes are given whole; longer ones not at all.
const LONGEST_NAME: u64 = 4096;

/// A message that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The path that leads to it.
    pub path: String,
    /// Its type.
    pub type_id: TypeId,
    /// The enclosing messages that have a name, the outermost first: their types, and how they are called.
    pub names: Vec<(TypeId, Vec<u8>)>,
    /// The message without its large fields.
    pub skeleton: Vec<u8>,
    /// All its fields, in order.
    pub places: Vec<Place>,
}

/// Where a field of a found message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub number: u32,
    /// Its wire type.
    pub wire: u8,
    /// Where the content begins; of a run of scalars, where the first tag stands.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// How many scalars the run has; otherwise 1.
    pub count: u64,
}

impl Document<'_> {
    /// All messages of `types`, as protobuf means them: what occurs many times is merged, and of what replaces each
    /// other the last is taken. Fields up to `small` bytes are part of the skeletons.
    pub fn find(&self, types: &[TypeId], small: u64) -> Result<Vec<Found>> {
        let wanted: HashSet<TypeId> = types.iter().copied().collect();
        let leads = leading_to(self.schema, &wanted);
        let mut search = Search { doc: self, wanted, leads, small, path: String::new(), found: Vec::new() };
        search.message(&self.root()?, None, 0)?;
        Ok(search.found)
    }
}

/// The types that contain one of `wanted`, at whatever depth.
fn leading_to(schema: &Schema, wanted: &HashSet<TypeId>) -> HashSet<TypeId> {
    let mut leads = HashSet::new();
    loop {
        let before = leads.len();
        for (id, message) in (0..).map_while(|id| schema.message(id).map(|message| (id, message))) {
            let leading = |field: &Field| {
                field.kind.is_message() && (wanted.contains(&field.target) || leads.contains(&field.target))
            };
            if !leads.contains(&id) && message.fields().iter().any(leading) {
                leads.insert(id);
            }
        }
        if leads.len() == before {
            return leads;
        }
    }
}

/// A message on the way down, and what encloses it.
struct Above<'u> {
    message: &'u Message,
    up: Option<&'u Above<'u>>,
    name: OnceCell<Option<(TypeId, Vec<u8>)>>,
}

struct Search<'d, 'a> {
    doc: &'d Document<'a>,
    wanted: HashSet<TypeId>,
    leads: HashSet<TypeId>,
    small: u64,
    path: String,
    found: Vec<Found>,
}

impl<'a> Search<'_, 'a> {
    /// Looks at `message`, which stands at the path, and at all below it.
    fn message(&mut self, message: &Message, up: Option<&Above<'_>>, depth: u32) -> Result<()> {
        let Some(type_id) = message.type_id else { return Ok(()) };
        let offset = message.parts.first().map(|part| self.doc.span(part)).transpose()?.map_or(0, |span| span.start);
        self.doc.limits.check_depth(depth, offset)?;
        let above = Above { message, up, name: OnceCell::new() };
        if self.wanted.contains(&type_id) {
            self.take(message, type_id, up)?;
        }
        if self.leads.contains(&type_id) { self.fields(message, type_id, &above, depth) } else { Ok(()) }
    }

    fn fields(&mut self, message: &Message, type_id: TypeId, above: &Above<'_>, depth: u32) -> Result<()> {
        let mut seen: Vec<(u32, u64)> = Vec::new();
        for part in &message.parts {
            for entry in self.doc.entries(part)? {
                let entry = entry?;
                let Some(field) = self.leading(type_id, entry.number) else { continue };
                let ordinal = count_up(&mut seen, entry.number);
                if field.repeated && !self.doc.is_map(field) {
                    let element = of_entry(&entry, field.target);
                    self.below(field, &format!("[{ordinal}]"), &element, above, depth)?;
                } else if ordinal == 0 && field.repeated {
                    self.map(message, field, above, depth)?;
                } else if ordinal == 0 {
                    let child = self.merged(message, field)?;
                    self.below(field, "", &child, above, depth)?;
                }
            }
        }
        Ok(())
    }

    /// The field `number` of type `type_id`, if a wanted message may be in it.
    fn leading(&self, type_id: TypeId, number: u32) -> Option<&'a Field> {
        let field = self.doc.schema.field(Some(type_id), number).filter(|field| field.kind.is_message())?;
        (self.wanted.contains(&field.target) || self.leads.contains(&field.target)).then_some(field)
    }

    /// What all occurrences of the singular `field` come to.
    fn merged(&self, message: &Message, field: &Field) -> Result<Message> {
        let entries = self.doc.singular(message, field.number)?;
        let parts = entries.iter().map(|entry| Part::of(entry, Some(field.target))).collect();
        Ok(Message { type_id: Some(field.target), parts })
    }

    /// The values of a map: of entries with one key the last counts.
    fn map(&mut self, message: &Message, field: &'a Field, above: &Above<'_>, depth: u32) -> Result<()> {
        let Some(value) = self.leading(field.target, 2) else { return Ok(()) };
        let mut entries: Vec<(String, Message)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for part in &message.parts {
            self.doc.visit(part, field.number, 0, &mut |_, entry| {
                let key = self.doc.entry_key(entry, field.target)?;
                let found = of_entry(entry, field.target);
                match places.get(&key).and_then(|&at| entries.get_mut(at)) {
                    Some(earlier) => earlier.1 = found,
                    None => {
                        places.insert(key.clone(), entries.len());
                        entries.push((key, found));
                    }
                }
                Ok(true)
            })?;
        }
        for (key, entry) in entries {
            let inner = Above { message: &entry, up: Some(above), name: OnceCell::new() };
            let child = self.merged(&entry, value)?;
            self.below(field, &format!("[{key}]"), &child, &inner, depth)?;
        }
        Ok(())
    }

    /// Goes down to `child`, one step further.
    fn below(&mut self, field: &Field, step: &str, child: &Message, above: &Above<'_>, depth: u32) -> Result<()> {
        if child.parts.is_empty() {
            return Ok(());
        }
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(&field.name);
        self.path.push_str(step);
        let result = self.message(child, Some(above), depth + 1);
        self.path.truncate(before);
        result
    }

    fn take(&mut self, message: &Message, type_id: TypeId, up: Option<&Above<'_>>) -> Result<()> {
        let mut found =
            Found { path: self.path.clone(), type_id, names: Vec::new(), skeleton: Vec::new(), places: Vec::new() };
        for part in &message.parts {
            for entry in self.doc.entries(part)? {
                let entry = entry?;
                found.places.push(Place::of(&entry));
                if entry.end - entry.start <= self.small {
                    found.skeleton.extend_from_slice(&self.doc.read_span(&entry.span())?);
                }
            }
        }
        let mut next = up;
        while let Some(above) = next {
            found.names.extend(self.name(above)?);
            next = above.up;
        }
        found.names.reverse();
        if self.found.len() as u64 >= self.doc.limits.nodes {
            return Err(WireError::new(Kind::Limit, "more messages were found than may be held"));
        }
        self.found.push(found);
        Ok(())
    }

    /// The type of what is above, and how it is called, where it has a name.
    fn name(&self, above: &Above<'_>) -> Result<Option<(TypeId, Vec<u8>)>> {
        if let Some(known) = above.name.get() {
            return Ok(known.clone());
        }
        let name = self.doc.name_of(above.message)?;
        Ok(above.name.get_or_init(|| name).clone())
    }
}

impl Document<'_> {
    /// The key of a map's `entry`, as it stands in paths.
    pub(crate) fn entry_key(&self, entry: &Entry, entry_type: TypeId) -> Result<String> {
        if let Some((kind, bytes)) = self.key_text(entry, entry_type, self.limits.path as u64)? {
            return Ok(key_label(kind, &bytes));
        }
        let too_long = self.count(&Part::of(entry, Some(entry_type)), 1)? > 0;
        Ok(match self.schema.field(Some(entry_type), 1).map(|field| field.kind) {
            _ if too_long => "…",
            Some(FieldKind::String) => "\"\"",
            Some(FieldKind::Bool) => "false",
            _ => "0",
        }
        .to_owned())
    }

    /// The name of `message`, where its type has one and it is not long.
    fn name_of(&self, message: &Message) -> Result<Option<(TypeId, Vec<u8>)>> {
        let Some((type_id, key)) = message.type_id.and_then(|id| Some((id, self.schema.message(id)?.key()?))) else {
            return Ok(None);
        };
        let is_text = self.schema.field(Some(type_id), key).is_some_and(|field| field.kind == FieldKind::String);
        let last = self.singular(message, key)?.pop().filter(|last| is_text && last.content_len() <= LONGEST_NAME);
        last.map(|last| Ok((type_id, self.read_span(&last.content_span())?.into_owned()))).transpose()
    }
}

impl Place {
    fn of(entry: &Entry) -> Self {
        let (start, end) = if entry.count > 1 { (entry.start, entry.end) } else { (entry.content, entry.content_end) };
        Self { number: entry.number & !MISFIT, wire: entry.wire as u8, start, end, count: entry.count }
    }
}

fn of_entry(entry: &Entry, type_id: TypeId) -> Message {
    Message { type_id: Some(type_id), parts: vec![Part::of(entry, Some(type_id))] }
}

/// How often `number` was seen before.
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
