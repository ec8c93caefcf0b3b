//! Message types as a flat table, reduced to the facts that scans, paths and merges need.

use std::collections::HashMap;

use crate::error::{Kind, Result, WireError};
use crate::header::Wire;

/// The number of a message type in its [`Schema`].
pub type TypeId = u32;

/// The kinds of fields, numbered as in `descriptor.proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of descriptor.proto")]
pub enum FieldKind {
    Double = 1,
    Float,
    Int64,
    Uint64,
    Int32,
    Fixed64,
    Fixed32,
    Bool,
    String,
    Group,
    Message,
    Bytes,
    Uint32,
    Enum,
    Sfixed32,
    Sfixed64,
    Sint32,
    Sint64,
}

impl FieldKind {
    const ALL: [Self; 18] = [
        Self::Double,
        Self::Float,
        Self::Int64,
        Self::Uint64,
        Self::Int32,
        Self::Fixed64,
        Self::Fixed32,
        Self::Bool,
        Self::String,
        Self::Group,
        Self::Message,
        Self::Bytes,
        Self::Uint32,
        Self::Enum,
        Self::Sfixed32,
        Self::Sfixed64,
        Self::Sint32,
        Self::Sint64,
    ];

    /// The kind numbered `number` in `descriptor.proto`; None for other numbers.
    pub fn from_number(number: u8) -> Option<Self> {
        let index = usize::from(number).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// True if values are messages: length-delimited ones or groups.
    pub fn is_message(self) -> bool {
        matches!(self, Self::Message | Self::Group)
    }

    /// True if values may be packed into one length-delimited field.
    pub fn is_packable(self) -> bool {
        !matches!(self, Self::Message | Self::Group | Self::String | Self::Bytes)
    }

    /// The wire type of one value.
    pub fn wire(self) -> Wire {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => Wire::Fixed64,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => Wire::Fixed32,
            Self::String | Self::Bytes | Self::Message => Wire::Len,
            Self::Group => Wire::Group,
            _ => Wire::Varint,
        }
    }

    /// The kind's name in a `.proto` file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Float => "float",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Int32 => "int32",
            Self::Fixed64 => "fixed64",
            Self::Fixed32 => "fixed32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Group => "group",
            Self::Message => "message",
            Self::Bytes => "bytes",
            Self::Uint32 => "uint32",
            Self::Enum => "enum",
            Self::Sfixed32 => "sfixed32",
            Self::Sfixed64 => "sfixed64",
            Self::Sint32 => "sint32",
            Self::Sint64 => "sint64",
        }
    }
}

/// The bit that marks the number of a field whose wire type does not fit its schema. Such a field is unknown, and is
/// separate from fields with the same number that fit.
pub const MISFIT: u32 = 1 << 31;

/// One field of a message type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The number on the wire.
    pub number: u32,
    /// Name of the field.
    pub name: String,
    /// Kind of the values.
    pub kind: FieldKind,
    /// True if the field may occur several times; this includes maps.
    pub repeated: bool,
    /// The number of the field's oneof, counted from 1; 0 without a oneof. Synthetic oneofs do not count.
    pub oneof: u32,
    /// For message kinds, the number of the message type in the schema; for enums, the number of the enum.
    pub target: u32,
}

impl Field {
    /// True if the field may have the wire type `wire`; packed and unpacked values both fit.
    #[inline]
    pub fn fits(&self, wire: Wire) -> bool {
        wire == self.kind.wire() || (wire == Wire::Len && self.repeated && self.kind.is_packable())
    }
}

/// One message type.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The full name, such as `onnx.ModelProto`.
    pub name: String,
    /// True for a map entry, in which field 1 is the key and field 2 is the value.
    pub map_entry: bool,
    fields: Vec<Field>,
    dense: Vec<u16>,
    key: Option<u32>,
}

/// Fields with lower numbers are found by array index, other fields by a search.
const DENSE: u32 = 64;

impl Message {
    /// Makes a message type; `fields` may be in any order.
    pub fn new(name: String, map_entry: bool, mut fields: Vec<Field>) -> Self {
        fields.sort_by_key(|field| field.number);
        let mut dense = vec![u16::MAX; DENSE as usize];
        for (i, field) in fields.iter().enumerate() {
            if let (Some(slot), Ok(i)) = (dense.get_mut(field.number as usize), u16::try_from(i)) {
                *slot = i;
            }
        }
        let key = if map_entry { Some(1) } else { key_field(&fields) };
        Self { name, map_entry, fields, dense, key }
    }

    /// The field numbered `number`.
    #[inline]
    pub fn field(&self, number: u32) -> Option<&Field> {
        if number < DENSE {
            return self.dense.get(number as usize).and_then(|&i| self.fields.get(usize::from(i)));
        }
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(at)
    }

    /// The field with the present or former name `name`.
    pub fn field_named(&self, name: &str) -> Option<&Field> {
        let named = |name: &str| self.fields.iter().find(|field| field.name == name);
        named(name).or_else(|| former(&FORMER_FIELDS, &self.name, name).and_then(named))
    }

    /// All fields, by number.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field that identifies elements of this type. It is the key of a map entry, or else the singular string
    /// `name`, or else the singular string with the lowest number. None if no such field exists. Members of oneofs do
    /// not count, because other members may replace them.
    pub fn key(&self) -> Option<&Field> {
        self.field(self.key?)
    }
}

/// Renamed fields: type, former name and present name. Paddle renamed these in version 3.
const FORMER_FIELDS: [(&str, &str, &str); 4] = [
    ("paddle.framework.proto.VarType", "lod_tensor", "dense_tensor"),
    ("paddle.framework.proto.VarType.ReaderDesc", "lod_tensor", "dense_tensor"),
    ("paddle.framework.proto.VarType.DenseTensorDesc", "lod_level", "legacy_lod_level"),
    ("paddle.framework.proto.VarType.DenseTensorArrayDesc", "lod_level", "legacy_lod_level"),
];
/// Renamed enum values: former and present name. Enums have no names in the table.
const FORMER_VALUES: [(&str, &str, &str); 2] =
    [("", "LOD_TENSOR", "DENSE_TENSOR"), ("", "LOD_TENSOR_ARRAY", "DENSE_TENSOR_ARRAY")];

/// The present name of the item in `place` that was formerly called `name`; None if it was never renamed.
fn former(table: &'static [(&str, &str, &str)], place: &str, name: &str) -> Option<&'static str> {
    table.iter().find(|(of, old, _)| *of == place && *old == name).map(|(_, _, new)| *new)
}

fn key_field(fields: &[Field]) -> Option<u32> {
    let is_key = |field: &&Field| field.kind == FieldKind::String && !field.repeated && field.oneof == 0;
    let strings = || fields.iter().filter(is_key);
    strings().find(|field| field.name == "name").or_else(|| strings().next()).map(|field| field.number)
}

/// The values of one enum type, by name.
pub type EnumValues = HashMap<String, i32>;

/// A set of message types that refer to each other.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    messages: Vec<Message>,
    enums: Vec<EnumValues>,
    names: HashMap<String, TypeId>,
}

impl Schema {
    /// Makes a schema of `messages` and `enums`; fails when a reference between them is invalid.
    pub fn new(messages: Vec<Message>, enums: Vec<EnumValues>) -> Result<Self> {
        for message in &messages {
            for field in &message.fields {
                let known = if field.kind.is_message() {
                    (field.target as usize) < messages.len()
                } else {
                    field.kind != FieldKind::Enum || (field.target as usize) < enums.len()
                };
                if !known || field.number == 0 || field.number > crate::limits::MAX_FIELD_NUMBER {
                    let message =
                        format!("the schema's field {}.{} has an invalid type or number", message.name, field.name);
                    return Err(WireError::new(Kind::Syntax, message));
                }
            }
        }
        let names = (0..).zip(&messages).map(|(id, message)| (message.name.clone(), id)).collect();
        Ok(Self { messages, enums, names })
    }

    /// Number of message types.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// True if there are no message types.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// All message types, by number.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The values of all enums, by number.
    pub fn enums(&self) -> &[EnumValues] {
        &self.enums
    }

    /// Approximate memory of the schema, in bytes.
    pub fn weight(&self) -> usize {
        let fields = |message: &Message| -> usize {
            message.fields.iter().map(|field| size_of::<Field>() + field.name.len()).sum()
        };
        let messages: usize = self.messages.iter().map(|each| 2 * each.name.len() + fields(each) + 300).sum();
        messages + self.enums.iter().flatten().map(|(name, _)| name.len() + 48).sum::<usize>()
    }

    /// The message type with the number `id`.
    #[inline]
    pub fn message(&self, id: TypeId) -> Option<&Message> {
        self.messages.get(id as usize)
    }

    /// The number of the message type called `name`.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    /// The field `number` of type `id`; None when the type or the field is unknown.
    #[inline]
    pub fn field(&self, id: Option<TypeId>, number: u32) -> Option<&Field> {
        self.message(id?)?.field(number)
    }

    /// True if `field` is a map.
    pub fn is_map(&self, field: &Field) -> bool {
        field.kind == FieldKind::Message && self.is_map_entry(Some(field.target))
    }

    /// True if messages of type `id` are map entries.
    pub fn is_map_entry(&self, id: Option<TypeId>) -> bool {
        id.and_then(|id| self.message(id)).is_some_and(|message| message.map_entry)
    }

    /// The field number; it has the [`MISFIT`] bit when type `id` has this field but `wire` does not fit the field.
    #[inline]
    pub fn fitted(&self, id: Option<TypeId>, number: u32, wire: Wire) -> u32 {
        match self.field(id, number) {
            Some(field) if !field.fits(wire) => number | MISFIT,
            _ => number,
        }
    }

    /// The number of the value with the present or former name `name` in the enum numbered `id`; None when unknown.
    pub fn enum_value(&self, id: u32, name: &str) -> Option<i32> {
        let values = self.enums.get(id as usize)?;
        values.get(name).or_else(|| values.get(former(&FORMER_VALUES, "", name)?)).copied()
    }

    /// The alphabetically first name of value `number` in the enum numbered `id`; None when unknown.
    pub fn enum_name(&self, id: u32, number: i32) -> Option<&str> {
        let values = self.enums.get(id as usize)?;
        values.iter().filter(|(_, value)| **value == number).map(|(name, _)| name.as_str()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_does_not_hold_together_is_refused() {
        let made = |number, kind, target| {
            let field = Field { number, name: "a".into(), kind, repeated: false, oneof: 0, target };
            Schema::new(vec![Message::new("x.Root".into(), false, vec![field])], vec![])
        };
        assert!(made(1, FieldKind::Message, 0).is_ok());
        for (number, kind, target) in [
            (1, FieldKind::Message, 1),
            (1, FieldKind::Enum, 0),
            (0, FieldKind::Int32, 0),
            (1 << 29, FieldKind::Int32, 0),
        ] {
            assert_eq!(made(number, kind, target).map(drop).map_err(|error| error.kind()), Err(Kind::Syntax));
        }
        assert_eq!((FieldKind::from_number(0), FieldKind::from_number(99)), (None, None));
    }
}
