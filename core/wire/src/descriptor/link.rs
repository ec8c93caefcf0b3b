//! The linking of fields to their types, once all names are known.

use std::collections::{HashMap, HashSet};

use super::features::{DELIMITED, IMPLICIT, PACKED, REQUIRED, Syntax, VERIFY};
use super::files::{File, in_file};
use super::messages::{Declared, Unlinked};
use super::scopes::{Scopes, Symbol};
use super::{Bounds, Descriptors, Field, Message, Presence, canonical, invalid, shown};
use crate::error::Result;
use crate::limits::MAX_FIELD_NUMBER;
use crate::schema::FieldKind;

const REPEATED: u64 = 3;
const REQUIRED_LABEL: u64 = 2;

/// Links the declarations of `files` and returns their types.
pub(super) fn linked(files: Vec<File<'_>>, bounds: &Bounds) -> Result<Descriptors> {
    let scopes = Scopes::new(bounds);
    let mut declared = Declared { scopes, messages: Vec::new(), enums: Vec::new(), fields: Vec::new() };
    let name_of = |number: usize| files.get(number).map_or("", |file| file.name);
    for (number, file) in files.iter().enumerate() {
        declared.file(number, file).map_err(|error| in_file(file.name, error))?;
    }
    let Declared { scopes, mut messages, enums, fields } = declared;
    for unlinked in fields {
        let file = unlinked.file;
        link(unlinked, &scopes, &mut messages).map_err(|error| in_file(name_of(file), error))?;
    }
    let by_name = (0..).zip(&messages).map(|(id, message)| (message.name.clone(), id)).collect();
    messages.iter_mut().try_for_each(finish)?;
    Ok(Descriptors { messages, enums, by_name })
}

fn link(unlinked: Unlinked<'_>, scopes: &Scopes<'_>, messages: &mut [Message]) -> Result<()> {
    let owner = match unlinked.message {
        Some(owner) => owner,
        None => match scopes.resolve(unlinked.scope, unlinked.extendee) {
            Some(Symbol::Message(owner)) => owner,
            _ => return Err(unknown(&unlinked, unlinked.extendee)),
        },
    };
    let (kind, target) = typed(&unlinked, scopes)?;
    let map = kind == FieldKind::Message && messages.get(target as usize).is_some_and(|message| message.map_entry);
    let Some(owner) = messages.get_mut(owner as usize) else { return Ok(()) };
    let plain = map || owner.map_entry;
    let field = unlinked.linked(kind, target, plain)?;
    if map && !field.repeated {
        return Err(invalid(format!("the map field {}.{} must be declared as repeated", owner.name, field.name)));
    }
    owner.fields.push(field);
    Ok(())
}

/// The kind of a field, and the number of its message or enum.
fn typed(unlinked: &Unlinked<'_>, scopes: &Scopes<'_>) -> Result<(FieldKind, u32)> {
    let declared = u8::try_from(unlinked.kind).ok().and_then(FieldKind::from_number);
    if declared.is_none() && unlinked.kind != 0 {
        return Err(invalid(format!("the type of {} is unknown (number {})", unlinked.name, unlinked.kind)));
    }
    let found = match (declared, unlinked.type_name) {
        (None | Some(FieldKind::Message | FieldKind::Group | FieldKind::Enum), name) if !name.is_empty() => {
            scopes.resolve(unlinked.scope, name)
        }
        _ => None,
    };
    match (declared, found) {
        (None | Some(FieldKind::Message), Some(Symbol::Message(id))) => Ok((FieldKind::Message, id)),
        (Some(FieldKind::Group), Some(Symbol::Message(id))) => Ok((FieldKind::Group, id)),
        (None | Some(FieldKind::Enum), Some(Symbol::Enum(id))) => Ok((FieldKind::Enum, id)),
        (Some(kind), _) if !kind.is_message() && kind != FieldKind::Enum => Ok((kind, 0)),
        _ => Err(unknown(unlinked, unlinked.type_name)),
    }
}

fn unknown(unlinked: &Unlinked<'_>, name: &str) -> crate::WireError {
    invalid(format!(
        "{} refers to {}, which is unknown or not a type of the right kind",
        shown(unlinked.name),
        shown(name)
    ))
}

impl Unlinked<'_> {
    /// The field with its inherited features. Maps and fields of map entries are `plain`, which means never delimited.
    fn linked(self, kind: FieldKind, target: u32, plain: bool) -> Result<Field> {
        let extension = self.message.is_none();
        let number = u32::try_from(self.number).ok().filter(|number| (1..=MAX_FIELD_NUMBER).contains(number));
        let number =
            number.ok_or_else(|| invalid(format!("invalid field number {} of {}", self.number, shown(self.name))))?;
        let delimited = kind == FieldKind::Message && self.features.encoding == DELIMITED && !plain;
        let kind = if delimited { FieldKind::Group } else { kind };
        let repeated = self.label == REPEATED;
        let synthetic = self.syntax == Syntax::Proto3 && self.optional;
        let packed = repeated && kind.is_packable() && self.packed.unwrap_or(self.features.repeated == PACKED);
        Ok(Field {
            number,
            presence: if repeated { Presence::Explicit } else { self.presence(kind) },
            verified: kind == FieldKind::String && self.features.utf8 == VERIFY,
            oneof: self
                .oneof
                .filter(|_| !synthetic)
                .map_or(0, |oneof| u32::try_from(oneof).unwrap_or(u32::MAX - 1) + 1),
            json_name: if extension {
                String::new()
            } else {
                canonical::declared_json_name(self.json_name, self.name).to_owned()
            },
            name: if extension { self.full_name } else { self.name.to_owned() },
            extension,
            kind,
            repeated,
            packed,
            target,
        })
    }

    fn presence(&self, kind: FieldKind) -> Presence {
        if self.label == REQUIRED_LABEL || self.features.presence == REQUIRED {
            return Presence::Required;
        }
        let tracked = kind.is_message() || self.oneof.is_some() || self.message.is_none() || self.optional;
        if tracked || self.features.presence != IMPLICIT { Presence::Explicit } else { Presence::Implicit }
    }
}

/// Sorts the fields of a message, renumbers its oneofs, and makes the checks that need all fields.
fn finish(message: &mut Message) -> Result<()> {
    message.fields.sort_by_key(|field| field.number);
    let twice = message.fields.windows(2).find_map(|pair| match pair {
        [one, other] if one.number == other.number => Some(one.number),
        _ => None,
    });
    if let Some(number) = twice {
        return Err(invalid(format!("{} has two fields with the number {number}", shown(&message.name))));
    }
    if message.fields.iter().any(|field| !field.json_name.is_empty()) {
        // The protobuf runtime rejects a JSON name that is the name of another field.
        let names: HashSet<String> = message.fields.iter().map(|field| field.name.clone()).collect();
        message
            .fields
            .iter_mut()
            .filter(|field| names.contains(&field.json_name))
            .for_each(|field| field.json_name.clear());
    }
    let mut oneofs = HashMap::new();
    for field in message.fields.iter_mut().filter(|field| field.oneof > 0) {
        let next = oneofs.len() as u32 + 1;
        field.oneof = *oneofs.entry(field.oneof).or_insert(next);
    }
    let numbers = || message.fields.iter().map(|field| (field.number, field.repeated));
    if message.map_entry && !numbers().eq([(1, false), (2, false)]) {
        return Err(invalid(format!("the map entry {} does not consist of a key and a value", shown(&message.name))));
    }
    Ok(())
}
