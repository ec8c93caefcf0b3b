//! A schema with every kind of field, shaped so that TensorFlow's graphs are messages of it too.

use wire::Schema;
use wire::schema::Field;
use wire::schema::FieldKind::{
    self, Bool, Bytes, Double, Enum, Fixed64, Float, Group, Int32, Int64, Message, Sfixed32, Sint32, Sint64, String,
    Uint32,
};

const GRAPH: u32 = 0;
const NODE: u32 = 1;
const ATTR_ENTRY: u32 = 2;
const ATTR: u32 = 3;
const TENSOR: u32 = 4;
const LIBRARY: u32 = 5;
const FUNCTION: u32 = 6;
const GROUP: u32 = 7;
const COUNT_ENTRY: u32 = 8;

/// The type of all protos of the tests.
pub const ROOT: &str = "Graph";

fn one(number: u32, name: &str, kind: FieldKind, target: u32) -> Field {
    Field { number, name: name.into(), kind, repeated: false, oneof: 0, target }
}

fn many(number: u32, name: &str, kind: FieldKind, target: u32) -> Field {
    Field { repeated: true, ..one(number, name, kind, target) }
}

fn either(number: u32, name: &str, kind: FieldKind, target: u32) -> Field {
    Field { oneof: 1, ..one(number, name, kind, target) }
}

/// The schema.
pub fn schema() -> Schema {
    let node = vec![
        one(1, "name", String, 0),
        one(2, "op", String, 0),
        many(3, "input", String, 0),
        many(5, "attr", Message, ATTR_ENTRY),
        many(50, "part", Group, GROUP),
        either(51, "left", Message, NODE),
        either(52, "right", Bytes, 0),
        either(53, "number", Sint64, 0),
        many(54, "count", Message, COUNT_ENTRY),
        many(55, "flag", Bool, 0),
        many(56, "short", Sfixed32, 0),
        one(57, "only", Group, GROUP),
        one((1 << 29) - 1, "last", Double, 0),
    ];
    let attr =
        vec![one(2, "s", Bytes, 0), one(3, "i", Int64, 0), one(4, "f", Float, 0), one(8, "tensor", Message, TENSOR)];
    let tensor = vec![
        one(1, "dtype", Enum, 0),
        many(3, "version", Int32, 0),
        one(4, "content", Bytes, 0),
        many(5, "floats", Float, 0),
        many(10, "longs", Int64, 0),
    ];
    let messages = vec![
        message(
            ROOT,
            vec![many(1, "node", Message, NODE), one(2, "library", Message, LIBRARY), one(4, "versions", Bytes, 0)],
        ),
        message("Node", node),
        entry("AttrEntry", String, Message, ATTR),
        message("Attr", attr),
        message("Tensor", tensor),
        message("Library", vec![many(1, "function", Message, FUNCTION)]),
        message("Function", vec![one(1, "signature", Message, NODE), many(3, "node_def", Message, NODE)]),
        message("Group", vec![one(1, "id", Fixed64, 0), one(2, "node", Message, NODE), one(3, "part", Group, GROUP)]),
        entry("CountEntry", Sint32, Uint32, 0),
    ];
    let dtypes = [("DT_INVALID".into(), 0), ("DT_FLOAT".into(), 1), ("DT_INT32".into(), 3)].into();
    debug_assert_eq!(messages[GRAPH as usize].name, ROOT);
    Schema::new(messages, vec![dtypes]).unwrap()
}

fn message(name: &str, fields: Vec<Field>) -> wire::schema::Message {
    wire::schema::Message::new(name.into(), false, fields)
}

fn entry(name: &str, key: FieldKind, value: FieldKind, target: u32) -> wire::schema::Message {
    wire::schema::Message::new(name.into(), true, vec![one(1, "key", key, 0), one(2, "value", value, target)])
}
