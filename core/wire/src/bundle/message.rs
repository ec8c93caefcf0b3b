//! The index of a bundle as one message, `protoslice.TensorBundle`: entries get paths by their names.

use super::{Bundle, Ends};
use crate::header::put_field;

/// Tag of `TensorBundle.header`.
const HEADER: u8 = 0x0a;
/// Tag of `TensorBundle.entries`, a map by name.
const ENTRIES: u8 = 0x12;
/// Tag of `TensorBundle.keyed`, for keys that are no text.
const KEYED: u8 = 0x1a;
/// Tags of the key and the value, in both.
const KEY: u8 = 0x0a;
const VALUE: u8 = 0x12;

impl Bundle {
    /// The serialized `protoslice.TensorBundle`: header and entries byte for byte, in the order of the keys.
    ///
    /// Entries of slices, whose keys begin with a zero byte, and others whose keys are no UTF-8 stand in `keyed`.
    pub fn message(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.header.len() + self.bytes.len() + 8 * self.ends.len());
        put_field(HEADER, &self.header, &mut out);
        let mut entry = Vec::new();
        for (at, ends) in self.ends.iter().enumerate() {
            let (key, value) = (self.key(at), self.value(*ends));
            let named = at >= self.first && std::str::from_utf8(key).is_ok();
            entry.clear();
            put_field(KEY, key, &mut entry);
            put_field(VALUE, value, &mut entry);
            put_field(if named { ENTRIES } else { KEYED }, &entry, &mut out);
        }
        out
    }

    fn value(&self, ends: Ends) -> &[u8] {
        self.bytes.get(ends.key..ends.value).unwrap_or_default()
    }
}
