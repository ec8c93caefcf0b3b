//! Findings of a search, stored in a few large buffers instead of many small ones.

use super::Place;
use crate::schema::TypeId;

/// Messages found, in order.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Paths, names and skeletons, concatenated.
    text: Vec<u8>,
    names: Vec<(TypeId, usize)>,
    places: Vec<Place>,
    ends: Vec<Ends>,
}

/// Ends of one message's data in the buffers; the data begin at the ends of the message before.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    type_id: TypeId,
    path: usize,
    names: usize,
    skeleton: usize,
    places: usize,
}

/// A message found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'f> {
    /// Path of the message.
    pub path: &'f str,
    /// Message type.
    pub type_id: TypeId,
    /// Enclosing messages that have a name, the outermost first: type and name.
    pub names: Vec<(TypeId, &'f [u8])>,
    /// The message without its large fields, serialized.
    pub skeleton: &'f [u8],
    /// All fields in order, without those whose wire type does not fit the schema.
    pub places: &'f [Place],
}

impl Findings {
    /// Number of messages.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if no messages were found.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The finding at position `number`; None past the last one.
    pub fn get(&self, number: usize) -> Option<Found<'_>> {
        let ends = self.ends.get(number)?;
        let begin = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        let mut at = ends.path;
        let mut names = Vec::new();
        for (type_id, end) in self.names.get(begin.names..ends.names)? {
            names.push((*type_id, self.text.get(at..*end)?));
            at = *end;
        }
        Some(Found {
            path: std::str::from_utf8(self.text.get(begin.skeleton..ends.path)?).ok()?,
            type_id: ends.type_id,
            names,
            skeleton: self.text.get(at..ends.skeleton)?,
            places: self.places.get(begin.places..ends.places)?,
        })
    }

    /// All findings, in order.
    pub fn iter(&self) -> impl Iterator<Item = Found<'_>> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// Bytes of paths, names and skeletons so far.
    pub(super) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Begins the next message with the path that `write` appends; returns the end of the path.
    pub(super) fn path(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        write(&mut self.text);
        self.text.len()
    }

    /// Appends the name of an enclosing message, the outermost first.
    pub(super) fn name(&mut self, type_id: TypeId, name: &[u8]) {
        self.text.extend_from_slice(name);
        self.names.push((type_id, self.text.len()));
    }

    /// Appends a small field to the skeleton.
    pub(super) fn small(&mut self, field: &[u8]) {
        self.text.extend_from_slice(field);
    }

    /// Appends the place of the next field.
    pub(super) fn place(&mut self, place: Place) {
        self.places.push(place);
    }

    /// Ends the message of type `type_id`, whose path ended at `path`.
    pub(super) fn end(&mut self, type_id: TypeId, path: usize) {
        let (names, skeleton, places) = (self.names.len(), self.text.len(), self.places.len());
        self.ends.push(Ends { type_id, path, names, skeleton, places });
    }
}
