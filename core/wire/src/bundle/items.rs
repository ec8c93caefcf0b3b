//! Tensors of a bundle as items of a JSON list, written here because a listing has thousands of them.

use std::collections::HashMap;

use super::{Bundle, Placed};
use crate::error::Result;

/// Name of each type by its number, and the bytes of one element: 0 for types without a fixed element size.
pub type Types = HashMap<i32, (String, u64)>;

/// Name of the string tensor that holds the object graph of a checkpoint.
const OBJECT_GRAPH: &[u8] = b"_CHECKPOINTABLE_OBJECT_GRAPH";

/// Writes tensors as items of a listing.
#[derive(Debug)]
pub struct Items<'a> {
    bundle: &'a Bundle,
    types: &'a Types,
    room: &'a [Option<u64>],
    prefix: Vec<u8>,
    ending: Vec<u8>,
}

impl<'a> Items<'a> {
    /// A writer for the tensors of `bundle`. Shards are named by `prefix` and number; `room` has their sizes in bytes.
    pub fn new(bundle: &'a Bundle, prefix: &str, types: &'a Types, room: &'a [Option<u64>]) -> Self {
        let mut escaped = Vec::new();
        escape(prefix.as_bytes(), &mut escaped);
        Self { bundle, types, room, prefix: escaped, ending: format!("-of-{:05}\"", bundle.shards()).into_bytes() }
    }

    /// Writes at most `limit` tensors from number `start` on, separated by commas; returns the text, the number of
    /// items and the number to continue from. `dtype` filters by type name. The list ends before a tensor that is
    /// stored in slices or has an inconsistent entry.
    pub fn write(&self, start: usize, limit: usize, dtype: Option<&str>) -> Result<(Vec<u8>, usize, usize)> {
        let mut out = Vec::new();
        let mut placed = Placed::default();
        let (mut number, mut count) = (start, 0);
        while let Some(name) = self.bundle.name(number).filter(|_| count < limit) {
            self.bundle.decode(self.bundle.first + number, &mut placed)?;
            let Some((known, width)) = self.types.get(&placed.dtype) else { break };
            if dtype.is_none_or(|wanted| known == wanted) {
                let from = out.len();
                if count > 0 {
                    out.push(b',');
                }
                if !self.item(name, known, *width, &placed, &mut out) {
                    out.truncate(from);
                    break;
                }
                count += 1;
            }
            number += 1;
        }
        Ok((out, count, number))
    }

    /// Appends the tensor and returns true; false when it is stored in slices or its entry is inconsistent.
    fn item(&self, name: &[u8], dtype: &str, width: u64, placed: &Placed, out: &mut Vec<u8>) -> bool {
        let Some((dims, count)) = placed.shape().filter(|_| self.is_sound(placed)) else { return false };
        let size = count.saturating_mul(width);
        if width > 0 && i64::try_from(size) != Ok(placed.size) {
            return false;
        }
        out.extend_from_slice(b"{\"name\":\"");
        let from = out.len();
        escape(name, out);
        let upto = out.len();
        out.extend_from_slice(b"\",\"address\":\"bundle:");
        out.extend_from_within(from..upto);
        out.extend_from_slice(b"\",\"dtype\":\"");
        out.extend_from_slice(dtype.as_bytes());
        out.extend_from_slice(b"\",\"shape\":[");
        for (at, dim) in dims.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            decimal(dim.unsigned_abs(), out);
        }
        out.extend_from_slice(b"],\"size\":");
        if width > 0 {
            decimal(size, out);
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b",\"file\":\"");
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(b".data-");
        padded(placed.shard, out);
        out.extend_from_slice(&self.ending);
        out.extend_from_slice(b",\"kind\":\"");
        out.extend_from_slice(if name == OBJECT_GRAPH { b"object_graph" } else { b"variable" });
        out.extend_from_slice(b"\"}");
        true
    }

    /// True if the tensor is stored whole and lies within its shard, which must exist.
    fn is_sound(&self, placed: &Placed) -> bool {
        let end = placed.offset.checked_add(placed.size).and_then(|end| u64::try_from(end).ok());
        let room = usize::try_from(placed.shard).ok().and_then(|shard| self.room.get(shard)).copied().flatten();
        placed.slices.is_empty()
            && placed.offset.min(placed.size) >= 0
            && end.zip(room).is_some_and(|(end, room)| end <= room)
    }
}

/// Appends `bytes` as the inside of a JSON string. Bytes that are not UTF-8 are written as `\xff`.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\' && byte != 0x7f;
        if chunk.valid().bytes().all(plain) {
            out.extend_from_slice(chunk.valid().as_bytes());
        } else {
            chunk.valid().bytes().for_each(|byte| escape_byte(byte, out));
        }
        chunk.invalid().iter().for_each(|byte| out.extend(format!("\\\\x{byte:02x}").bytes()));
    }
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend([b'\\', byte]),
        0..0x20 | 0x7f => out.extend(format!("\\u{byte:04x}").bytes()),
        _ => out.push(byte),
    }
}

/// Appends `value` in decimal digits.
fn decimal(mut value: u64, out: &mut Vec<u8>) {
    let from = out.len();
    loop {
        out.push(b'0' + (value % 10) as u8);
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.get_mut(from..).unwrap_or_default().reverse();
}

/// Appends the number of a shard with five digits or more.
fn padded(shard: i32, out: &mut Vec<u8>) {
    match u64::try_from(shard) {
        Ok(few @ 0..10) => {
            out.extend_from_slice(b"0000");
            decimal(few, out);
        }
        _ => out.extend(format!("{shard:05}").bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_those_of_json() {
        let mut out = Vec::new();
        escape(b"a\"\\\n\x7f\xc3\xa9\xff\xc3z", &mut out);
        assert_eq!(out, b"a\\\"\\\\\\u000a\\u007f\xc3\xa9\\\\xff\\\\xc3z");
    }

    #[test]
    fn numbers_are_decimal() {
        for value in [0, 7, 10, 999, 1 << 40, u64::MAX] {
            let mut out = Vec::new();
            decimal(value, &mut out);
            assert_eq!(out, value.to_string().into_bytes());
        }
        for (shard, text) in [(0, "00000"), (9, "00009"), (10, "00010"), (123_456, "123456"), (-1, "-0001")] {
            let mut out = Vec::new();
            padded(shard, &mut out);
            assert_eq!(out, text.as_bytes());
        }
    }
}
