//! The lengths of records, coded as differences. A difference below 64 takes one byte, and one below 8 Ki takes two.
//! Any number of consecutive equal lengths takes two to eleven bytes.
//!
//! A code consists of varints. Normally, it is the zigzag of the difference from the previous length, which is never 0.
//! The code 0 and a number n mean n further records of the same length. The code 0, 0 introduces a longer head: then
//! come the number of bytes by which the head is longer than necessary, and the zigzag of the difference.

use crate::error::{Result, WireError};
use crate::reader::Reader;
use crate::varint;

/// Consecutive records of equal length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// The number of records.
    pub(super) count: u64,
    /// The size of each record in bytes.
    pub(super) len: u64,
    /// How many bytes each head is longer than necessary.
    pub(super) extra: u64,
}

/// Appends the code of a record of `len` bytes after a record of `last` bytes.
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

/// Reads the next run; the record before it has `last` bytes.
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

/// The zigzag of a difference that wraps around at 64 bits, so that any two lengths have a difference.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0u64.wrapping_sub(difference >> 63)
}

fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ 0u64.wrapping_sub(code & 1)
}
