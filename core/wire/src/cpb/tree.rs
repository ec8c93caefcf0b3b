//! The tree of a message while chunks are merged into it; parts that do not change stay ranges of the records.

use std::collections::HashMap;
use std::ops::Range;

use super::placing::arranged;
use super::values::OwnedKey;
use crate::entry::{Entry, Stretch};
use crate::error::Result;
use crate::fields::Fields;
use crate::header::{self, Wire};
use crate::key;
use crate::ondemand::OnDemand;
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::{FieldKind, TypeId};

/// A message: serialized parts until a caller first needs its fields, and then items.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) type_id: Option<TypeId>,
    parts: Vec<Part>,
    items: Option<Items>,
}

/// A serialized part of a message.
#[derive(Debug)]
struct Part {
    span: Range<u64>,
    /// The fields of the message; None when they are too many to keep.
    stretches: Option<Vec<Stretch>>,
}

/// The parsed fields of a message, in the order in which they were merged.
#[derive(Debug, Default)]
pub(super) struct Items {
    pub(super) list: Vec<Item>,
    /// The number of items from the part that was merged first.
    base: usize,
    /// The positions of each field's items in `list`.
    places: HashMap<u32, Vec<usize>>,
    /// For each map that was searched, the position of the last entry with each key.
    keys: HashMap<u32, HashMap<OwnedKey, usize>>,
}

/// One field of the tree.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) number: u32,
    /// The field in the records; None for a new field.
    pub(super) entry: Option<Entry>,
    pub(super) body: Body,
}

/// The state of a field.
#[derive(Debug)]
pub(super) enum Body {
    /// An unchanged field, which is written as it is in the records.
    Kept,
    /// A removed field, which is not written.
    Dropped,
    /// A message into which others were merged.
    Message(Box<Tree>),
    /// A range of text or bytes in the records.
    Bytes(Range<u64>),
    /// A serialized field with its tag.
    Literal(Vec<u8>),
}

impl Tree {
    pub(super) fn new(type_id: Option<TypeId>) -> Self {
        Self { type_id, ..Self::default() }
    }

    /// Makes a message of type `type_id` by merging the contents of `entries`.
    pub(super) fn of(entries: impl IntoIterator<Item = Entry>, type_id: TypeId, bytes: &OnDemand<'_>) -> Result<Self> {
        let mut tree = Self::new(Some(type_id));
        for entry in entries {
            tree.merge(entry.content_span(), bytes)?;
        }
        Ok(tree)
    }

    /// The key of this map entry; None when the type or its key field is unknown.
    pub(super) fn key(&mut self, bytes: &OnDemand<'_>) -> Result<Option<OwnedKey>> {
        let known = self.type_id.and_then(|id| bytes.schema.message(id));
        let Some(field) = known.and_then(|known| known.field(1)) else { return Ok(None) };
        let items = self.items(bytes)?;
        let last = items.of(1).last().and_then(|at| items.list.get(*at));
        let read;
        let (serialized, start): (&[u8], u64) = match last {
            Some(Item { body: Body::Literal(literal), .. }) => (literal, 0),
            Some(Item { entry: Some(run), .. }) => {
                let entry = bytes.of_run(run, run.count - 1)?;
                read = bytes.read_span(&entry.span())?;
                (&read, entry.start)
            }
            _ => return Ok(Some(key::default_key(field.kind).into())),
        };
        let found = Fields::new(serialized, start, bytes.limits.depth).next_field()?;
        let key = found.and_then(|found| key::of_field(field.kind, &found));
        Ok(Some(key.unwrap_or(key::default_key(field.kind)).into()))
    }

    /// Merges the serialized message at `span`, whose fields come after earlier fields of the same numbers. `span` is
    /// checked first, because a truncated field would absorb the bytes after it.
    pub(super) fn merge(&mut self, span: Range<u64>, bytes: &OnDemand<'_>) -> Result<()> {
        match &mut self.items {
            _ if span.is_empty() => {}
            None => {
                let stretches = bytes.stretches(&span, self.type_id)?;
                self.parts.push(Part { span, stretches });
            }
            Some(items) => {
                let first = items.list.is_empty();
                items.append(bytes.scan(span, self.type_id)?);
                items.base = if first { items.list.len() } else { items.base };
            }
        }
        Ok(())
    }

    /// The fields; the first call parses them from the serialized parts.
    pub(super) fn items(&mut self, bytes: &OnDemand<'_>) -> Result<&mut Items> {
        if self.items.is_none() {
            let mut items = Items::default();
            let mut parts = std::mem::take(&mut self.parts).into_iter();
            if let Some(first) = parts.next() {
                items.append(bytes.scan(first.span, self.type_id)?);
            }
            items.base = items.list.len();
            for part in parts {
                items.append(bytes.scan(part.span, self.type_id)?);
            }
            self.items = Some(items);
        }
        Ok(self.items.get_or_insert_default())
    }

    /// The serialized message as a rope over the records.
    pub(super) fn rope(&self, bytes: &OnDemand<'_>) -> Result<Rope> {
        let mut out = RopeBuilder::new(&bytes.limits);
        for span in self.spans(bytes) {
            out.extent(IMAGE, span.start, span.end - span.start);
            out.check()?;
        }
        for item in self.items.iter().flat_map(|items| self.ordered(items, bytes)) {
            self.write(item, bytes, &mut out)?;
            out.check()?;
        }
        Ok(out.finish())
    }

    /// The serialized parts, with each field at the place where its number belongs.
    fn spans(&self, bytes: &OnDemand<'_>) -> Vec<Range<u64>> {
        let whole = || self.parts.iter().map(|part| part.span.clone()).collect();
        if self.parts.len() < 2 {
            return whole();
        }
        let known = self.type_id.and_then(|id| bytes.schema.message(id));
        let stretches: Option<Vec<&[Stretch]>> = self.parts.iter().map(|part| part.stretches.as_deref()).collect();
        let (Some(known), Some(stretches)) = (known, stretches) else { return whole() };
        let base = stretches.first().map_or(0, |first| first.len());
        let stretches: Vec<&Stretch> = stretches.into_iter().flatten().collect();
        let numbers: Vec<u32> = stretches.iter().map(|stretch| stretch.number).collect();
        let Some(order) = arranged(&numbers, base, known) else { return whole() };
        order.into_iter().filter_map(|at| stretches.get(at)).map(|stretch| stretch.span.clone()).collect()
    }

    /// The items in the order in which they are written.
    fn ordered<'i>(&self, items: &'i Items, bytes: &OnDemand<'_>) -> Vec<&'i Item> {
        let dropped = |item: &&Item| !matches!(item.body, Body::Dropped);
        let base = items.list.iter().take(items.base).filter(dropped).count();
        let list: Vec<&Item> = items.list.iter().filter(dropped).collect();
        let numbers: Vec<u32> = list.iter().map(|item| item.number).collect();
        let known = self.type_id.and_then(|id| bytes.schema.message(id));
        match known.and_then(|known| arranged(&numbers, base, known)) {
            Some(order) => order.into_iter().filter_map(|at| list.get(at).copied()).collect(),
            None => list,
        }
    }

    fn write(&self, item: &Item, bytes: &OnDemand<'_>, out: &mut RopeBuilder) -> Result<()> {
        let content = match &item.body {
            Body::Dropped => return Ok(()),
            Body::Literal(literal) => {
                out.literal(literal);
                return Ok(());
            }
            Body::Kept => {
                if let Some(entry) = &item.entry {
                    out.extent(IMAGE, entry.start, entry.end - entry.start);
                }
                return Ok(());
            }
            Body::Message(tree) => tree.rope(bytes)?,
            Body::Bytes(span) => Rope::extent(IMAGE, span.start, span.end - span.start),
        };
        let group = bytes.schema.field(self.type_id, item.number).is_some_and(|field| field.kind == FieldKind::Group);
        if group {
            out.varint(header::tag(item.number, Wire::Group));
            out.rope(&content);
            out.varint(header::tag(item.number, Wire::EndGroup));
        } else {
            out.varint(header::tag(item.number, Wire::Len));
            out.varint(content.len());
            out.rope(&content);
        }
        Ok(())
    }
}

impl Items {
    fn append(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.push(Item { number: entry.number, entry: Some(entry), body: Body::Kept });
        }
    }

    /// Appends `item` and returns its position.
    pub(super) fn push(&mut self, item: Item) -> usize {
        self.keys.remove(&item.number);
        self.push_known(item)
    }

    /// Appends an entry with this `key` to its map and returns the entry's position.
    pub(super) fn push_entry(&mut self, item: Item, key: OwnedKey) -> usize {
        let number = item.number;
        let at = self.push_known(item);
        if let Some(keys) = self.keys.get_mut(&number) {
            keys.insert(key, at);
        }
        at
    }

    fn push_known(&mut self, item: Item) -> usize {
        let at = self.list.len();
        self.places.entry(item.number).or_default().push(at);
        self.list.push(item);
        at
    }

    /// The positions of the items of field `number`, in order.
    pub(super) fn of(&self, number: u32) -> &[usize] {
        self.places.get(&number).map_or(&[], Vec::as_slice)
    }

    /// The position of the last entry with this key in map `number`, whose entries have the type `type_id`.
    pub(super) fn entry(
        &mut self,
        number: u32,
        key: &OwnedKey,
        type_id: TypeId,
        bytes: &OnDemand<'_>,
    ) -> Result<Option<usize>> {
        if !self.keys.contains_key(&number) {
            let keys = self.keys_of(number, type_id, bytes)?;
            self.keys.insert(number, keys);
        }
        Ok(self.keys.get(&number).and_then(|keys| keys.get(key)).copied())
    }

    fn keys_of(&mut self, number: u32, type_id: TypeId, bytes: &OnDemand<'_>) -> Result<HashMap<OwnedKey, usize>> {
        let mut keys = HashMap::new();
        for &at in self.places.get(&number).into_iter().flatten() {
            let Some(item) = self.list.get_mut(at) else { continue };
            let key = match (&mut item.body, item.entry) {
                (Body::Message(entry), _) => entry.key(bytes)?,
                (_, Some(entry)) => Tree::of([entry], type_id, bytes)?.key(bytes)?,
                _ => None,
            };
            keys.extend(key.map(|key| (key, at)));
        }
        Ok(keys)
    }

    /// Marks all items of field `number` as dropped.
    pub(super) fn drop_all(&mut self, number: u32) {
        self.keys.remove(&number);
        for at in self.places.remove(&number).unwrap_or_default() {
            if let Some(item) = self.list.get_mut(at) {
                item.body = Body::Dropped;
            }
        }
    }

    /// The message at position `at` as a tree; the first call makes the tree from the item's entry.
    pub(super) fn message(&mut self, at: usize, type_id: TypeId, bytes: &OnDemand<'_>) -> Result<Option<&mut Tree>> {
        let Some(item) = self.list.get_mut(at) else { return Ok(None) };
        if !matches!(item.body, Body::Message(_)) {
            item.body = Body::Message(Box::new(Tree::of(item.entry, type_id, bytes)?));
        }
        Ok(match &mut item.body {
            Body::Message(tree) => Some(tree),
            _ => None,
        })
    }

    /// Merges the items at `places` into one message, which is at the last of these positions.
    pub(super) fn unite(
        &mut self,
        number: u32,
        places: &[usize],
        type_id: TypeId,
        bytes: &OnDemand<'_>,
    ) -> Result<Option<&mut Tree>> {
        let Some((&last, before)) = places.split_last() else { return Ok(None) };
        if !before.is_empty() {
            let entries = places.iter().filter_map(|at| self.list.get(*at)?.entry);
            let tree = Tree::of(entries, type_id, bytes)?;
            for &at in places {
                if let Some(item) = self.list.get_mut(at) {
                    item.body = Body::Dropped;
                }
            }
            if let Some(item) = self.list.get_mut(last) {
                item.body = Body::Message(Box::new(tree));
            }
            self.places.insert(number, vec![last]);
        }
        self.message(last, type_id, bytes)
    }
}
