//! The index of a bundle as one `protoslice.TensorBundle` message, in which every entry has a path with its name.

use super::{Bundle, Ends};
use crate::header::put_field;

/// The tag of `TensorBundle.header`.
const HEADER: u8 = 0x0a;
/// The tag of `TensorBundle.entries`, a map by name.
const ENTRIES: u8 = 0x12;
/// The tag of `TensorBundle.keyed`, for keys that are not text.
const KEYED: u8 = 0x1a;
/// The tags of key and value, which are the same in both fields.
const KEY: u8 = 0x0a;
const VALUE: u8 = 0x12;

impl Bundle {
    /// The serialized `protoslice.TensorBundle`: header and entries are unchanged and in the order of the keys.
    ///
    /// Entries of slices are in `keyed`, because their keys begin with a zero byte. So are other entries whose keys are
    /// not UTF-8.
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
