//! Merging the chunks of a chunked proto, as TensorFlow's Merger does, into the image of the whole.
//!
//! Where that Merger would abort the process the file is refused here, with the number of the chunk and its place.
//! Values of maps that are scalars, text or bytes are taken, and elements of repeated strings or bytes, which it never did.

use super::order::sorted;
use super::records::{Chunked, FILE};
use super::tree::{Body, Item, Items, Tree};
use super::values::{OwnedKey, parse};
use crate::error::{Kind, Result, WireError};
use crate::header::{self, Wire};
use crate::key;
use crate::limits::Limits;
use crate::metadata::{ChunkedMessage, MapKey, Tag};
use crate::ondemand::OnDemand;
use crate::rope::{IMAGE, Piece, Rope};
use crate::schema::{Field, FieldKind, Schema, TypeId};
use crate::source::Source;
use crate::varint;

/// The longest text that a number is given as.
const LONGEST_NUMBER: u64 = 4096;

/// The merged proto of type `root`, as a rope over the file and the side object. `records` has the bytes of
/// [`Chunked::records`].
pub fn image(
    chunked: &Chunked,
    records: &dyn Source,
    schema: &Schema,
    root: Option<TypeId>,
    limits: &Limits,
) -> Result<Rope> {
    let merger = Merger { chunked, bytes: OnDemand::new(schema, records, *limits) };
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
}

impl Merger<'_> {
    /// Merges `message` into `tree`, which stands at `path`.
    fn apply(&self, tree: &mut Tree, message: &ChunkedMessage, path: &str, depth: u32) -> Result<()> {
        if depth > self.bytes.limits.depth {
            let text = format!("chunks are nested more than {} deep", self.bytes.limits.depth);
            return Err(WireError::new(Kind::Limit, text).on(path));
        }
        if let Some(chunk) = message.chunk {
            tree.merge(self.chunk(chunk, path)?, &self.bytes).map_err(|error| error.on(named(path)))?;
        }
        for field in sorted(&message.fields).map_err(|error| error.on(path))? {
            if field.tags.is_empty() && field.message == ChunkedMessage::default() {
                return Err(inconsistent(path, "a part of the message itself has no chunk".to_owned()));
            }
            self.place(tree, &field.tags, &field.message, path, depth + 1)?;
        }
        Ok(())
    }

    /// Merges the records of a split proto of the type `declared` into `tree`, one after the other.
    fn in_order(&self, tree: &mut Tree, declared: &str) -> Result<()> {
        let known = tree.type_id.and_then(|id| self.bytes.schema.message(id)).map(|message| message.name.as_str());
        if known.is_some_and(|known| known != declared) {
            return Err(inconsistent("", format!("the file holds a {declared}: it cannot be opened as another type")));
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
            self.place(tree, &field.tags, &field.message, "", 0)?;
        }
        Ok(())
    }

    fn chunk(&self, number: u64, path: &str) -> Result<std::ops::Range<u64>> {
        self.chunked.chunk(number).ok_or_else(|| {
            let count = self.chunked.len();
            inconsistent(path, format!("chunk {number} belongs here, but there are only {count} chunks"))
        })
    }

    /// Merges `message` at the place `tags` below `tree`.
    fn place(&self, tree: &mut Tree, tags: &[Tag], message: &ChunkedMessage, path: &str, depth: u32) -> Result<()> {
        let Some((first, rest)) = tags.split_first() else {
            return self.apply(tree, message, path, depth);
        };
        let Tag::Field(number) = first else {
            return Err(inconsistent(path, "an index or a map key stands where a field is due".to_owned()));
        };
        let Some(field) = self.bytes.schema.field(tree.type_id, *number) else {
            let known = tree.type_id.and_then(|id| self.bytes.schema.message(id));
            let text = known.map_or_else(
                || {
                    format!(
                        "a chunk belongs into field {number} of a message whose type is not known; name the root's type"
                    )
                },
                |known| format!("{} has no field {number}", known.name),
            );
            return Err(inconsistent(path, text));
        };
        let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        match rest.split_first() {
            Some((Tag::Key(key), rest)) if self.is_map(field) => {
                self.map_value(tree, field, key, rest, message, &path, depth)
            }
            _ if self.is_map(field) => Err(inconsistent(&path, "it is a map, and no key tells which value".to_owned())),
            Some((Tag::Index(index), rest)) if field.repeated && !field.kind.is_message() => {
                self.listed(tree, field, Some(*index), rest, message, &path)
            }
            None if field.repeated && !field.kind.is_message() => self.listed(tree, field, None, &[], message, &path),
            Some((Tag::Index(index), rest)) if field.repeated => {
                let path = format!("{path}[{index}]");
                let child = self.element(tree, field, *index, &path)?;
                self.place(child, rest, message, &path, depth + 1)
            }
            _ if field.repeated => {
                Err(inconsistent(&path, "it is repeated, and no index tells which element".to_owned()))
            }
            Some((Tag::Index(_) | Tag::Key(_), _)) => {
                Err(inconsistent(&path, "it is neither repeated nor a map, but an index or key follows".to_owned()))
            }
            _ => self.singular(tree, field, rest, message, &path, depth),
        }
    }

    fn is_map(&self, field: &Field) -> bool {
        field.kind == FieldKind::Message
            && self.bytes.schema.message(field.target).is_some_and(|message| message.map_entry)
    }

    fn singular(
        &self,
        tree: &mut Tree,
        field: &Field,
        rest: &[Tag],
        message: &ChunkedMessage,
        path: &str,
        depth: u32,
    ) -> Result<()> {
        if field.kind.is_message() {
            let child = self.child(tree, field).map_err(|error| error.on(path))?;
            let child = child.ok_or_else(|| inconsistent(path, "it cannot be merged into".to_owned()))?;
            return self.place(child, rest, message, path, depth + 1);
        }
        let body = self.leaf(field, leaf_chunk(field, rest, message, path)?, path)?;
        let type_id = tree.type_id;
        let items = tree.items(&self.bytes)?;
        let rival = self.rival(items, type_id, field);
        items.drop_all(field.number);
        place_alone(items, Item { number: field.number, entry: None, body }, rival);
        Ok(())
    }

    /// Element `index` of the repeated strings or bytes `field`: one that is there, or the next; the next without index.
    fn listed(
        &self,
        tree: &mut Tree,
        field: &Field,
        index: Option<u64>,
        rest: &[Tag],
        message: &ChunkedMessage,
        path: &str,
    ) -> Result<()> {
        let path = index.map_or_else(|| path.to_owned(), |index| format!("{path}[{index}]"));
        if !key::is_text(field.kind) {
            let text = format!(
                "it is a repeated {}: chunks hold messages, strings or bytes of a repeated field, but no numbers",
                field.kind.name()
            );
            return Err(inconsistent(&path, text));
        }
        let body = self.leaf(field, leaf_chunk(field, rest, message, &path)?, &path)?;
        let items = tree.items(&self.bytes)?;
        let count = items.of(field.number).len();
        match index.unwrap_or(count as u64) {
            index if index > count as u64 => return Err(gap(&path, count)),
            index if index == count as u64 => {
                items.push(Item { number: field.number, entry: None, body });
            }
            index => {
                let at = usize::try_from(index).ok().and_then(|index| items.of(field.number).get(index).copied());
                if let Some(item) = at.and_then(|at| items.list.get_mut(at)) {
                    item.body = body;
                }
            }
        }
        Ok(())
    }

    /// What chunk `chunk` says the scalar, string or bytes `field` is.
    fn leaf(&self, field: &Field, chunk: u64, path: &str) -> Result<Body> {
        let span = self.chunk(chunk, path)?;
        if key::is_text(field.kind) {
            return Ok(Body::Bytes(span));
        }
        if span.end - span.start > LONGEST_NUMBER {
            return Err(inconsistent(path, format!("chunk {chunk} is too long for a {}", field.kind.name())));
        }
        let text = self.bytes.read_span(&span)?;
        let text = std::str::from_utf8(&text).ok();
        let value = text.and_then(|text| parse(field, text, self.bytes.schema));
        let Some((wire, bits)) = value else {
            let text = format!("chunk {chunk} should hold a {} as text, and does not", field.kind.name());
            return Err(inconsistent(path, text));
        };
        let mut literal = Vec::new();
        varint::write(header::tag(field.number, wire), &mut literal);
        match wire {
            Wire::Fixed32 => literal.extend_from_slice(&(bits as u32).to_le_bytes()),
            Wire::Fixed64 => literal.extend_from_slice(&bits.to_le_bytes()),
            _ => varint::write(bits, &mut literal),
        }
        Ok(Body::Literal(literal))
    }

    /// The singular message `field` of `tree`: what is there of it united, or an empty one.
    fn child<'t>(&self, tree: &'t mut Tree, field: &Field) -> Result<Option<&'t mut Tree>> {
        let type_id = tree.type_id;
        let items = tree.items(&self.bytes)?;
        let rival = self.rival(items, type_id, field);
        // Where another member of its oneof came later, what stood before is void.
        let active: Vec<usize> = items.of(field.number).iter().copied().filter(|at| Some(*at) > rival).collect();
        if !active.is_empty() {
            return items.unite(field.number, &active, field.target, &self.bytes);
        }
        items.drop_all(field.number);
        let at = place_alone(items, Item { number: field.number, entry: None, body: empty(field.target) }, rival);
        items.message(at, field.target, &self.bytes)
    }

    /// The last item of another member of the oneof of `field`.
    fn rival(&self, items: &Items, type_id: Option<TypeId>, field: &Field) -> Option<usize> {
        let known = type_id.and_then(|id| self.bytes.schema.message(id)).filter(|_| field.oneof > 0)?;
        let members = known.fields().iter().filter(|other| other.oneof == field.oneof && other.number != field.number);
        members.flat_map(|other| items.of(other.number)).copied().max()
    }

    /// Element `index` of the repeated message `field`; the next one is added.
    fn element<'t>(&self, tree: &'t mut Tree, field: &Field, index: u64, path: &str) -> Result<&'t mut Tree> {
        let items = tree.items(&self.bytes)?;
        let count = items.of(field.number).len();
        let at = match usize::try_from(index).ok().filter(|index| *index <= count) {
            Some(index) if index < count => items.of(field.number).get(index).copied(),
            Some(_) => Some(items.push(Item { number: field.number, entry: None, body: empty(field.target) })),
            None => None,
        };
        let Some(at) = at else { return Err(gap(path, count)) };
        let element = items.message(at, field.target, &self.bytes).map_err(|error| error.on(path))?;
        element.ok_or_else(|| gap(path, count))
    }

    /// Merges `message` into the value under `key`, at the place `rest` below it.
    #[allow(clippy::too_many_arguments, reason = "a step of a recursion")]
    fn map_value(
        &self,
        tree: &mut Tree,
        field: &Field,
        key: &MapKey,
        rest: &[Tag],
        message: &ChunkedMessage,
        path: &str,
        depth: u32,
    ) -> Result<()> {
        let entry_type = self.bytes.schema.message(field.target);
        let fields = entry_type.and_then(|entry| Some((entry.field(1)?, entry.field(2)?)));
        let (key_field, value_field) =
            fields.ok_or_else(|| inconsistent(path, "its entries have no key or value".to_owned()))?;
        let key = OwnedKey::of(key_field.kind, key)
            .ok_or_else(|| inconsistent(path, format!("the key does not fit a map of {}", key_field.kind.name())))?;
        let path = format!("{path}[{}]", key.label(key_field.kind));
        let at = match self.find(tree, field, &key)? {
            Some(at) => at,
            None => self.add_entry(tree, field, key_field, &key)?,
        };
        let items = tree.items(&self.bytes)?;
        let entry = items.message(at, field.target, &self.bytes).map_err(|error| error.on(&path))?;
        let entry = entry.ok_or_else(|| inconsistent(&path, "its entry cannot be merged into".to_owned()))?;
        self.singular(entry, value_field, rest, message, &path, depth + 1)
    }

    /// The last entry of the map `field` with this key.
    fn find(&self, tree: &mut Tree, field: &Field, wanted: &OwnedKey) -> Result<Option<usize>> {
        let items = tree.items(&self.bytes)?;
        for at in items.of(field.number).to_vec().into_iter().rev() {
            let Some(item) = items.list.get_mut(at) else { continue };
            let found = match (&mut item.body, item.entry) {
                (Body::Message(entry), _) => entry.key(&self.bytes)?,
                (_, Some(entry)) => Tree::of([entry], field.target, &self.bytes)?.key(&self.bytes)?,
                _ => None,
            };
            if found.as_ref() == Some(wanted) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn add_entry(&self, tree: &mut Tree, field: &Field, key_field: &Field, key: &OwnedKey) -> Result<usize> {
        let mut entry = Tree::new(Some(field.target));
        let body = Body::Literal(key.encode(key_field));
        entry.items(&self.bytes)?.push(Item { number: 1, entry: None, body });
        let body = Body::Message(Box::new(entry));
        Ok(tree.items(&self.bytes)?.push(Item { number: field.number, entry: None, body }))
    }
}

/// The chunk that says what the value of `field` is, which has nothing below it.
fn leaf_chunk(field: &Field, rest: &[Tag], message: &ChunkedMessage, path: &str) -> Result<u64> {
    if !rest.is_empty() || !message.fields.is_empty() {
        return Err(inconsistent(path, format!("it is a {}: nothing can belong below it", field.kind.name())));
    }
    message.chunk.ok_or_else(|| inconsistent(path, "no chunk says what its value is".to_owned()))
}

fn gap(path: &str, count: usize) -> WireError {
    inconsistent(path, format!("the list has {count} elements, so this one would leave a gap"))
}

fn empty(type_id: TypeId) -> Body {
    Body::Message(Box::new(Tree::new(Some(type_id))))
}

/// Puts the only item of its field where field numbers want it, but after a rival of its oneof.
fn place_alone(items: &mut Items, item: Item, rival: Option<usize>) -> usize {
    if rival.is_some() { items.push(item) } else { items.insert(item) }
}

fn inconsistent(path: &str, message: String) -> WireError {
    WireError::new(Kind::Inconsistent, message).on(named(path))
}

fn named(path: &str) -> &str {
    if path.is_empty() { "the root message" } else { path }
}

/// `error`, which names an offset among the records, as one that names the chunk and the offset in it.
fn in_chunk(error: WireError, chunked: &Chunked) -> WireError {
    let Some((at, (number, chunk))) =
        error.offset().filter(|_| error.kind() == Kind::Corrupt).and_then(|at| Some((at, chunked.holding(at)?)))
    else {
        return error;
    };
    let said = error.message();
    let inside = at - chunk.start;
    let text = format!("chunk {number} is no message that could stand here: {said}, {inside} bytes into the chunk");
    let error = inconsistent(error.path().unwrap_or_default(), text);
    match chunked.records.slice(at..at.saturating_add(1)).pieces().next() {
        Some(Piece::Extent { source: FILE, offset, .. }) => error.at(offset),
        _ => error,
    }
}
