//! Lengths of records, coded as differences: one byte for a difference below 64, two below 8 Ki, and two to eleven for
//! any number of equal lengths in a row.
//!
//! A code is a varint. The zigzag of the difference to the length before, or 0, which a difference of its own never is:
//! 0 and the number of further records of the same length, or 0 twice, the bytes by which the head is longer than it
//! need be, and the zigzag of the difference.

use crate::error::{Result, WireError};
use crate::reader::Reader;
use crate::varint;

/// Equal records in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Number of records.
    pub(super) count: u64,
    /// Bytes of each.
    pub(super) len: u64,
    /// Bytes by which each head is longer than it need be.
    pub(super) extra: u64,
}

/// Appends the code of a record of `len` bytes behind one of `last`.
pub(super) fn put(len: u64, extra: u64, last: u64, out: &mut Vec<u8>) {
    if extra > 0 {
        out.extend_from_slice(&[0, 0]);
        varint::write(extra, out);
    }
    varint::write(zigzag(len.wrapping_sub(last)), out);
}

/// Appends the code of `count` further records of the same length.
pub(super) fn put_run(count: u64, out: &mut Vec<u8>) {
    out.push(0);
    varint::write(count, out);
}

/// The next run of `reader`, behind a record of `last` bytes.
pub(super) fn next(reader: &mut Reader<'_>, last: u64) -> Result<Run> {
    let difference = match reader.varint()? {
        0 => match reader.varint()? {
            0 => {
                let extra = reader.varint()?;
                let len = last.wrapping_add(unzigzag(reader.varint()?));
                return if extra < varint::MAX_LEN as u64 {
                    Ok(Run { count: 1, len, extra })
                } else {
                    Err(WireError::corrupt(reader.offset(), "a record has a header of more than ten bytes"))
                };
            }
            count => return Ok(Run { count, len: last, extra: 0 }),
        },
        difference => difference,
    };
    Ok(Run { count: 1, len: last.wrapping_add(unzigzag(difference)), extra: 0 })
}

/// Differences wrap around at 64 bits, so that any two lengths have one.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0u64.wrapping_sub(difference >> 63)
}

fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ 0u64.wrapping_sub(code & 1)
}
