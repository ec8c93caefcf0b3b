//! Header of one field on the wire: its tag, and the length or value that follows.

use crate::error::{Result, WireError};
use crate::limits::MAX_FIELD_NUMBER;
use crate::varint::{self, Varint};

/// Wire types, numbered as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// A varint.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A length and that many bytes.
    Len = 2,
    /// A group, up to its end tag.
    Group = 3,
    /// The end tag of a group.
    EndGroup = 4,
    /// Four bytes.
    Fixed32 = 5,
}

impl Wire {
    /// The wire type numbered `number`.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Varint,
            1 => Self::Fixed64,
            2 => Self::Len,
            3 => Self::Group,
            4 => Self::EndGroup,
            5 => Self::Fixed32,
            _ => return None,
        })
    }
}

/// The tag of a field, and the length or value that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The field number.
    pub number: u32,
    /// The wire type.
    pub wire: Wire,
    /// The size of the tag in bytes.
    pub tag_len: u8,
    /// The distance from the tag to the content: the bytes of the tag and, for [`Wire::Len`], of the length.
    pub head_len: u8,
    /// The size of the content in bytes; 0 for groups, whose end is not known yet.
    pub content_len: u64,
    /// The value, for [`Wire::Varint`].
    pub value: u64,
}

impl Header {
    /// The size of the whole field in bytes, but only of the tag for groups; None when it exceeds 64 bits.
    #[inline]
    pub fn size(&self) -> Option<u64> {
        u64::from(self.head_len).checked_add(self.content_len)
    }
}

/// The tag of field `number` as a number.
pub fn tag(number: u32, wire: Wire) -> u64 {
    u64::from(number) << 3 | wire as u64
}

/// Appends a length-delimited field; its `tag` must have one byte.
pub fn put_field(tag: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    varint::write(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Reads the header at the start of `bytes`; returns None when more bytes are needed. The value of a varint belongs to
/// the header, but the content of other fields does not.
#[inline]
pub fn read(bytes: &[u8], offset: u64) -> Result<Option<Header>> {
    let (tag, tag_len) = match bytes {
        // Nearly all tags have one byte.
        [first, ..] if *first < 0x80 => (u64::from(*first), 1),
        _ => match varint::read(bytes) {
            Varint::Value(tag, len) => (tag, len),
            Varint::Truncated => return Ok(None),
            Varint::Overlong => return Err(WireError::corrupt(offset, "a field's tag has more than 64 bits")),
        },
    };
    let number = tag >> 3;
    if number == 0 || number > u64::from(MAX_FIELD_NUMBER) {
        let message = format!("invalid field number {number}: this is not a protobuf, or it is damaged from here on");
        return Err(WireError::corrupt(offset, message));
    }
    let Some(wire) = Wire::from_number((tag & 7) as u8) else {
        let message = format!("field {number} has wire type {}, which does not exist", tag & 7);
        return Err(WireError::corrupt(offset, message));
    };
    let mut header = Header {
        number: number as u32,
        wire,
        tag_len: tag_len as u8,
        head_len: tag_len as u8,
        content_len: 0,
        value: 0,
    };
    match wire {
        Wire::Fixed64 => header.content_len = 8,
        Wire::Fixed32 => header.content_len = 4,
        Wire::Group | Wire::EndGroup => {}
        Wire::Varint | Wire::Len => {
            let rest = bytes.get(tag_len..).unwrap_or_default();
            let found = if wire == Wire::Len { varint::read(rest) } else { varint::read_value(rest) };
            let (value, len) = match found {
                Varint::Value(value, len) => (value, len),
                Varint::Truncated => return Ok(None),
                Varint::Overlong => {
                    let what = if wire == Wire::Len { "length" } else { "value" };
                    let message = format!("the {what} of field {number} is longer than 64 bits");
                    return Err(WireError::corrupt(offset, message));
                }
            };
            if wire == Wire::Len {
                header.head_len += len as u8;
                header.content_len = value;
            } else {
                header.content_len = len as u64;
                header.value = value;
            }
        }
    }
    Ok(Some(header))
}

/// The error for an end tag without an open group.
pub(crate) fn stray_end(number: u32, offset: u64) -> WireError {
    WireError::corrupt(offset, format!("an end tag of field {number} closes no open group"))
}

/// The error for a field that is longer than the rest of its parent.
pub(crate) fn past_parent(header: &Header, left: u64, offset: u64) -> WireError {
    let message =
        format!("field {} claims {} bytes, but its message ends after {left}", header.number, header.content_len);
    WireError::corrupt(offset, message)
}
