//! Message types from a serialized `FileDescriptorSet`, without a protobuf runtime. Names are resolved and features are
//! inherited.
//!
//! Only declarations that matter for reading, showing and writing messages are kept. Comments, options that change no
//! bytes, default values, and the names of files and oneofs are dropped.

mod canonical;
mod count;
mod declarations;
mod features;
mod files;
mod flat;
mod link;
mod messages;
mod scopes;

use std::collections::HashMap;

pub use declarations::Declarations;

use crate::error::{Kind, Result, WireError};
use crate::schema::FieldKind;

/// The largest serialized size of a canonical set; every store keeps such a set, even if its files are small.
const MAX_CANONICAL: usize = 1 << 20;

/// Limits on the size of a descriptor set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most files in the set.
    pub files: usize,
    /// Most messages, fields, enum values, imports and similar parts in the set.
    pub parts: usize,
}

/// The message types of a set.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    messages: Vec<Message>,
    enums: Vec<Enum>,
    by_name: HashMap<String, u32>,
}

#[derive(Clone, Debug)]
struct Message {
    name: String,
    /// True if the set itself declares the type, false if the type is in a file that was added because of an import.
    own: bool,
    map_entry: bool,
    message_set: bool,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    number: u32,
    /// The name; for an extension, the full name.
    name: String,
    /// The declared JSON name; empty if it is the default name.
    json_name: String,
    extension: bool,
    kind: FieldKind,
    repeated: bool,
    presence: Presence,
    packed: bool,
    /// True if a string must be UTF-8.
    verified: bool,
    /// The number of the oneof, counted from 1 in the order of the lowest field numbers; 0 without a oneof.
    oneof: u32,
    target: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Explicit = 1,
    Implicit = 2,
    Required = 3,
}

#[derive(Clone, Debug)]
struct Enum {
    name: String,
    own: bool,
    closed: bool,
    /// The names and numbers: 0 first, then sorted by number; among equal numbers, the name declared first comes first.
    values: Vec<(String, i32)>,
}

impl Descriptors {
    /// Reads the types of the set `data`. Missing files `google/protobuf/…` that it imports come from the set
    /// `library`.
    pub fn parse(data: &[u8], library: &[u8], bounds: &Bounds) -> Result<Self> {
        let own = files::own(data, bounds)?;
        count::check(&own, bounds)?;
        link::linked(files::complete(own, library, bounds)?, bounds)
    }

    /// The full names of all message types that the set declares, sorted; map entries do not count as types.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.types().map(|message| message.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// The number of types.
    pub fn len(&self) -> usize {
        self.types().count()
    }

    /// True if there are no types.
    pub fn is_empty(&self) -> bool {
        self.types().next().is_none()
    }

    fn types(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|message| message.own && !message.map_entry)
    }

    /// True if the set declares the message type `name`.
    pub fn declares(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Approximate memory of the types, in bytes.
    pub fn weight(&self) -> usize {
        let fields = |message: &Message| {
            let names: usize = message.fields.iter().map(|field| field.name.len() + field.json_name.len()).sum();
            names + message.fields.len() * size_of::<Field>()
        };
        let values = |each: &Enum| each.values.iter().map(|(name, _)| name.len() + 32).sum::<usize>();
        let messages: usize = self.messages.iter().map(|each| 2 * each.name.len() + fields(each) + 150).sum();
        messages + self.enums.iter().map(|each| each.name.len() + values(each) + 60).sum::<usize>()
    }

    fn find(&self, name: &str) -> Option<u32> {
        let id = *self.by_name.get(name)?;
        self.message(id).filter(|message| message.own && !message.map_entry).map(|_| id)
    }

    fn message(&self, id: u32) -> Option<&Message> {
        self.messages.get(id as usize)
    }

    fn enumeration(&self, id: u32) -> Option<&Enum> {
        self.enums.get(id as usize)
    }

    fn root(&self, name: &str) -> Result<u32> {
        self.find(name).ok_or_else(|| WireError::new(Kind::Unsupported, format!("no message type {}", shown(name))))
    }
}

/// A name in quotes; a long name is shortened.
fn shown(name: &str) -> String {
    let cut: String = name.chars().take(100).collect();
    if cut.len() < name.len() { format!("'{cut}…'") } else { format!("'{cut}'") }
}

fn invalid(message: impl Into<String>) -> WireError {
    WireError::new(Kind::Syntax, message)
}

fn too_many(bounds: &Bounds) -> WireError {
    let text = format!("the descriptor set declares more than {} messages, fields, imports and so on", bounds.parts);
    WireError::new(Kind::Limit, text)
}
