//! Descriptor sets: what is taken has one form, which says the same when it is read again.

use std::sync::LazyLock;

use wire::descriptor::{Bounds, Descriptors};
use wire::fields::Fields;

use super::corpus::delimited;

const BUNDLED: &[u8] = include_bytes!("../../../../service/protoslice/schema/bundled/types.binpb");
const BOUNDS: Bounds = Bounds { files: 100, parts: 20_000 };

/// The files of the bundled set, by size.
static FILES: LazyLock<Vec<&[u8]>> = LazyLock::new(|| {
    let (mut fields, mut files) = (Fields::new(BUNDLED, 0, 1), Vec::new());
    while let Some(field) = fields.next_field().unwrap() {
        files.push(field.content);
    }
    files.sort_by_key(|file| file.len());
    files
});

/// Small sets: files of the bundled one that import nothing or what the library has, and two in their one form.
pub fn sets() -> Vec<Vec<u8>> {
    let whole = Descriptors::parse(BUNDLED, &[], &BOUNDS).unwrap();
    let mut found: Vec<Vec<u8>> = FILES.iter().map(|file| set(&[file])).collect();
    found.push(set(&FILES[..6]));
    found.retain(|data| data.len() < 6000 && Descriptors::parse(data, BUNDLED, &BOUNDS).is_ok());
    found.extend(["onnx.ModelProto", "tensorflow.NodeDef"].map(|name| whole.canonical(name).unwrap()));
    assert!(found.len() > 10);
    found
}

fn set(files: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    files.iter().for_each(|file| delimited(1, file, &mut out));
    out
}

/// A descriptor set: the types it declares, flat and in their one form.
pub fn descriptors(data: &[u8]) {
    let Ok(types) = Descriptors::parse(data, BUNDLED, &BOUNDS) else { return };
    for name in types.names().into_iter().take(8) {
        let Ok(canonical) = types.canonical(name) else { continue };
        let again = Descriptors::parse(&canonical, &[], &BOUNDS).expect("it can be read again");
        assert_eq!(again.canonical(name).expect("the type is there"), canonical, "{name}");
        let (one, other) = (types.schema(name), again.schema(name));
        let (one, other) = (one.expect("it is well formed"), other.expect("it is well formed"));
        let same = one.messages().iter().zip(other.messages()).all(|(one, other)| one.fields() == other.fields());
        assert!(same && one.len() == other.len() && one.enums() == other.enums(), "{name}");
    }
}
