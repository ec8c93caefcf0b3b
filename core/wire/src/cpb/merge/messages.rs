//! Merging into messages: singular messages, elements of lists, and entries of maps.

use super::super::tree::{Body, Item, Items, Tree};
use super::super::values::OwnedKey;
use super::{Merger, gap, inconsistent};
use crate::error::Result;
use crate::metadata::MapKey;
use crate::schema::{Field, TypeId};

impl Merger<'_> {
    /// The singular message `field` of `tree`, created if missing; several occurrences are first merged into one.
    pub(super) fn child<'t>(&self, tree: &'t mut Tree, field: &Field) -> Result<Option<&'t mut Tree>> {
        let type_id = tree.type_id;
        let items = tree.items(&self.bytes)?;
        let rival = self.rival(items, type_id, field);
        // A later member of the same oneof cancels all earlier occurrences.
        let active: Vec<usize> = items.of(field.number).iter().copied().filter(|at| Some(*at) > rival).collect();
        if !active.is_empty() {
            return items.unite(field.number, &active, field.target, &self.bytes);
        }
        items.drop_all(field.number);
        let at = items.push(Item { number: field.number, entry: None, body: empty(field.target) });
        items.message(at, field.target, &self.bytes)
    }

    /// The position of the last item that is another member of the oneof of `field`; None without such an item.
    pub(super) fn rival(&self, items: &Items, type_id: Option<TypeId>, field: &Field) -> Option<usize> {
        let known = type_id.and_then(|id| self.bytes.schema.message(id)).filter(|_| field.oneof > 0)?;
        let members = known.fields().iter().filter(|other| other.oneof == field.oneof && other.number != field.number);
        members.flat_map(|other| items.of(other.number)).copied().max()
    }

    /// Element `index` of the repeated message `field`, created if it is the next element.
    pub(super) fn element<'t>(
        &self,
        tree: &'t mut Tree,
        field: &Field,
        index: u64,
        path: &str,
    ) -> Result<&'t mut Tree> {
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

    /// The entry with `key` in the map `field`, created if missing; with the field of its value and its path.
    pub(super) fn map_entry<'t>(
        &self,
        tree: &'t mut Tree,
        field: &Field,
        key: &MapKey,
        path: &str,
    ) -> Result<(&'t mut Tree, &Field, String)> {
        let entry_type = self.bytes.schema.message(field.target);
        let fields = entry_type.and_then(|entry| Some((entry.field(1)?, entry.field(2)?)));
        let (key_field, value_field) =
            fields.ok_or_else(|| inconsistent(path, "the map's entries have no key or value".to_owned()))?;
        let key = OwnedKey::of(key_field.kind, key).ok_or_else(|| {
            inconsistent(
                path,
                format!(
                    "the key in the chunk metadata does not fit the key type of the map, {}",
                    key_field.kind.name()
                ),
            )
        })?;
        let path = format!("{path}[{}]", key.label(key_field.kind));
        let at = match tree.items(&self.bytes)?.entry(field.number, &key, field.target, &self.bytes)? {
            Some(at) => at,
            None => self.add_entry(tree, field, key_field, key)?,
        };
        let items = tree.items(&self.bytes)?;
        let entry = items.message(at, field.target, &self.bytes).map_err(|error| error.on(&path))?;
        let entry = entry
            .ok_or_else(|| inconsistent(&path, "chunks cannot be merged into a map entry of this kind".to_owned()))?;
        Ok((entry, value_field, path))
    }

    fn add_entry(&self, tree: &mut Tree, field: &Field, key_field: &Field, key: OwnedKey) -> Result<usize> {
        let mut entry = Tree::new(Some(field.target));
        let body = Body::Literal(key.encode(key_field));
        entry.items(&self.bytes)?.push(Item { number: 1, entry: None, body });
        let body = Body::Message(Box::new(entry));
        Ok(tree.items(&self.bytes)?.push_entry(Item { number: field.number, entry: None, body }, key))
    }
}

fn empty(type_id: TypeId) -> Body {
    Body::Message(Box::new(Tree::new(Some(type_id))))
}
