//! The canonical descriptor set of a type and all types that it reaches: the same bytes, however it was declared.
//!
//! The set is one file of edition 2023. Packages become nested messages, so that types from different files keep their
//! full names. Declarations are sorted by name or number and are written in one form.

use std::collections::{BTreeMap, HashSet};

use super::features::{CLOSED, DELIMITED, EXPANDED, UNVERIFIED};
use super::flat::Closure;
use super::{Descriptors, Enum, Field, MAX_CANONICAL, Message, Presence};
use crate::error::{Kind, Result, WireError};
use crate::header::{self, Wire};
use crate::schema::FieldKind;
use crate::varint;

/// The type whose messages can contain a message of any type.
const ANY: &str = "google.protobuf.Any";
const FILE_NAME: &[u8] = b"type.proto";
const EDITION_2023: u64 = 1000;
/// `json_format` `LEGACY_BEST_EFFORT`, because the original sets may contain JSON names that only differ in case.
const LENIENT_JSON: u64 = 2;
const OPTIONAL: u64 = 1;
const REPEATED: u64 = 3;

/// A package, or a message and the declarations nested in it.
#[derive(Default)]
struct Scope<'a> {
    inner: BTreeMap<&'a str, Scope<'a>>,
    message: Option<&'a Message>,
    enums: BTreeMap<&'a str, &'a Enum>,
    /// The extensions, by the name of the extended message and the field number.
    extensions: BTreeMap<(&'a str, u32), &'a Field>,
}

impl Descriptors {
    /// The canonical set of type `name`. Two sets give the same bytes exactly if they declare the type, and all types
    /// that it reaches, in the same way.
    pub fn canonical(&self, name: &str) -> Result<Vec<u8>> {
        self.canonical_of(&self.closure(name)?)
    }

    /// Like [`Descriptors::canonical`]. But if the type reaches `Any`, the result has all types that the set declares,
    /// because an `Any` may contain each of them. If they are too large, they are left out.
    pub fn canonical_with_any(&self, name: &str) -> Result<Vec<u8>> {
        let closure = self.closure(name)?;
        let holds_any = closure.messages.iter().any(|id| self.message(*id).is_some_and(|each| each.name == ANY));
        if holds_any {
            let others = (0..).zip(&self.messages).filter(|(_, each)| each.own && !each.map_entry).map(|(id, _)| id);
            let wide = self.canonical_of(&self.closure_of(others.collect()));
            if !matches!(&wide, Err(error) if error.kind() == Kind::Limit) {
                return wide;
            }
        }
        self.canonical_of(&closure)
    }

    fn canonical_of(&self, closure: &Closure) -> Result<Vec<u8>> {
        let mut top = Scope::default();
        for message in closure.messages.iter().filter_map(|id| self.message(*id)) {
            top.at(&message.name).message = Some(message);
            for field in message.fields.iter().filter(|field| field.extension) {
                let (scope, _) = split(&field.name);
                top.at(scope).extensions.insert((&message.name, field.number), field);
            }
        }
        for each in closure.enums.iter().filter_map(|id| self.enumeration(*id)) {
            let (scope, last) = split(&each.name);
            top.at(scope).enums.insert(last, each);
        }
        let mut file = Vec::new();
        delimited(1, FILE_NAME, &mut file);
        self.scope(&top, [4, 5, 7], &mut file)?;
        delimited(8, &nested(50, &number(6, LENIENT_JSON)), &mut file);
        delimited(12, b"editions", &mut file);
        write(14, EDITION_2023, &mut file);
        Ok(nested(1, &file))
    }

    /// Appends the messages, enums and extensions of a scope; `numbers` are the field numbers for the three.
    fn scope(&self, scope: &Scope<'_>, numbers: [u32; 3], out: &mut Vec<u8>) -> Result<()> {
        let [messages, enums, extensions] = numbers;
        for (name, inner) in &scope.inner {
            delimited(messages, &self.message_of(name, inner)?, out);
            if out.len() > MAX_CANONICAL {
                return Err(WireError::new(
                    Kind::Limit,
                    format!("a type and its dependencies take more than {MAX_CANONICAL} bytes"),
                ));
            }
        }
        scope.enums.iter().for_each(|(name, each)| delimited(enums, &enumeration(name, each), out));
        for ((extended, _), field) in &scope.extensions {
            delimited(extensions, &self.field(field, split(&field.name).1, Some(extended)), out);
        }
        Ok(())
    }

    fn message_of(&self, name: &str, scope: &Scope<'_>) -> Result<Vec<u8>> {
        let mut out = nested(1, name.as_bytes());
        self.scope(scope, [3, 4, 6], &mut out)?;
        let Some(message) = scope.message else { return Ok(out) };
        // Unlike in protoc's output, field numbers do not rise here. A constant order suffices.
        out.extend(self.declaration(message));
        for field in message.fields.iter().filter(|field| field.extension) {
            let mut range = number(1, u64::from(field.number));
            write(2, u64::from(field.number) + 1, &mut range);
            delimited(5, &range, &mut out);
        }
        Ok(out)
    }

    /// The serialized declaration of a message: its fields, options and oneofs. Name, nested types and extensions are
    /// left out.
    pub(super) fn declaration(&self, message: &Message) -> Vec<u8> {
        let (mut out, fields) = (Vec::new(), &message.fields);
        let crowded = crowded(fields);
        for field in fields.iter().filter(|field| !field.extension) {
            let mut declared = self.field(field, &field.name, None);
            if crowded.contains(&json_name(field)) {
                delimited(10, unique_json_name(&field.name, field.number).as_bytes(), &mut declared);
            } else if !field.json_name.is_empty() {
                delimited(10, field.json_name.as_bytes(), &mut declared);
            }
            delimited(2, &declared, &mut out);
            if out.len() > MAX_CANONICAL {
                break; // the type is refused for its size, so the rest does not matter
            }
        }
        let flags = [(1, message.message_set), (7, message.map_entry)];
        let options: Vec<u8> = flags.iter().filter(|(_, set)| *set).flat_map(|(field, _)| number(*field, 1)).collect();
        if !options.is_empty() {
            delimited(7, &options, &mut out);
        }
        oneof_names(fields).iter().for_each(|name| delimited(8, &nested(1, name.as_bytes()), &mut out));
        out
    }

    fn field(&self, field: &Field, name: &str, extended: Option<&str>) -> Vec<u8> {
        let mut out = nested(1, name.as_bytes());
        if let Some(extended) = extended {
            delimited(2, format!(".{extended}").as_bytes(), &mut out);
        }
        write(3, u64::from(field.number), &mut out);
        write(4, if field.repeated { REPEATED } else { OPTIONAL }, &mut out);
        let group = field.kind == FieldKind::Group;
        write(5, if group { FieldKind::Message } else { field.kind } as u64, &mut out);
        if let Some(target) = self.target(field) {
            delimited(6, format!(".{target}").as_bytes(), &mut out);
        }
        let features = features(field);
        if !features.is_empty() {
            delimited(8, &nested(21, &features), &mut out);
        }
        if field.oneof > 0 {
            write(9, u64::from(field.oneof) - 1, &mut out);
        }
        out
    }

    fn target(&self, field: &Field) -> Option<&str> {
        match field.kind {
            FieldKind::Enum => self.enumeration(field.target).map(|each| each.name.as_str()),
            kind if kind.is_message() => self.message(field.target).map(|message| message.name.as_str()),
            _ => None,
        }
    }
}

impl<'a> Scope<'a> {
    /// The scope called `name`, created if missing.
    fn at(&mut self, name: &'a str) -> &mut Self {
        name.split('.').filter(|_| !name.is_empty()).fold(self, |scope, part| scope.inner.entry(part).or_default())
    }
}

/// The features of a field that differ from the defaults of edition 2023.
fn features(field: &Field) -> Vec<u8> {
    let mut out = Vec::new();
    if field.presence != Presence::Explicit {
        write(1, field.presence as u64, &mut out);
    }
    if field.repeated && field.kind.is_packable() && !field.packed {
        write(3, EXPANDED, &mut out);
    }
    if field.kind == FieldKind::String && !field.verified {
        write(4, UNVERIFIED, &mut out);
    }
    if field.kind == FieldKind::Group {
        write(5, DELIMITED, &mut out);
    }
    out
}

pub(super) fn enumeration(name: &str, each: &Enum) -> Vec<u8> {
    let mut out = nested(1, name.as_bytes());
    for (name, value) in &each.values {
        let mut declared = nested(1, name.as_bytes());
        write(2, i64::from(*value).cast_unsigned(), &mut declared);
        delimited(2, &declared, &mut out);
    }
    let mut options = Vec::new();
    if each.values.chunk_by(|(_, one), (_, other)| one == other).any(|same| same.len() > 1) {
        write(2, 1, &mut options);
    }
    if each.closed {
        delimited(7, &number(2, CLOSED), &mut options);
    }
    if !options.is_empty() {
        delimited(3, &options, &mut out);
    }
    out
}

/// The JSON names that several fields share; the protobuf runtime requires unique names.
fn crowded(fields: &[Field]) -> HashSet<String> {
    let mut met = HashSet::new();
    fields.iter().map(json_name).filter(|name| !met.insert(name.clone())).collect()
}

/// The declared JSON name of a field; empty if it is the default name, or if protoc would not accept it.
pub(super) fn declared_json_name<'a>(declared: &'a str, name: &str) -> &'a str {
    let refused = declared.contains('\0') || (declared.starts_with('[') && declared.ends_with(']'));
    if refused || is_unique_json_name(declared) || declared == default_json_name(name) { "" } else { declared }
}

fn json_name(field: &Field) -> String {
    if field.json_name.is_empty() { default_json_name(&field.name) } else { field.json_name.clone() }
}

/// The replacement for a JSON name that two fields share.
fn unique_json_name(name: &str, number: u32) -> String {
    format!("{name}#{number}")
}

fn is_unique_json_name(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(before, number)| !before.is_empty() && number.parse::<u32>().is_ok())
}

fn default_json_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut capital = false;
    for letter in name.chars() {
        match letter {
            '_' => capital = true,
            _ => out.push(if std::mem::take(&mut capital) { letter.to_ascii_uppercase() } else { letter }),
        }
    }
    out
}

/// A unique name for each oneof; the declared names are not kept, because they do not affect the bytes of messages.
fn oneof_names(fields: &[Field]) -> Vec<String> {
    let taken: HashSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let count = fields.iter().map(|field| field.oneof).max().unwrap_or_default();
    let mut marks = "_".to_owned();
    while (1..=count).any(|each| taken.contains(format!("oneof{marks}{each}").as_str())) {
        marks.push('_');
    }
    (1..=count).map(|each| format!("oneof{marks}{each}")).collect()
}

/// Splits a full name into its scope and its last part.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

fn number(field: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write(field, value, &mut out);
    out
}

fn nested(field: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    delimited(field, content, &mut out);
    out
}

fn write(field: u32, value: u64, out: &mut Vec<u8>) {
    varint::write(header::tag(field, Wire::Varint), out);
    varint::write(value, out);
}

fn delimited(field: u32, content: &[u8], out: &mut Vec<u8>) {
    varint::write(header::tag(field, Wire::Len), out);
    varint::write(content.len() as u64, out);
    out.extend_from_slice(content);
}
