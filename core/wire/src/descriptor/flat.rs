//! The flat table of a type and all types that it reaches.

use std::collections::{HashMap, VecDeque};

use super::{Descriptors, Field};
use crate::error::Result;
use crate::schema::{self, FieldKind, Schema};

/// The types that a root reaches, the root first, in the order of a walk by field numbers.
pub(super) struct Closure {
    pub(super) messages: Vec<u32>,
    pub(super) enums: Vec<u32>,
    places: HashMap<(bool, u32), u32>,
}

impl Descriptors {
    /// The table for messages of type `name`, which has the number 0 in the table.
    pub fn schema(&self, name: &str) -> Result<Schema> {
        let closure = self.closure(name)?;
        let messages = closure.messages.iter().filter_map(|id| self.message(*id)).map(|message| {
            let fields = message.fields.iter().map(|field| closure.field(field)).collect();
            schema::Message::new(message.name.clone(), message.map_entry, fields)
        });
        let enums = closure.enums.iter().filter_map(|id| self.enumeration(*id));
        Schema::new(messages.collect(), enums.map(|each| each.values.iter().cloned().collect()).collect())
    }

    pub(super) fn closure(&self, name: &str) -> Result<Closure> {
        Ok(self.closure_of(vec![self.root(name)?]))
    }

    /// The types that `roots` reach; the roots must be different messages.
    pub(super) fn closure_of(&self, roots: Vec<u32>) -> Closure {
        let places = (0..).zip(&roots).map(|(place, root)| ((true, *root), place)).collect();
        let mut pending = VecDeque::from(roots.clone());
        let mut found = Closure { messages: roots, enums: Vec::new(), places };
        while let Some(message) = pending.pop_front().and_then(|id| self.message(id)) {
            for field in &message.fields {
                if found.add(field) {
                    pending.push_back(field.target);
                }
            }
        }
        found
    }
}

impl Closure {
    /// Adds the type of `field`; returns true if it is a message type that was not added before.
    fn add(&mut self, field: &Field) -> bool {
        let is_message = field.kind.is_message();
        if !is_message && field.kind != FieldKind::Enum {
            return false;
        }
        let list = if is_message { &mut self.messages } else { &mut self.enums };
        let next = list.len() as u32;
        let is_new = *self.places.entry((is_message, field.target)).or_insert(next) == next;
        if is_new {
            list.push(field.target);
        }
        is_new && is_message
    }

    fn field(&self, field: &Field) -> schema::Field {
        let place = self.places.get(&(field.kind.is_message(), field.target)).copied();
        schema::Field {
            number: field.number,
            name: if field.extension { format!("[{}]", field.name) } else { field.name.clone() },
            kind: field.kind,
            repeated: field.repeated,
            oneof: field.oneof,
            target: place.filter(|_| field.kind.is_message() || field.kind == FieldKind::Enum).unwrap_or_default(),
        }
    }
}
