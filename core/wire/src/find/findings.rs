//! The findings of a search, stored in a few large buffers instead of many small ones.

use super::Place;
use crate::error::{Kind, Result, WireError};
use crate::schema::TypeId;

/// The messages that a search found, in order.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The paths, names and skeletons, concatenated.
    text: Vec<u8>,
    names: Vec<(TypeId, u32)>,
    places: Vec<Place>,
    ends: Vec<Ends>,
    /// Most bytes that the buffers may hold.
    most: u64,
}

/// The ends of one message's data in the buffers; its data begin where those of the previous message end.
/// `Limits::found_of` keeps all buffers far below 4 GiB.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    type_id: TypeId,
    path: u32,
    names: u32,
    skeleton: u32,
    places: u32,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'f> {
    /// Path of the message.
    pub path: &'f str,
    /// Message type.
    pub type_id: TypeId,
    /// The enclosing messages that have a name, the outermost first: type and name.
    pub names: Vec<(TypeId, &'f [u8])>,
    /// The serialized message without its large fields.
    pub skeleton: &'f [u8],
    /// All fields in order, without those whose wire type does not fit the schema.
    pub places: &'f [Place],
}

impl Findings {
    /// Makes an empty list with room for `most` bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if no messages were found.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The finding at position `number`; None after the last one.
    pub fn get(&self, number: usize) -> Option<Found<'_>> {
        let ends = self.ends.get(number)?;
        let begin = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        let mut at = ends.path;
        let mut names = Vec::new();
        for (type_id, end) in self.names.get(begin.names as usize..ends.names as usize)? {
            names.push((*type_id, self.text.get(at as usize..*end as usize)?));
            at = *end;
        }
        Some(Found {
            path: std::str::from_utf8(self.text.get(begin.skeleton as usize..ends.path as usize)?).ok()?,
            type_id: ends.type_id,
            names,
            skeleton: self.text.get(at as usize..ends.skeleton as usize)?,
            places: self.places.get(begin.places as usize..ends.places as usize)?,
        })
    }

    /// All findings, in order.
    pub fn iter(&self) -> impl Iterator<Item = Found<'_>> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// The memory of the messages in bytes.
    pub fn held(&self) -> u64 {
        let held = self.text.len()
            + size_of_val(self.names.as_slice())
            + size_of_val(self.places.as_slice())
            + size_of_val(self.ends.as_slice());
        held as u64
    }

    /// Fails when the buffers are full.
    pub(super) fn check_room(&self) -> Result<()> {
        if self.held() <= self.most {
            return Ok(());
        }
        let message = format!(
            "the messages found take more than {} bytes of memory: raise the limit on messages found",
            self.most
        );
        Err(WireError::new(Kind::Limit, message))
    }

    /// Begins the next message, whose path `write` appends; returns the end of the path.
    pub(super) fn path(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        write(&mut self.text);
        self.text.len() as u32
    }

    /// Appends the name of an enclosing message; the outermost message must come first.
    pub(super) fn name(&mut self, type_id: TypeId, name: &[u8]) {
        self.text.extend_from_slice(name);
        self.names.push((type_id, self.text.len() as u32));
    }

    /// Appends a small field to the skeleton.
    pub(super) fn small(&mut self, field: &[u8]) {
        self.text.extend_from_slice(field);
    }

    /// Appends the place of the next field.
    pub(super) fn place(&mut self, place: Place) {
        self.places.push(place);
    }

    /// Ends the message of type `type_id` whose path ends at `path`. Fails when the buffers are full.
    pub(super) fn end(&mut self, type_id: TypeId, path: u32) -> Result<()> {
        let (names, skeleton, places) = (self.names.len() as u32, self.text.len() as u32, self.places.len() as u32);
        self.ends.push(Ends { type_id, path, names, skeleton, places });
        self.check_room()
    }
}
