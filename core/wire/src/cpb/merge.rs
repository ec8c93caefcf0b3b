//! Merging the chunks of a chunked proto into the image of the whole proto, as TensorFlow's Merger does.
//!
//! Files that make that Merger abort the process are rejected with an error that names the chunk and its place. Unlike
//! the Merger, this module also accepts scalars, text and bytes as values of maps, and elements of repeated strings or
//! bytes.

mod leaves;
mod messages;

use std::cell::Cell;

use super::order::sorted;
use super::records::{Chunked, FILE, check_repeats};
use super::tree::Tree;
use crate::error::{Kind, Result, WireError};
use crate::key;
use crate::limits::Limits;
use crate::metadata::{ChunkedField, ChunkedMessage, Tag};
use crate::ondemand::OnDemand;
use crate::rope::{IMAGE, Piece, Rope};
use crate::schema::{Field, Schema, TypeId};
use crate::source::Source;

/// The merged proto of type `root`, as a rope over the file and the side object. `records` is the source for
/// [`Chunked::records`].
pub fn image(
    chunked: &Chunked,
    records: &dyn Source,
    schema: &Schema,
    root: Option<TypeId>,
    limits: &Limits,
) -> Result<Rope> {
    let merger = Merger { chunked, bytes: OnDemand::new(schema, records, *limits), merged: Cell::new(0) };
    let mut tree = Tree::new(root);
    let done = match &chunked.declared {
        Some(declared) => merger.in_order(&mut tree, declared),
        None => merger.apply(&mut tree, &chunked.metadata.message, "", 0),
    };
    done.map_err(|error| in_chunk(error, chunked))?;
    Ok(tree.rope(&merger.bytes)?.through(IMAGE, &chunked.records))
}

struct Merger<'a> {
    chunked: &'a Chunked,
    bytes: OnDemand<'a>,
    /// The number of bytes of the chunks merged so far.
    merged: Cell<u64>,
}

/// An addition to a tree: `message` belongs at the place to which `tags` lead.
#[derive(Clone, Copy)]
struct Addition<'m> {
    tags: &'m [Tag],
    message: &'m ChunkedMessage,
    depth: u32,
}

impl<'m> Addition<'m> {
    fn of(field: &'m ChunkedField, depth: u32) -> Self {
        Self { tags: &field.tags, message: &field.message, depth }
    }

    /// The same addition with only the remaining `tags`.
    fn from(self, tags: &'m [Tag]) -> Self {
        Self { tags, ..self }
    }

    /// The same addition at a greater depth by one.
    fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

impl Merger<'_> {
    /// Merges `message` into `tree`, the message at `path`.
    fn apply(&self, tree: &mut Tree, message: &ChunkedMessage, path: &str, depth: u32) -> Result<()> {
        if depth > self.bytes.limits.depth {
            let text = format!("chunks are nested more than {} levels deep", self.bytes.limits.depth);
            return Err(WireError::new(Kind::Limit, text).on(path));
        }
        if let Some(chunk) = message.chunk {
            tree.merge(self.chunk(chunk, path)?, &self.bytes).map_err(|error| error.on(named(path)))?;
        }
        for field in sorted(&message.fields).map_err(|error| error.on(path))? {
            if field.tags.is_empty() && field.message == ChunkedMessage::default() {
                return Err(inconsistent(path, "a chunked message has neither a chunk nor chunked fields".to_owned()));
            }
            self.place(tree, Addition::of(field, depth + 1), path)?;
        }
        Ok(())
    }

    /// Merges the records of a split proto of type `declared` into `tree`, in order.
    fn in_order(&self, tree: &mut Tree, declared: &str) -> Result<()> {
        let known = tree.type_id.and_then(|id| self.bytes.schema.message(id)).map(|message| message.name.as_str());
        if known.is_some_and(|known| known != declared) {
            return Err(inconsistent(
                "",
                format!("the file contains a {declared}: it cannot be opened as another type"),
            ));
        }
        for field in &self.chunked.metadata.message.fields {
            let set = match field.tags.as_slice() {
                [Tag::Field(number)] => self.bytes.schema.field(tree.type_id, *number),
                _ => None,
            };
            if let Some(set) = set.filter(|set| set.repeated || !key::is_text(set.kind)) {
                let text = format!("the split proto sets {:?}, which is neither a string nor bytes", set.name);
                return Err(WireError::new(Kind::Unsupported, text));
            }
            self.place(tree, Addition::of(field, 0), "")?;
        }
        Ok(())
    }

    fn chunk(&self, number: u64, path: &str) -> Result<std::ops::Range<u64>> {
        let chunk = self.chunked.chunk(number).ok_or_else(|| {
            let count = self.chunked.len();
            inconsistent(path, format!("the chunked proto refers to chunk {number}, but has only {count} chunks"))
        })?;
        self.merged.set(self.merged.get().saturating_add(chunk.end - chunk.start));
        check_repeats(self.merged.get(), self.chunked.records.len()).map_err(|error| error.on(named(path)))?;
        Ok(chunk)
    }

    /// Merges `added` into `tree`, the message at `path`.
    fn place(&self, tree: &mut Tree, added: Addition<'_>, path: &str) -> Result<()> {
        let Some((first, rest)) = added.tags.split_first() else {
            return self.apply(tree, added.message, path, added.depth);
        };
        let Tag::Field(number) = first else {
            return Err(inconsistent(
                path,
                "the chunk metadata has an index or map key where a field is expected".to_owned(),
            ));
        };
        let Some(field) = self.bytes.schema.field(tree.type_id, *number) else {
            let known = tree.type_id.and_then(|id| self.bytes.schema.message(id));
            let text = known.map_or_else(
                || format!("a chunk belongs to field {number} of a message of unknown type; pass the root's type"),
                |known| format!("{} has no field {number}", known.name),
            );
            return Err(inconsistent(path, text));
        };
        let map = self.bytes.schema.is_map(field);
        let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        match rest.split_first() {
            Some((Tag::Key(key), rest)) if map => {
                let (entry, value, path) = self.map_entry(tree, field, key, &path)?;
                self.singular(entry, value, added.from(rest).below(), &path)
            }
            _ if map => Err(inconsistent(&path, "the field is a map, but the chunk metadata gives no key".to_owned())),
            Some((Tag::Index(index), rest)) if field.repeated && !field.kind.is_message() => {
                self.listed(tree, field, Some(*index), added.from(rest), &path)
            }
            None if field.repeated && !field.kind.is_message() => {
                self.listed(tree, field, None, added.from(rest), &path)
            }
            Some((Tag::Index(index), rest)) if field.repeated => {
                let path = format!("{path}[{index}]");
                let child = self.element(tree, field, *index, &path)?;
                self.place(child, added.from(rest).below(), &path)
            }
            _ if field.repeated => {
                Err(inconsistent(&path, "the field is repeated, but the chunk metadata gives no index".to_owned()))
            }
            Some((Tag::Index(_) | Tag::Key(_), _)) => Err(inconsistent(
                &path,
                "the field is neither repeated nor a map, but the chunk metadata gives an index or key for it"
                    .to_owned(),
            )),
            _ => self.singular(tree, field, added.from(rest), &path),
        }
    }

    /// Merges `added` at the singular `field` of `tree`, or at a place below that field.
    fn singular(&self, tree: &mut Tree, field: &Field, added: Addition<'_>, path: &str) -> Result<()> {
        if !field.kind.is_message() {
            return self.set(tree, field, added, path);
        }
        let child = self.child(tree, field).map_err(|error| error.on(path))?;
        let child =
            child.ok_or_else(|| inconsistent(path, "chunks cannot be merged into a field of this kind".to_owned()))?;
        self.place(child, added.below(), path)
    }
}

/// The error for an index that leaves a gap after a list of `count` elements.
fn gap(path: &str, count: usize) -> WireError {
    inconsistent(path, format!("the chunk metadata skips elements of the list, which has only {count} so far"))
}

fn inconsistent(path: &str, message: String) -> WireError {
    WireError::new(Kind::Inconsistent, message).on(named(path))
}

fn named(path: &str) -> &str {
    if path.is_empty() { "the root message" } else { path }
}

/// Converts the offset in `error` from the records to a chunk's number and an offset in that chunk.
fn in_chunk(error: WireError, chunked: &Chunked) -> WireError {
    let Some((at, (number, chunk))) =
        error.offset().filter(|_| error.kind() == Kind::Corrupt).and_then(|at| Some((at, chunked.holding(at)?)))
    else {
        return error;
    };
    let said = error.message();
    let inside = at - chunk.start;
    let text =
        format!("chunk {number} is not a message of the type needed here: {said}, {inside} bytes into the chunk");
    let error = inconsistent(error.path().unwrap_or_default(), text);
    match chunked.records.slice(at..at.saturating_add(1)).pieces().next() {
        Some(Piece::Extent { source: FILE, offset, .. }) => error.at(offset),
        _ => error,
    }
}
