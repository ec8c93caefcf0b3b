//! The declarations of a file, which are entered into the tree of names; fields wait until all names are known.

use super::features::{Features, Syntax};
use super::files::{File, each, text};
use super::scopes::{Scopes, Symbol};
use super::{Enum, Message, invalid};
use crate::error::Result;
use crate::fields::InMemory;
use crate::header::Wire;

/// All declarations of the files.
pub(super) struct Declared<'a> {
    pub(super) scopes: Scopes<'a>,
    pub(super) messages: Vec<Message>,
    pub(super) enums: Vec<Enum>,
    pub(super) fields: Vec<Unlinked<'a>>,
}

/// A field whose type is only known by name.
pub(super) struct Unlinked<'a> {
    /// The scope in which names are looked up first.
    pub(super) scope: u32,
    /// The message that declares the field; None for an extension.
    pub(super) message: Option<u32>,
    /// The number of the file that declares the field.
    pub(super) file: usize,
    pub(super) syntax: Syntax,
    pub(super) features: Features,
    pub(super) name: &'a str,
    /// The full name of an extension; empty for other fields.
    pub(super) full_name: String,
    pub(super) number: u64,
    pub(super) label: u64,
    pub(super) kind: u64,
    pub(super) type_name: &'a str,
    pub(super) json_name: &'a str,
    pub(super) extendee: &'a str,
    pub(super) packed: Option<bool>,
    pub(super) oneof: Option<u64>,
    pub(super) optional: bool,
}

/// The context of a declaration.
#[derive(Clone, Copy)]
struct Place {
    scope: u32,
    file: usize,
    own: bool,
    syntax: Syntax,
    features: Features,
}

impl<'a> Declared<'a> {
    pub(super) fn file(&mut self, number: usize, file: &File<'a>) -> Result<()> {
        let (mut package, mut syntax, mut edition, mut options) = ("", "", 0, Vec::new());
        each(file.bytes, |field| {
            match (field.header.number, field.header.wire) {
                (2, Wire::Len) => package = text(&field)?,
                (8, Wire::Len) => options.push(field.content),
                (12, Wire::Len) => syntax = text(&field)?,
                (14, Wire::Varint) => edition = field.header.value,
                _ => {}
            }
            Ok(())
        })?;
        let syntax = Syntax::of(syntax, edition)?;
        let features = with_options(syntax.defaults(), &options, 50)?;
        let place = Place { scope: self.scopes.package(package)?, file: number, own: file.own, syntax, features };
        each(file.bytes, |field| match (field.header.number, field.header.wire) {
            (4, Wire::Len) => self.message(field.content, place),
            (5, Wire::Len) => self.enumeration(field.content, place),
            (7, Wire::Len) => self.extension(field.content, place),
            _ => Ok(()),
        })
    }

    fn message(&mut self, bytes: &'a [u8], mut place: Place) -> Result<()> {
        let (mut name, mut options, mut oneofs) = ("", Vec::new(), Vec::new());
        each(bytes, |field| {
            match (field.header.number, field.header.wire) {
                (1, Wire::Len) => name = text(&field)?,
                (7, Wire::Len) => options.push(field.content),
                (8, Wire::Len) => oneofs.push(field.content),
                _ => {}
            }
            Ok(())
        })?;
        let id = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        place.scope = self.scopes.define(place.scope, name, Symbol::Message(id))?;
        place.features = with_options(place.features, &options, 12)?;
        let (message_set, map_entry) = (flag(&options, 1)?, flag(&options, 7)?);
        let name = self.scopes.full_name(place.scope)?;
        self.messages.push(Message { name, own: place.own, map_entry, message_set, fields: Vec::new() });
        let oneofs = oneofs.into_iter().map(|oneof| self.oneof(oneof, place)).collect::<Result<Vec<_>>>()?;
        each(bytes, |field| match (field.header.number, field.header.wire) {
            (2, Wire::Len) => self.field(field.content, id, place, &oneofs),
            (3, Wire::Len) => self.message(field.content, place),
            (4, Wire::Len) => self.enumeration(field.content, place),
            (6, Wire::Len) => self.extension(field.content, place),
            _ => Ok(()),
        })
    }

    /// The features that the members of a oneof inherit.
    fn oneof(&mut self, bytes: &'a [u8], place: Place) -> Result<Features> {
        let (mut name, mut options) = ("", Vec::new());
        each(bytes, |field| {
            match (field.header.number, field.header.wire) {
                (1, Wire::Len) => name = text(&field)?,
                (2, Wire::Len) => options.push(field.content),
                _ => {}
            }
            Ok(())
        })?;
        self.scopes.define(place.scope, name, Symbol::Other)?;
        with_options(place.features, &options, 1)
    }

    fn field(&mut self, bytes: &'a [u8], message: u32, place: Place, oneofs: &[Features]) -> Result<()> {
        let mut field = Unlinked::read(bytes, place)?;
        self.scopes.define(place.scope, field.name, Symbol::Other)?;
        if let Some(oneof) = field.oneof {
            let found = usize::try_from(oneof).ok().and_then(|oneof| oneofs.get(oneof));
            let inherited = *found.ok_or_else(|| invalid(format!("the oneof of {} is not declared", field.name)))?;
            field = Unlinked::read(bytes, Place { features: inherited, ..place })?;
        }
        field.message = Some(message);
        self.fields.push(field);
        Ok(())
    }

    fn extension(&mut self, bytes: &'a [u8], place: Place) -> Result<()> {
        let mut field = Unlinked::read(bytes, place)?;
        let id = self.scopes.define(place.scope, field.name, Symbol::Other)?;
        field.full_name = self.scopes.full_name(id)?;
        field.oneof = None;
        self.fields.push(field);
        Ok(())
    }

    fn enumeration(&mut self, bytes: &'a [u8], place: Place) -> Result<()> {
        let (mut name, mut options, mut values) = ("", Vec::new(), Vec::new());
        let scopes = &mut self.scopes;
        each(bytes, |field| {
            match (field.header.number, field.header.wire) {
                (1, Wire::Len) => name = text(&field)?,
                (2, Wire::Len) => {
                    let (value, number) = enum_value(&field)?;
                    // The value names of an enum belong to the scope that contains the enum.
                    scopes.define(place.scope, value, Symbol::Other)?;
                    values.push((value.to_owned(), number));
                }
                (3, Wire::Len) => options.push(field.content),
                _ => {}
            }
            Ok(())
        })?;
        let number = u32::try_from(self.enums.len()).unwrap_or(u32::MAX);
        let id = self.scopes.define(place.scope, name, Symbol::Enum(number))?;
        let closed = with_options(place.features, &options, 7)?.enum_type == super::features::CLOSED;
        let mut found = Enum { name: self.scopes.full_name(id)?, own: place.own, closed, values };
        found.sort()?;
        self.enums.push(found);
        Ok(())
    }
}

impl Enum {
    /// Sorts the values: numbers from 0 on in rising order, then negative numbers. Among equal numbers, the value that
    /// was declared first stays first.
    fn sort(&mut self) -> Result<()> {
        self.values.sort_by_key(|(_, number)| number.cast_unsigned());
        for same in self.values.chunk_by_mut(|(_, one), (_, other)| one == other) {
            if let Some((_, others)) = same.split_first_mut() {
                others.sort_unstable();
            }
        }
        match self.values.first() {
            None => Err(invalid(format!("the enum {} has no values", self.name))),
            Some((_, number)) if *number != 0 && !self.closed => {
                Err(invalid(format!("the first value of the open enum {} must be 0", self.name)))
            }
            Some(_) => Ok(()),
        }
    }
}

impl<'a> Unlinked<'a> {
    fn read(bytes: &'a [u8], place: Place) -> Result<Self> {
        let mut found = Self {
            scope: place.scope,
            message: None,
            file: place.file,
            syntax: place.syntax,
            features: place.features,
            name: "",
            full_name: String::new(),
            number: 0,
            label: 1,
            kind: 0,
            type_name: "",
            json_name: "",
            extendee: "",
            packed: None,
            oneof: None,
            optional: false,
        };
        let mut options = Vec::new();
        each(bytes, |field| {
            let value = field.header.value;
            match (field.header.number, field.header.wire) {
                (1, Wire::Len) => found.name = text(&field)?,
                (2, Wire::Len) => found.extendee = text(&field)?,
                (3, Wire::Varint) => found.number = value,
                (4, Wire::Varint) => found.label = value,
                (5, Wire::Varint) => found.kind = value,
                (6, Wire::Len) => found.type_name = text(&field)?,
                (8, Wire::Len) => options.push(field.content),
                (9, Wire::Varint) => found.oneof = Some(value),
                (10, Wire::Len) => found.json_name = text(&field)?,
                (17, Wire::Varint) => found.optional = value != 0,
                _ => {}
            }
            Ok(())
        })?;
        found.features = with_options(found.features, &options, 21)?;
        found.packed = number(&options, 2)?.map(|value| value != 0);
        Ok(found)
    }
}

fn enum_value<'a>(field: &InMemory<'a>) -> Result<(&'a str, i32)> {
    let (mut name, mut number) = ("", 0);
    each(field.content, |field| {
        match (field.header.number, field.header.wire) {
            (1, Wire::Len) => name = text(&field)?,
            (2, Wire::Varint) => number = field.header.value as u32,
            _ => {}
        }
        Ok(())
    })?;
    Ok((name, number.cast_signed()))
}

/// The `features`, overridden by the field `wanted` of serialized options.
fn with_options(mut features: Features, options: &[&[u8]], wanted: u32) -> Result<Features> {
    for part in options {
        each(part, |field| {
            if (field.header.number, field.header.wire) == (wanted, Wire::Len) {
                features = features.with(field.content)?;
            }
            Ok(())
        })?;
    }
    Ok(features)
}

fn flag(options: &[&[u8]], wanted: u32) -> Result<bool> {
    Ok(number(options, wanted)?.is_some_and(|value| value != 0))
}

/// The last value of field `wanted` in serialized options; None when the field is not set.
fn number(options: &[&[u8]], wanted: u32) -> Result<Option<u64>> {
    let mut found = None;
    for part in options {
        each(part, |field| {
            if (field.header.number, field.header.wire) == (wanted, Wire::Varint) {
                found = Some(field.header.value);
            }
            Ok(())
        })?;
    }
    Ok(found)
}
