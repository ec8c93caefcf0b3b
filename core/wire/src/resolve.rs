//! The resolution of paths in a proto: the target of a path, or the reason why the path matches nothing.

mod conditions;
mod content;
mod maps;
mod numbers;

pub(crate) use maps::map_key;

use crate::document::{Document, Message, Part, Wanted};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::header::Wire;
use crate::key::Key;
use crate::path::{Name, Path, Segment, Select};
use crate::schema::{Field, FieldKind, MISFIT};

/// The target of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A message, or a group.
    Message(Message),
    /// A string, bytes, or a length-delimited field of unknown type.
    Bytes {
        /// The kind of the field; None when unknown.
        kind: Option<FieldKind>,
        /// The place of the content; None for an empty default.
        part: Option<Part>,
    },
    /// A number, bool or enum value.
    Scalar {
        /// The field; None when unknown.
        field: Option<Field>,
        /// The wire type.
        wire: Wire,
        /// The value of the varint, or the bits of the fixed-width value.
        raw: u64,
    },
    /// A repeated field or map as a whole.
    Repeated {
        /// The message that has the field.
        owner: Message,
        /// The field number.
        number: u32,
        /// The field; None when unknown.
        field: Option<Field>,
    },
}

impl<'a> Document<'a> {
    /// Resolves `path`; fails with a `NotFound` error when it matches nothing.
    pub fn resolve(&self, path: &Path) -> Result<Target> {
        let mut at = Target::Message(self.root()?);
        let mut walked = Path::default();
        for segment in &path.segments {
            let message = self.enter(at, &walked)?;
            walked.segments.push(segment.clone());
            at = self.step(message, segment).map_err(|error| error.on(walked.to_string()))?;
        }
        Ok(at)
    }

    /// The message in which the next segment of a path is looked up.
    fn enter(&self, at: Target, walked: &Path) -> Result<Message> {
        let what = match at {
            Target::Message(message) => return Ok(message),
            Target::Bytes { kind: None, part: Some(part) } => return Ok(Message { type_id: None, parts: vec![part] }),
            Target::Bytes { kind, .. } => kind.map_or("empty", FieldKind::name).to_owned(),
            Target::Scalar { field, .. } => field.map_or("a number", |field| field.kind.name()).to_owned(),
            Target::Repeated { owner, number, .. } => {
                let count = self.total(&owner, number)?;
                format!("repeated ({count} elements): pick one, as in {walked}[0]")
            }
        };
        Err(WireError::new(Kind::NotFound, format!("the value at this path has no fields: it is {what}"))
            .on(walked.to_string()))
    }

    /// Number of occurrences of field `number` in `message`.
    pub fn total(&self, message: &Message, number: u32) -> Result<u64> {
        message.parts.iter().map(|part| self.count(part, number)).sum()
    }

    /// The field of `message` with this name or number: its number, and the schema's field or None when unknown.
    pub fn field_of(&self, message: &Message, name: &Name) -> Result<(u32, Option<&'a Field>)> {
        let known = message.type_id.and_then(|id| self.schema.message(id));
        let text = match name {
            Name::Number(number) => return Ok((*number, known.and_then(|known| known.field(*number)))),
            Name::Text(text) => text,
        };
        let Some(known) = known else {
            let message =
                format!("{text:?} cannot be looked up: the type of the message is unknown; use field numbers");
            return Err(WireError::new(Kind::NotFound, message));
        };
        known.field_named(text).map(|field| (field.number, Some(field))).ok_or_else(|| {
            let names: Vec<&str> = known.fields().iter().map(|field| field.name.as_str()).take(24).collect();
            let more = if known.fields().len() > 24 { ", …" } else { "" };
            let message = format!("{} has no field {text:?}; it has {}{more}", known.name, names.join(", "));
            WireError::new(Kind::NotFound, message)
        })
    }

    fn step(&self, message: Message, segment: &Segment) -> Result<Target> {
        let (mut number, field) = self.field_of(&message, &segment.name)?;
        let mut field = field.cloned();
        let misfit = number | MISFIT;
        if let Name::Number(_) = segment.name
            && field.is_some()
            && self.total(&message, number)? == 0
            && self.total(&message, misfit)? > 0
        {
            // A field whose wire type does not fit the schema can still be found by its number, as an unknown field.
            (number, field) = (misfit, None);
        }
        if let Some(Select::Slice(..) | Select::All) = segment.select {
            let error = "a path must lead to one place: slices and [*] are only allowed in the parameter 'fields'";
            return Err(WireError::new(Kind::Syntax, error));
        }
        let Some(select) = &segment.select else {
            return match field {
                Some(field) if field.repeated => Ok(Target::Repeated { owner: message, number, field: Some(field) }),
                Some(field) => {
                    let found = self.singular(&message, number)?;
                    self.merged(&found, Some(&field))?.ok_or_else(|| not_here(&field.name))
                }
                None => self.unknown(message, number),
            };
        };
        match field {
            Some(field) if !field.repeated => {
                let text = format!("{} is not repeated: [{select}] cannot pick an element", field.name);
                Err(WireError::new(Kind::NotFound, text))
            }
            Some(field) if self.schema.is_map(&field) && !matches!(select, Select::Where(..)) => {
                self.map_value(&message, &field, select)
            }
            field => self.picked(&message, number, field.as_ref(), select),
        }
    }

    /// An unknown field without brackets: its only occurrence, or all occurrences as a repeated field.
    fn unknown(&self, message: Message, number: u32) -> Result<Target> {
        match self.total(&message, number)? {
            0 => Err(not_here(&(number & !MISFIT).to_string())),
            1 => {
                let found = self.element(&message, number, 0)?;
                self.merged(found.as_slice(), None)?.ok_or_else(|| not_here(&number.to_string()))
            }
            _ => Ok(Target::Repeated { owner: message, number, field: None }),
        }
    }

    fn picked(&self, message: &Message, number: u32, field: Option<&Field>, select: &Select) -> Result<Target> {
        let label = field.map_or_else(|| number.to_string(), |field| field.name.clone());
        let found = match select {
            Select::Integer(at) => {
                let packable = field.is_some_and(|field| field.kind.is_packable());
                if packable {
                    return self.packed_element(message, number, field, *at);
                }
                let at = u64::try_from(*at).ok();
                at.map(|at| self.element(message, number, at)).transpose()?.flatten()
            }
            Select::Where(conditions) => self.element_where(message, number, field, conditions)?,
            Select::Text(text) if field.is_none() => {
                let value = Key::Text(text);
                let wanted = Wanted { number, type_id: None, key: 1, kind: FieldKind::Bytes, value };
                let found = self.map_entry(message, &wanted)?;
                return found
                    .map_or_else(|| Err(no_such(&label, select, None)), |(_, found)| self.value_of(&found, None));
            }
            _ => {
                let text = format!("{label} is a list, not a map: pick an element by position, as in {label}[0]");
                return Err(WireError::new(Kind::NotFound, text));
            }
        };
        let count = self.total(message, number)?;
        let found = found.ok_or_else(|| no_such(&label, select, Some(count)))?;
        self.merged(&[found], field)?.ok_or_else(|| no_such(&label, select, Some(count)))
    }

    /// The target for the merged occurrences of a field or an element; None without occurrences.
    pub fn merged(&self, found: &[Entry], field: Option<&Field>) -> Result<Option<Target>> {
        let Some(last) = found.last() else { return Ok(None) };
        let message = |type_id| {
            let parts = found.iter().map(|entry| Part::of(entry, type_id)).collect();
            Target::Message(Message { type_id, parts })
        };
        Ok(Some(match field {
            Some(field) if field.kind.is_message() => message(Some(field.target)),
            None if last.wire == Wire::Group => message(None),
            _ if last.wire == Wire::Len => {
                Target::Bytes { kind: field.map(|field| field.kind), part: Some(Part::of(last, None)) }
            }
            _ => {
                let last = self.of_run(last, last.count - 1)?;
                Target::Scalar { field: field.cloned(), wire: last.wire, raw: self.raw(&last)? }
            }
        }))
    }
}

fn not_here(label: &str) -> WireError {
    WireError::new(Kind::NotFound, format!("{label} is not set here"))
}

fn no_such(label: &str, select: &Select, count: Option<u64>) -> WireError {
    let there = count.map_or(String::new(), |count| format!(": it has {count} elements"));
    WireError::new(Kind::NotFound, format!("{label} has no element [{select}]{there}"))
}
