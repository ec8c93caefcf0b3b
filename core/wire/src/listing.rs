//! The listing of a path's children, in pages.

use std::collections::BTreeMap;

use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::Result;
use crate::header::Wire;
use crate::path::quote;
use crate::resolve::Target;
use crate::schema::{Field, FieldKind, MISFIT, TypeId};

/// Longest text or key in a listing, in bytes.
const SHOWN: u64 = 120;

/// One child of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The step from the parent's path to the child: `name`, `[3]` or `["key"]`. For an extension, it is
    /// `.[full.name]`; the dot distinguishes it from an element.
    pub step: String,
    /// The field's number.
    pub number: u32,
    /// The field's name; None when unknown.
    pub name: Option<String>,
    /// The kind as in a `.proto` file, or `map` for maps; None when unknown.
    pub kind: Option<&'static str>,
    /// The name of the message type; None for other kinds and for unknown types.
    pub type_name: Option<String>,
    /// The number of elements; None for a singular field, and when counting would require decoding.
    pub count: Option<u64>,
    /// The size of the content in bytes; for a repeated field, of all its elements.
    pub size: u64,
    /// True if the child has children.
    pub deeper: bool,
    /// The key of an element, or the value of a small field.
    pub text: Option<String>,
}

impl Document<'_> {
    /// Up to `limit` children of `target` from position `from` on, and the number of all children.
    pub fn children(&self, target: &Target, from: u64, limit: usize) -> Result<(Vec<Child>, u64)> {
        match target {
            Target::Message(message) => self.fields_of(message, from, limit),
            Target::Bytes { kind: None, part: Some(part) } => {
                let message = Message { type_id: None, parts: vec![part.clone()] };
                // Bytes of unknown type may be a message. If they do not parse as a message, they have no children.
                self.fields_of(&message, from, limit).or_else(|_| Ok((Vec::new(), 0)))
            }
            Target::Repeated { owner, number, field } => self.elements_of(owner, *number, field.as_ref(), from, limit),
            _ => Ok((Vec::new(), 0)),
        }
    }

    fn fields_of(&self, message: &Message, from: u64, limit: usize) -> Result<(Vec<Child>, u64)> {
        let found = self.fields_in(message)?;
        let total = found.len() as u64;
        let page = found.into_iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).take(limit);
        let children = page.map(|(number, (count, bytes))| self.field_child(message, number, count, bytes));
        Ok((children.collect::<Result<_>>()?, total))
    }

    /// The fields that are set in `message`, by number: occurrences and bytes of each.
    pub(crate) fn fields_in(&self, message: &Message) -> Result<BTreeMap<u32, (u64, u64)>> {
        let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for part in &message.parts {
            for (number, count, bytes) in self.summary(part)? {
                let sum = found.entry(number).or_default();
                *sum = (sum.0 + count, sum.1 + bytes);
            }
        }
        for number in self.replaced(message, found.keys())? {
            found.remove(&number);
        }
        Ok(found)
    }

    /// Those of `numbers` whose fields are not set in `message`, because a later member of their oneof replaced them.
    fn replaced<'n>(&self, message: &Message, numbers: impl Iterator<Item = &'n u32>) -> Result<Vec<u32>> {
        let mut gone = Vec::new();
        for number in numbers {
            let in_oneof = self.schema.field(message.type_id, *number).is_some_and(|field| field.oneof > 0);
            if in_oneof && self.singular(message, *number)?.is_empty() {
                gone.push(*number);
            }
        }
        Ok(gone)
    }

    /// A summary of each field of `part`: number, occurrences, bytes.
    fn summary(&self, part: &Part) -> Result<Vec<(u32, u64, u64)>> {
        if let Part::Node(id) = part {
            let fields = self.index.node(*id)?.fields();
            return fields.map(|field| field.map(|field| (field.number(), field.count(), field.bytes()))).collect();
        }
        let entries = self.entries(part)?;
        entries.map(|entry| entry.map(|entry| (entry.number, entry.count, entry.end - entry.start))).collect()
    }

    pub(crate) fn field_child(&self, message: &Message, number: u32, count: u64, bytes: u64) -> Result<Child> {
        let field = self.schema.field(message.type_id, number);
        let label = field.map_or_else(|| (number & !MISFIT).to_string(), |field| field.name.clone());
        let repeated = field.map_or(count > 1, |field| field.repeated);
        let step = if label.starts_with('[') { format!(".{label}") } else { label };
        let mut child = self.child(step, number, field);
        child.size = bytes;
        if repeated {
            let packable = field.is_some_and(|field| field.kind.is_packable());
            child.count = if packable { self.count_numbers(message, number, field)? } else { Some(count) };
            child.deeper = !packable;
            return Ok(child);
        }
        let occurrences = self.singular(message, number)?;
        let Some(last) = occurrences.last() else { return Ok(child) };
        let entry = self.of_run(last, last.count - 1)?;
        let merges = field.is_some_and(|field| field.kind.is_message());
        child.size = if merges { occurrences.iter().map(Entry::content_len).sum() } else { entry.content_len() };
        child.deeper = field.map_or(entry.wire == Wire::Group, |field| field.kind.is_message());
        if !child.deeper {
            child.text = self.preview(&entry, field)?;
        }
        Ok(child)
    }

    fn child(&self, step: String, number: u32, field: Option<&Field>) -> Child {
        let message = field.filter(|field| field.kind.is_message()).and_then(|field| self.schema.message(field.target));
        let map = field.is_some_and(|field| self.schema.is_map(field));
        Child {
            step,
            number: number & !MISFIT,
            name: field.map(|field| field.name.clone()),
            kind: field.map(|field| if map { "map" } else { field.kind.name() }),
            type_name: message.filter(|_| !map).map(|message| message.name.clone()),
            count: None,
            size: 0,
            deeper: false,
            text: None,
        }
    }

    /// The number of values in a field of numbers; None when packed values have no fixed width.
    fn count_numbers(&self, message: &Message, number: u32, field: Option<&Field>) -> Result<Option<u64>> {
        let width = match field.map(|field| field.kind.wire()) {
            Some(Wire::Fixed32) => 4,
            Some(Wire::Fixed64) => 8,
            _ => 0,
        };
        let mut total = Some(0);
        for part in &message.parts {
            self.visit(part, number, 0, &mut |_, entry| {
                let packed = entry.wire == Wire::Len;
                let count = if packed { entry.content_len().checked_div(width) } else { Some(entry.count) };
                total = total.zip(count).map(|(total, count)| total + count);
                Ok(total.is_some())
            })?;
        }
        Ok(total)
    }

    fn elements_of(
        &self,
        owner: &Message,
        number: u32,
        field: Option<&Field>,
        from: u64,
        limit: usize,
    ) -> Result<(Vec<Child>, u64)> {
        let total = self.total(owner, number)?;
        if field.is_some_and(|field| field.kind.is_packable()) {
            return Ok((Vec::new(), 0));
        }
        let mut children = Vec::new();
        let mut before = 0u64;
        for part in &owner.parts {
            let skip = from.saturating_sub(before);
            self.visit(part, number, skip, &mut |at, entry| {
                for i in 0..entry.count {
                    if at + i >= skip && children.len() < limit {
                        let single = self.of_run(entry, i)?;
                        children.push(self.element_child(&single, before + at + i, field)?);
                    }
                }
                Ok(children.len() < limit)
            })?;
            before += self.count(part, number)?;
        }
        Ok((children, total))
    }

    pub(crate) fn element_child(&self, entry: &Entry, ordinal: u64, field: Option<&Field>) -> Result<Child> {
        let mut child = self.child(format!("[{ordinal}]"), entry.number, field);
        child.size = entry.content_len();
        let Some(field) = field.filter(|field| field.kind == FieldKind::Message) else {
            child.deeper = entry.wire == Wire::Group;
            child.text = self.preview(entry, field)?;
            return Ok(child);
        };
        child.deeper = true;
        if !self.schema.is_map(field) {
            let key = self.key_text(entry, field.target, SHOWN)?;
            child.text = key.map(|(kind, bytes)| key_label(kind, &bytes));
            return Ok(child);
        }
        child.step = format!("[{}]", self.entry_key(entry, field.target)?);
        let value = self.schema.field(Some(field.target), 2);
        let message = value.filter(|value| value.kind.is_message()).and_then(|value| self.schema.message(value.target));
        child.kind = value.map(|value| value.kind.name());
        child.type_name = message.map(|message| message.name.clone());
        child.deeper = message.is_some();
        let entry_message = Message { type_id: Some(field.target), parts: vec![Part::of(entry, Some(field.target))] };
        if let Some(found) = self.singular(&entry_message, 2)?.last() {
            child.size = found.content_len();
            if message.is_none() {
                child.text = self.preview(found, value)?;
            }
        }
        Ok(child)
    }

    /// A small scalar or text in a readable form.
    fn preview(&self, entry: &Entry, field: Option<&Field>) -> Result<Option<String>> {
        if entry.wire == Wire::Len {
            let text = field.is_some_and(|field| field.kind == FieldKind::String) && entry.content_len() <= SHOWN;
            return if text { Ok(Some(quote(&self.read_span(&entry.content_span())?))) } else { Ok(None) };
        }
        Ok(match self.merged(std::slice::from_ref(entry), field)? {
            Some(Target::Scalar { field, wire, raw }) => Some(self.text(field.as_ref(), wire, raw)),
            _ => None,
        })
    }

    /// The key of a map's `entry` as written in paths.
    pub(crate) fn entry_key(&self, entry: &Entry, entry_type: TypeId) -> Result<String> {
        if let Some((kind, bytes)) = self.key_text(entry, entry_type, self.limits.path as u64)? {
            return Ok(key_label(kind, &bytes));
        }
        let too_long = self.count(&Part::of(entry, Some(entry_type)), 1)? > 0;
        Ok(match self.schema.field(Some(entry_type), 1).map(|field| field.kind) {
            _ if too_long => "…",
            Some(FieldKind::String) => "\"\"",
            Some(FieldKind::Bool) => "false",
            _ => "0",
        }
        .to_owned())
    }
}

pub(crate) fn key_label(kind: FieldKind, bytes: &[u8]) -> String {
    let Ok(bits) = bytes.try_into().map(u64::from_le_bytes) else { return quote(bytes) };
    match kind {
        FieldKind::String | FieldKind::Bytes => quote(bytes),
        FieldKind::Bool => (bits != 0).to_string(),
        FieldKind::Uint64 | FieldKind::Fixed64 => bits.to_string(),
        _ => (bits as i64).to_string(),
    }
}
