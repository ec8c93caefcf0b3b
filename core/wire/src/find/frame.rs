//! The stack of a search. The paths and names of enclosing messages are written only for a message that is found.

use std::cell::OnceCell;
use std::io::Write;

use super::findings::Findings;
use crate::error::Result;
use crate::fields::Fields;
use crate::key::{self, Key};
use crate::listing::key_label;
use crate::schema::{Field, FieldKind, Schema, TypeId};

/// Longest name in bytes; longer names are left out.
pub(super) const LONGEST_NAME: u64 = 4096;

/// A piece of a message and its offset.
#[derive(Clone, Copy)]
pub(super) struct Piece<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) base: u64,
}

/// A message on the way down from the root.
pub(super) struct Frame<'u> {
    pub(super) type_id: TypeId,
    up: Option<&'u Frame<'u>>,
    /// The field that contains the message; None for the root. None also for the value of a map entry, because the
    /// entry's frame has the field.
    field: Option<&'u Field>,
    step: Step<'u>,
    /// The bytes of the message, from which the name is read when it is needed.
    pieces: &'u [Piece<'u>],
    name: OnceCell<Option<Vec<u8>>>,
}

/// The position of a message in its field.
#[derive(Clone, Copy)]
pub(super) enum Step<'u> {
    /// Singular field.
    Alone,
    /// Element of a repeated field.
    Index(u64),
    /// Entry of a map.
    Key(FieldKind, Key<'u>),
}

impl<'u> Frame<'u> {
    /// Makes a frame whose name is already known.
    pub(super) fn told(
        type_id: TypeId,
        up: Option<&'u Frame<'u>>,
        field: Option<&'u Field>,
        step: Step<'u>,
        name: Option<Vec<u8>>,
    ) -> Self {
        Self { type_id, up, field, step, pieces: &[], name: OnceCell::from(name) }
    }

    /// Makes a frame for a message that consists of `pieces`; its name is read when it is needed.
    pub(super) fn held(
        type_id: TypeId,
        up: Option<&'u Frame<'u>>,
        field: Option<&'u Field>,
        step: Step<'u>,
        pieces: &'u [Piece<'u>],
    ) -> Self {
        Self { type_id, up, field, step, pieces, name: OnceCell::new() }
    }

    /// Makes a frame for the same place, whose message consists of `pieces`.
    pub(super) fn of<'p>(&'p self, pieces: &'p [Piece<'p>]) -> Frame<'p> {
        Frame { type_id: self.type_id, up: self.up, field: self.field, step: self.step, pieces, name: OnceCell::new() }
    }

    /// Appends the path to `text`; a key of more than `longest` bytes is written as `[…]`.
    pub(super) fn path(&self, longest: usize, text: &mut Vec<u8>) {
        let begin = text.len();
        self.path_from(begin, longest, text);
    }

    fn path_from(&self, begin: usize, longest: usize, text: &mut Vec<u8>) {
        if let Some(up) = self.up {
            up.path_from(begin, longest, text);
        }
        let Some(field) = self.field else { return };
        if text.len() > begin {
            text.push(b'.');
        }
        text.extend_from_slice(field.name.as_bytes());
        // Writing to memory cannot fail.
        let _ = match self.step {
            Step::Alone => Ok(()),
            Step::Index(at) => write!(text, "[{at}]"),
            Step::Key(_, Key::Text(key)) if key.len() > longest => write!(text, "[…]"),
            Step::Key(kind, key) => write!(text, "[{}]", label(kind, key)),
        };
    }

    /// Passes the names of the enclosing messages to `found`, the outermost first.
    pub(super) fn names(&self, schema: &Schema, depth: u32, found: &mut Findings) -> Result<()> {
        let Some(up) = self.up else { return Ok(()) };
        up.names(schema, depth, found)?;
        if up.name.get().is_none() {
            let _ = up.name.set(name_of(schema, up.type_id, up.pieces, depth)?);
        }
        if let Some(Some(name)) = up.name.get() {
            found.name(up.type_id, name);
        }
        Ok(())
    }
}

/// The key of a map entry as written in paths.
fn label(kind: FieldKind, key: Key<'_>) -> String {
    match key {
        Key::Text(text) => key_label(kind, text),
        Key::Number(number) => key_label(kind, &number.to_le_bytes()),
    }
}

/// The name of a map entry, which is its key as text; None when longer than `LONGEST_NAME`.
pub(super) fn called(kind: FieldKind, key: Key<'_>) -> Option<Vec<u8>> {
    match key {
        Key::Text(text) => (text.len() as u64 <= LONGEST_NAME).then(|| text.to_vec()),
        number => Some(label(kind, number).into_bytes()),
    }
}

/// The name of the message of type `id` that consists of `pieces`; None if it has none or it is longer than
/// `LONGEST_NAME`.
fn name_of(schema: &Schema, id: TypeId, pieces: &[Piece<'_>], depth: u32) -> Result<Option<Vec<u8>>> {
    let Some(message) = schema.message(id) else { return Ok(None) };
    let Some(field) = message.key() else { return Ok(None) };
    if message.map_entry {
        return Ok(called(field.kind, key_of(field, pieces, depth)?));
    }
    let mut name = None;
    for piece in pieces {
        let mut fields = Fields::new(piece.bytes, piece.base, depth);
        while let Some(found) = fields.next_but(field.number)? {
            if found.header.number == field.number && found.header.wire == field.kind.wire() {
                name = Some(found.content);
            }
        }
    }
    Ok(name.filter(|name| name.len() as u64 <= LONGEST_NAME).map(<[u8]>::to_vec))
}

/// The key of the map entry that consists of `pieces`: the last key on the wire, or else the default.
pub(super) fn key_of<'b>(field: &Field, pieces: &[Piece<'b>], depth: u32) -> Result<Key<'b>> {
    let mut key = key::default_key(field.kind);
    for piece in pieces {
        let mut fields = Fields::new(piece.bytes, piece.base, depth);
        while let Some(found) = fields.next_but(field.number)? {
            if found.header.number == field.number {
                key = key::of_field(field.kind, &found).unwrap_or(key);
            }
        }
    }
    Ok(key)
}
