//! Elements of repeated fields that meet conditions on their content.

use crate::document::{Document, Message, Part, Wanted};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::header::Wire;
use crate::key::{self, Key};
use crate::path::{Condition, Values};
use crate::schema::{Field, FieldKind, TypeId};

/// A condition whose names are resolved for elements of one type.
struct Resolved<'c> {
    steps: Vec<Step>,
    values: &'c Values,
}

/// One field on the way to the values that a condition compares.
#[derive(Clone, Copy)]
struct Step {
    number: u32,
    /// The type of the field's messages; None when unknown.
    type_id: Option<TypeId>,
    /// True for a field with at most one value, whose occurrences are merged.
    singular: bool,
}

impl Document<'_> {
    /// The first element of field `number` of `message` that meets all `conditions`; None if there is none.
    pub fn element_where(
        &self,
        message: &Message,
        number: u32,
        field: Option<&Field>,
        conditions: &[Condition],
    ) -> Result<Option<Entry>> {
        let type_id = field.filter(|field| field.kind == FieldKind::Message).map(|field| field.target);
        let resolved = conditions.iter().map(|condition| self.resolved(type_id, condition));
        let resolved = resolved.collect::<Result<Vec<_>>>()?;
        let wanted = self.hint(number, type_id, &resolved);
        let mut first = None;
        for part in &message.parts {
            self.candidates(part, &wanted, &mut |_, entry| {
                if entry.wire == Wire::Len && self.meets(&Part::of(entry, type_id), type_id, &resolved)? {
                    first = Some(*entry);
                }
                Ok(first.is_none())
            })?;
            if first.is_some() {
                break;
            }
        }
        Ok(first)
    }

    /// The elements to examine: if `conditions` contain the key, those that the index may have for the key; else all.
    fn hint<'c>(&self, number: u32, type_id: Option<TypeId>, conditions: &[Resolved<'c>]) -> Wanted<'c> {
        let known = type_id.and_then(|id| self.schema.message(id)).and_then(|message| message.key());
        let by_key = conditions.iter().find_map(|condition| match (condition.steps.as_slice(), condition.values) {
            ([step], Values::Has(value)) if Some(step.number) == known.map(|key| key.number) => Some(value.as_slice()),
            _ => None,
        });
        let key = by_key.and(known).map_or(0, |key| key.number); // no field has the number 0
        Wanted { number, type_id, key, kind: FieldKind::String, value: Key::Text(by_key.unwrap_or_default()) }
    }

    /// Resolves `condition` for elements of `type_id`; fails with a `NotFound` error for an unknown name or a field
    /// without text.
    fn resolved<'c>(&self, type_id: Option<TypeId>, condition: &'c Condition) -> Result<Resolved<'c>> {
        let mut steps: Vec<Step> = Vec::with_capacity(condition.field.len());
        let mut type_id = type_id;
        for (i, name) in condition.field.iter().enumerate() {
            let (number, field) = self.field_of(&Message { type_id, parts: Vec::new() }, name)?;
            let is_last = i + 1 == condition.field.len();
            if let Some(field) = field.filter(|field| is_last != key::is_text(field.kind) || field.kind.is_packable()) {
                let due = if is_last {
                    "a condition such as name=\"x\" compares text, but"
                } else {
                    "a condition such as name=\"x\" can only go through messages:"
                };
                let text = format!("{due} {name} is {}", field.kind.name());
                return Err(WireError::new(Kind::NotFound, text));
            }
            type_id = field.filter(|field| field.kind.is_message()).map(|field| field.target);
            steps.push(Step { number, type_id, singular: field.is_some_and(|field| !field.repeated) });
        }
        Ok(Resolved { steps, values: &condition.values })
    }

    fn meets(&self, element: &Part, type_id: Option<TypeId>, conditions: &[Resolved<'_>]) -> Result<bool> {
        let element = Message { type_id, parts: vec![element.clone()] };
        for condition in conditions {
            let met = match condition.values {
                Values::Has(wanted) => {
                    let mut has = false;
                    self.each_value(&element, &condition.steps, &mut |entry| {
                        has = self.is_text(entry, wanted)?;
                        Ok(!has)
                    })?;
                    has
                }
                Values::Are(wanted) => {
                    let mut missing: Vec<&Vec<u8>> = wanted.iter().collect();
                    let only = self.each_value(&element, &condition.steps, &mut |entry| {
                        let mut known = false;
                        for value in wanted {
                            if self.is_text(entry, value)? {
                                known = true;
                                missing.retain(|other| *other != value);
                            }
                        }
                        Ok(known)
                    })?;
                    only && missing.is_empty()
                }
            };
            if !met {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Calls `visit` with each value to which `steps` lead, or with None for the default of a singular field. Stops and
    /// returns false when `visit` returns false.
    fn each_value(
        &self,
        message: &Message,
        steps: &[Step],
        visit: &mut dyn FnMut(Option<&Entry>) -> Result<bool>,
    ) -> Result<bool> {
        let Some((step, below)) = steps.split_first() else { return Ok(true) };
        if step.singular {
            let found = self.singular(message, step.number)?;
            if below.is_empty() {
                return visit(found.last());
            }
            let parts = found.iter().map(|entry| Part::of(entry, step.type_id)).collect();
            return self.each_value(&Message { type_id: step.type_id, parts }, below, visit);
        }
        let mut go_on = true;
        for part in &message.parts {
            self.visit(part, step.number, 0, &mut |_, entry| {
                go_on = match (below.is_empty(), entry.wire) {
                    (true, Wire::Len) => visit(Some(entry))?,
                    (false, Wire::Len | Wire::Group) => {
                        let parts = vec![Part::of(entry, step.type_id)];
                        self.each_value(&Message { type_id: step.type_id, parts }, below, visit)?
                    }
                    _ => true,
                };
                Ok(go_on)
            })?;
            if !go_on {
                break;
            }
        }
        Ok(go_on)
    }

    /// True if the content of `entry` is `text`; None means empty content.
    fn is_text(&self, entry: Option<&Entry>, text: &[u8]) -> Result<bool> {
        let Some(entry) = entry else { return Ok(text.is_empty()) };
        // Content is only read if it has the right length.
        Ok(entry.content_len() == text.len() as u64 && *self.read_span(&entry.content_span())? == *text)
    }
}
