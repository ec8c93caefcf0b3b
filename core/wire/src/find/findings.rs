//! What a search has found, in few large pieces of memory rather than in many small ones.

use super::Place;
use crate::schema::TypeId;

/// The messages that were found, in order.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Paths, names and skeletons, as they came.
    text: Vec<u8>,
    names: Vec<(TypeId, usize)>,
    places: Vec<Place>,
    ends: Vec<Ends>,
}

/// Where what belongs to one message ends; it begins where that of the one before ends.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    type_id: TypeId,
    path: usize,
    names: usize,
    skeleton: usize,
    places: usize,
}

/// A message that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'f> {
    /// The path that leads to it.
    pub path: &'f str,
    /// Its type.
    pub type_id: TypeId,
    /// The enclosing messages that have a name, the outermost first: their types, and how they are called.
    pub names: Vec<(TypeId, &'f [u8])>,
    /// The message without its large fields.
    pub skeleton: &'f [u8],
    /// All its fields, in order, but for those whose wire type is not that of the field.
    pub places: &'f [Place],
}

impl Findings {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Message `number`.
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

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Found<'_>> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// Bytes of paths, names and skeletons.
    pub(super) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Begins the next message with its path, as `write` writes it.
    pub(super) fn path(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        write(&mut self.text);
        self.text.len()
    }

    /// The name of what encloses it; the outermost comes first.
    pub(super) fn name(&mut self, type_id: TypeId, name: &[u8]) {
        self.text.extend_from_slice(name);
        self.names.push((type_id, self.text.len()));
    }

    /// Its next small field.
    pub(super) fn small(&mut self, field: &[u8]) {
        self.text.extend_from_slice(field);
    }

    /// The place of its next field.
    pub(super) fn place(&mut self, place: Place) {
        self.places.push(place);
    }

    /// Ends the message, which is of type `type_id`, and whose path ended at `path`.
    pub(super) fn end(&mut self, type_id: TypeId, path: usize) {
        let (names, skeleton, places) = (self.names.len(), self.text.len(), self.places.len());
        self.ends.push(Ends { type_id, path, names, skeleton, places });
    }
}
