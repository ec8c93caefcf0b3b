//! What a path leads to in a proto, or why it leads nowhere.

use crate::document::{Document, Message, Part, Wanted};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::header::{Fields, Wire};
use crate::key::{self, Key};
use crate::path::{Name, Path, Segment, Select};
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::{Field, FieldKind, MISFIT};
use crate::varint::{self, Varint};

/// What stands at a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A message, or a group.
    Message(Message),
    /// A string, bytes, or a field of unknown type that has a length.
    Bytes {
        /// Its field's kind, where known.
        kind: Option<FieldKind>,
        /// Where it lies; none for an empty default.
        part: Option<Part>,
    },
    /// A number, bool or enum value.
    Scalar {
        /// Its field, where known.
        field: Option<Field>,
        /// How it stands on the wire.
        wire: Wire,
        /// Its bits.
        raw: u64,
    },
    /// A repeated field or map as a whole.
    Repeated {
        /// The message it is a field of.
        owner: Message,
        /// Its number.
        number: u32,
        /// The field, where known.
        field: Option<Field>,
    },
}

impl Document<'_> {
    /// What `path` leads to.
    pub fn resolve(&self, path: &Path) -> Result<Target> {
        self.resolve_from(Target::Message(self.root()?), path)
    }

    fn resolve_from(&self, root: Target, path: &Path) -> Result<Target> {
        let mut at = root;
        let mut walked = Path::default();
        for segment in &path.segments {
            let message = self.enter(at, &walked)?;
            walked.segments.push(segment.clone());
            at = self.step(message, segment).map_err(|error| error.on(walked.to_string()))?;
        }
        Ok(at)
    }

    /// The message that the next segment of a path is looked up in.
    fn enter(&self, at: Target, walked: &Path) -> Result<Message> {
        let what = match at {
            Target::Message(message) => return Ok(message),
            Target::Bytes { kind: None, part: Some(part) } => return Ok(Message { type_id: None, parts: vec![part] }),
            Target::Bytes { kind, .. } => kind.map_or("empty", FieldKind::name).to_owned(),
            Target::Scalar { field, .. } => field.map_or("a number", |field| field.kind.name()).to_owned(),
            Target::Repeated { owner, number, .. } => {
                let count = self.total(&owner, number)?;
                format!("repeated ({count} elements): pick one, as in {walked}[0]")
            }
        };
        Err(WireError::new(Kind::NotFound, format!("nothing lies below: it is {what}")).on(walked.to_string()))
    }

    /// How often field `number` occurs in `message`.
    pub fn total(&self, message: &Message, number: u32) -> Result<u64> {
        message.parts.iter().map(|part| self.count(part, number)).sum()
    }

    /// The field of `message` that `name` names: its number, and what the schema knows of it.
    pub fn field_of(&self, message: &Message, name: &Name) -> Result<(u32, Option<&Field>)> {
        let known = message.type_id.and_then(|id| self.schema.message(id));
        let text = match name {
            Name::Number(number) => return Ok((*number, known.and_then(|known| known.field(*number)))),
            Name::Text(text) => text,
        };
        let Some(known) = known else {
            let message = format!("{text:?} can't be looked up: the message here has no known type; use field numbers");
            return Err(WireError::new(Kind::NotFound, message));
        };
        known.field_named(text).map(|field| (field.number, Some(field))).ok_or_else(|| {
            let names: Vec<&str> = known.fields().iter().map(|field| field.name.as_str()).take(24).collect();
            let more = if known.fields().len() > 24 { ", …" } else { "" };
            let message = format!("{} has no field {text:?}; it has {}{more}", known.name, names.join(", "));
            WireError::new(Kind::NotFound, message)
        })
    }

    fn step(&self, message: Message, segment: &Segment) -> Result<Target> {
        let (mut number, field) = self.field_of(&message, &segment.name)?;
        let mut field = field.cloned();
        let misfit = number | MISFIT;
        if let Name::Number(_) = segment.name
            && field.is_some()
            && self.total(&message, number)? == 0
            && self.total(&message, misfit)? > 0
        {
            // By its number an unknown field is found, though the schema knows another one of that number.
            (number, field) = (misfit, None);
        }
        if let Some(Select::Slice(..) | Select::All) = segment.select {
            let error = "a path leads to one place: slices and [*] are for the fields of a mask";
            return Err(WireError::new(Kind::Syntax, error));
        }
        let Some(select) = &segment.select else {
            return match field {
                Some(field) if field.repeated => Ok(Target::Repeated { owner: message, number, field: Some(field) }),
                Some(field) => {
                    let found = self.singular(&message, number)?;
                    self.merged(&found, Some(&field))?.ok_or_else(|| not_here(&field.name))
                }
                None => self.unknown(message, number),
            };
        };
        match field {
            Some(field) if !field.repeated => {
                let text = format!("{} is not repeated: there is nothing to pick with [{select}]", field.name);
                Err(WireError::new(Kind::NotFound, text))
            }
            Some(field) if self.is_map(&field) => self.map_value(&message, &field, select),
            field => self.picked(&message, number, field.as_ref(), select),
        }
    }

    /// Whether `field` is a map.
    pub fn is_map(&self, field: &Field) -> bool {
        field.kind == FieldKind::Message && self.schema.message(field.target).is_some_and(|message| message.map_entry)
    }

    /// A field without schema and without brackets: the one occurrence, or all of them.
    fn unknown(&self, message: Message, number: u32) -> Result<Target> {
        match self.total(&message, number)? {
            0 => Err(not_here(&(number & !MISFIT).to_string())),
            1 => {
                let found = self.element(&message, number, 0)?;
                self.merged(found.as_slice(), None)?.ok_or_else(|| not_here(&number.to_string()))
            }
            _ => Ok(Target::Repeated { owner: message, number, field: None }),
        }
    }

    fn map_value(&self, message: &Message, field: &Field, select: &Select) -> Result<Target> {
        let entry = self.schema.message(field.target);
        let key = entry.and_then(|entry| entry.field(1)).map_or(FieldKind::String, |key| key.kind);
        if let Select::Where(..) = select {
            return self.picked(message, field.number, Some(field), select);
        }
        let value = map_key(key, select)?;
        let wanted = Wanted { number: field.number, type_id: Some(field.target), key: 1, kind: key, value };
        let found = self.map_entry(message, &wanted)?;
        let Some((_, found)) = found else {
            let text = format!("the map {} has no key {select}", field.name);
            return Err(WireError::new(Kind::NotFound, text));
        };
        self.value_of(&found, Some(field))
    }

    /// The value of the map entry `found`.
    fn value_of(&self, found: &Entry, map: Option<&Field>) -> Result<Target> {
        let type_id = map.map(|map| map.target);
        let value = self.schema.field(type_id, 2);
        let entry = Message { type_id, parts: vec![Part::of(found, type_id)] };
        let occurrences = self.singular(&entry, 2)?;
        Ok(match self.merged(&occurrences, value)? {
            Some(target) => target,
            None => match value {
                Some(value) if value.kind.is_message() => {
                    Target::Message(Message { type_id: Some(value.target), parts: Vec::new() })
                }
                Some(value) if value.kind.is_packable() => {
                    Target::Scalar { field: Some(value.clone()), wire: value.kind.wire(), raw: 0 }
                }
                value => Target::Bytes { kind: value.map(|value| value.kind), part: None },
            },
        })
    }

    fn picked(&self, message: &Message, number: u32, field: Option<&Field>, select: &Select) -> Result<Target> {
        let label = field.map_or_else(|| number.to_string(), |field| field.name.clone());
        let found = match select {
            Select::Integer(at) => {
                let packable = field.is_some_and(|field| field.kind.is_packable());
                if packable {
                    return self.packed_element(message, number, field, *at);
                }
                let at = u64::try_from(*at).ok();
                at.map(|at| self.element(message, number, at)).transpose()?.flatten()
            }
            Select::Where(name, value) => {
                let type_id = field.filter(|field| field.kind == FieldKind::Message).map(|field| field.target);
                let (key, kind) = self.condition(type_id, name)?;
                let wanted = Wanted { number, type_id, key, kind, value: Key::Text(value) };
                self.element_where(message, &wanted)?.map(|(_, entry)| entry)
            }
            Select::Text(text) if field.is_none() => {
                let value = Key::Text(text);
                let wanted = Wanted { number, type_id: None, key: 1, kind: FieldKind::Bytes, value };
                let found = self.map_entry(message, &wanted)?;
                return found
                    .map_or_else(|| Err(no_such(&label, select, None)), |(_, found)| self.value_of(&found, None));
            }
            _ => {
                let text = format!("{label} is a list, not a map: pick an element by position, as in {label}[0]");
                return Err(WireError::new(Kind::NotFound, text));
            }
        };
        let count = self.total(message, number)?;
        let found = found.ok_or_else(|| no_such(&label, select, Some(count)))?;
        self.merged(&[found], field)?.ok_or_else(|| no_such(&label, select, Some(count)))
    }

    /// The field of `type_id` that a condition looks at.
    pub(crate) fn condition(&self, type_id: Option<u32>, name: &Name) -> Result<(u32, FieldKind)> {
        let element = Message { type_id, parts: Vec::new() };
        let (key, field) = self.field_of(&element, name)?;
        match field.map_or(FieldKind::Bytes, |field| field.kind) {
            kind if key::is_text(kind) && !field.is_some_and(|field| field.repeated) => Ok((key, kind)),
            kind => {
                let text = format!("a condition needs a singular string field; {name} is {}", kind.name());
                Err(WireError::new(Kind::NotFound, text))
            }
        }
    }

    /// What the occurrences of one field, or one element, amount to.
    pub fn merged(&self, found: &[Entry], field: Option<&Field>) -> Result<Option<Target>> {
        let Some(last) = found.last() else { return Ok(None) };
        let message = |type_id| {
            let parts = found.iter().map(|entry| Part::of(entry, type_id)).collect();
            Target::Message(Message { type_id, parts })
        };
        Ok(Some(match field {
            Some(field) if field.kind.is_message() => message(Some(field.target)),
            None if last.wire == Wire::Group => message(None),
            _ if last.wire == Wire::Len => {
                Target::Bytes { kind: field.map(|field| field.kind), part: Some(Part::of(last, None)) }
            }
            _ => {
                let last = self.of_run(last, last.count - 1)?;
                Target::Scalar { field: field.cloned(), wire: last.wire, raw: self.raw(&last)? }
            }
        }))
    }

    /// The bits of the scalar `entry`.
    fn raw(&self, entry: &Entry) -> Result<u64> {
        let bytes = self.read_span(&entry.span())?;
        let field = Fields::new(&bytes, entry.start, self.limits.depth).next_field()?;
        let field = field.ok_or_else(|| WireError::corrupt(entry.start, "a scalar is not where it was"))?;
        Ok(if field.header.wire == Wire::Varint { field.header.value } else { little_endian(field.content) })
    }

    /// Element `at` of a repeated number, whether it stands packed or not.
    fn packed_element(&self, message: &Message, number: u32, field: Option<&Field>, at: i128) -> Result<Target> {
        let (Some(field), Ok(wanted)) = (field, u64::try_from(at)) else {
            return Err(no_such(&number.to_string(), &Select::Integer(at), None));
        };
        let mut left = wanted;
        let mut found = None;
        for part in &message.parts {
            self.visit(part, number, 0, &mut |_, entry| {
                if entry.wire != Wire::Len {
                    if left < entry.count {
                        found = Some(self.raw(&self.of_run(entry, left)?)?);
                    }
                    left = left.saturating_sub(entry.count);
                } else {
                    found = self.in_packed(entry, field.kind.wire(), &mut left)?;
                }
                Ok(found.is_none())
            })?;
            if found.is_some() {
                break;
            }
        }
        let scalar = found.map(|raw| Target::Scalar { field: Some(field.clone()), wire: field.kind.wire(), raw });
        scalar.ok_or_else(|| no_such(&field.name, &Select::Integer(at), Some(wanted - left)))
    }

    /// The value `left` places on in a packed field; what is passed is taken off `left`.
    fn in_packed(&self, entry: &Entry, wire: Wire, left: &mut u64) -> Result<Option<u64>> {
        let width = match wire {
            Wire::Fixed64 => 8,
            Wire::Fixed32 => 4,
            _ => return self.in_packed_varints(entry, left),
        };
        let count = entry.content_len() / width;
        if *left >= count {
            *left -= count;
            return Ok(None);
        }
        let bytes = self.read(entry.content + *left * width, width as usize)?;
        Ok(Some(little_endian(&bytes)))
    }

    fn in_packed_varints(&self, entry: &Entry, left: &mut u64) -> Result<Option<u64>> {
        const STEP: u64 = 16 << 10;
        let mut position = entry.content;
        while position < entry.content_end {
            let window = position..entry.content_end.min(position + STEP);
            let bytes = self.read_span(&window)?;
            let mut at = 0;
            while at < bytes.len() {
                match varint::read_value(bytes.get(at..).unwrap_or_default()) {
                    Varint::Value(value, _) if *left == 0 => return Ok(Some(value)),
                    Varint::Value(_, len) => at += len,
                    Varint::Truncated if at > 0 && window.end < entry.content_end => break,
                    _ => return Err(WireError::corrupt(position + at as u64, "a packed field holds a broken varint")),
                }
                *left -= 1;
            }
            position += at as u64;
        }
        Ok(None)
    }

    /// The bytes that stand at a path: a message serialized, the content of bytes or text, a scalar's text, or the
    /// numbers of a packed field.
    pub fn content(&self, target: &Target) -> Result<Rope> {
        let mut rope = RopeBuilder::new(&self.limits);
        let mut add = |part: &Part| -> Result<()> {
            let span = self.span(part)?;
            rope.extent(IMAGE, span.start, span.end - span.start);
            Ok(())
        };
        match target {
            Target::Message(message) => message.parts.iter().try_for_each(add)?,
            Target::Bytes { part, .. } => part.iter().try_for_each(add)?,
            Target::Scalar { field, wire, raw } => rope.literal(self.text(field.as_ref(), *wire, *raw).as_bytes()),
            Target::Repeated { owner, number, field } => {
                let packable = field.as_ref().is_some_and(|field| field.kind.is_packable());
                for part in &owner.parts {
                    self.visit(part, *number, 0, &mut |_, entry| {
                        if !packable || entry.wire != Wire::Len {
                            let text = "it is repeated, and its elements do not lie in one piece: pick one with [i]";
                            return Err(WireError::new(Kind::Unsupported, text));
                        }
                        add(&Part::Span(entry.content_span(), None)).map(|()| true)
                    })?;
                }
            }
        }
        rope.check()?;
        Ok(rope.finish())
    }

    /// A scalar as people write it: an enum's name where there is one.
    pub fn text(&self, field: Option<&Field>, wire: Wire, raw: u64) -> String {
        let kind = match (field.map(|field| field.kind), wire) {
            (Some(kind), _) => kind,
            (None, Wire::Fixed32) => FieldKind::Fixed32,
            (None, _) => FieldKind::Uint64,
        };
        let number = key::number_of(kind, kind.wire(), raw).unwrap_or(raw);
        match kind {
            FieldKind::Double => format!("{:?}", f64::from_bits(raw)),
            FieldKind::Float => format!("{:?}", f32::from_bits(raw as u32)),
            FieldKind::Bool => (number != 0).to_string(),
            FieldKind::Uint32 | FieldKind::Uint64 | FieldKind::Fixed32 | FieldKind::Fixed64 => number.to_string(),
            FieldKind::Enum => {
                let name = field.and_then(|field| self.schema.enum_name(field.target, number as i32));
                name.map_or_else(|| (number as i32).to_string(), str::to_owned)
            }
            _ => (number as i64).to_string(),
        }
    }
}

/// The key that `select` spells for a map whose keys are of `kind`.
pub(crate) fn map_key(kind: FieldKind, select: &Select) -> Result<Key<'_>> {
    let due = match (kind, select) {
        (FieldKind::String, Select::Text(text)) => return Ok(Key::Text(text)),
        (FieldKind::Bool, Select::Word(word)) => return Ok(Key::Number(u64::from(*word))),
        (FieldKind::String, _) => "a quoted string, as in [\"key\"]",
        (FieldKind::Bool, _) => "[true] or [false]",
        (_, Select::Integer(value)) => {
            let signed = matches!(kind, FieldKind::Int32 | FieldKind::Int64 | FieldKind::Sint32 | FieldKind::Sint64)
                || matches!(kind, FieldKind::Sfixed32 | FieldKind::Sfixed64);
            let narrow = matches!(kind, FieldKind::Int32 | FieldKind::Sint32 | FieldKind::Sfixed32)
                || matches!(kind, FieldKind::Uint32 | FieldKind::Fixed32);
            let bits = if narrow { 32 } else { 64 } - u32::from(signed);
            let range = if signed { -(1i128 << bits) } else { 0 }..1i128 << bits;
            if range.contains(value) {
                return Ok(Key::Number(*value as u64));
            }
            "an integer that its type can hold"
        }
        _ => "an integer, as in [5]",
    };
    let text = format!("the keys of this map are {}: {due} is due, not [{select}]", kind.name());
    Err(WireError::new(Kind::NotFound, text))
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn not_here(label: &str) -> WireError {
    WireError::new(Kind::NotFound, format!("{label} is not set here"))
}

fn no_such(label: &str, select: &Select, count: Option<u64>) -> WireError {
    let there = count.map_or(String::new(), |count| format!(": it has {count} elements"));
    WireError::new(Kind::NotFound, format!("{label} has no element [{select}]{there}"))
}
