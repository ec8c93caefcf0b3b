//! Framings: the bytes before and after each record of a stream.

use crate::error::{Result, WireError};
use crate::inflate::Wrapper;
use crate::varint::{self, Varint};

/// The framing of a stream, which separates its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// TFRecord: a length in eight bytes and its checksum, the record, the record's checksum.
    TfRecord,
    /// A varint length before each record, as protobuf's `writeDelimitedTo` writes.
    Delimited,
    /// A length of four bytes, little-endian.
    U32Le,
    /// A length of four bytes, big-endian.
    U32Be,
    /// A length of eight bytes, little-endian.
    U64Le,
    /// A length of eight bytes, big-endian.
    U64Be,
    /// Riegeli/records: chunks that contain records.
    Riegeli,
    /// ArrayRecord: chunks as in riegeli, and a footer with the positions of the chunks.
    ArrayRecord,
    /// TFRecords in a gzip file.
    TfRecordGzip,
    /// TFRecords in a zlib file.
    TfRecordZlib,
}

/// All framings with their names, in the order of their numbers.
const NAMES: [(Framing, &str); 10] = [
    (Framing::TfRecord, "tfrecord"),
    (Framing::Delimited, "delimited"),
    (Framing::U32Le, "u32le"),
    (Framing::U32Be, "u32be"),
    (Framing::U64Le, "u64le"),
    (Framing::U64Be, "u64be"),
    (Framing::Riegeli, "riegeli"),
    (Framing::ArrayRecord, "array_record"),
    (Framing::TfRecordGzip, "tfrecord_gzip"),
    (Framing::TfRecordZlib, "tfrecord_zlib"),
];

/// Bytes of the longest head; a head is the bytes before a record.
pub const MAX_HEAD: usize = 12;

/// The head of a record: its length, and the length of the record that it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The size of the head in bytes.
    pub len: u64,
    /// The size of the record in bytes.
    pub content: u64,
    /// How many bytes the head is longer than necessary.
    pub extra: u64,
}

impl Head {
    fn fixed(len: u64, content: u64) -> Self {
        Self { len, content, extra: 0 }
    }
}

impl Framing {
    /// The framing called `name`; None for any other name.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(framing, _)| *framing)
    }

    /// The names of all framings.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(_, name)| *name)
    }

    /// Name of the framing.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(framing, _)| *framing == self).map_or("", |(_, name)| name)
    }

    /// True if the records are in chunks of several records.
    pub fn is_chunked(self) -> bool {
        matches!(self, Self::Riegeli | Self::ArrayRecord)
    }

    /// The compressed format that contains the stream; None for a stream that is the file itself.
    pub fn wrapper(self) -> Option<Wrapper> {
        match self {
            Self::TfRecordGzip => Some(Wrapper::Gzip),
            Self::TfRecordZlib => Some(Wrapper::Zlib),
            _ => None,
        }
    }

    /// True if records can be written in this framing.
    pub fn is_written(self) -> bool {
        self.wrapper().is_none()
    }

    /// The framing of the stream inside a compressed file.
    pub(super) fn inner(self) -> Self {
        if self.wrapper().is_some() { Self::TfRecord } else { self }
    }

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn numbered(number: u8) -> Option<Self> {
        NAMES.get(usize::from(number)).map(|(framing, _)| *framing)
    }

    /// The number of bytes after each record.
    pub(super) fn tail(self) -> u64 {
        if self.inner() == Self::TfRecord { 4 } else { 0 }
    }

    /// The size of the shortest head for a record of `content` bytes.
    pub(super) fn least_head(self, content: u64) -> u64 {
        match self {
            Self::TfRecord | Self::TfRecordGzip | Self::TfRecordZlib => 12,
            Self::Delimited => varint::len(content) as u64,
            Self::U32Le | Self::U32Be => 4,
            Self::U64Le | Self::U64Be => 8,
            Self::Riegeli | Self::ArrayRecord => 0,
        }
    }

    /// The head at the start of `bytes`, whose offset is `offset`; None when more bytes are needed.
    #[inline(always)] // the compiler would not, and a record costs half as much again
    pub(super) fn head(self, bytes: &[u8], offset: u64) -> Result<Option<Head>> {
        match self {
            Self::TfRecord | Self::TfRecordGzip | Self::TfRecordZlib => checked_length(bytes, offset),
            Self::Delimited => match bytes {
                [short @ 0..0x80, ..] => Ok(Some(Head::fixed(1, u64::from(*short)))),
                [low, high @ 1..0x80, ..] => Ok(Some(Head::fixed(2, u64::from(low & 0x7f) | u64::from(*high) << 7))),
                _ => long_varint(bytes, offset),
            },
            Self::U32Le => Ok(bytes.first_chunk().map(|b| Head::fixed(4, u32::from_le_bytes(*b).into()))),
            Self::U32Be => Ok(bytes.first_chunk().map(|b| Head::fixed(4, u32::from_be_bytes(*b).into()))),
            Self::U64Le => Ok(bytes.first_chunk().map(|b| Head::fixed(8, u64::from_le_bytes(*b)))),
            Self::U64Be => Ok(bytes.first_chunk().map(|b| Head::fixed(8, u64::from_be_bytes(*b)))),
            Self::Riegeli | Self::ArrayRecord => {
                Err(WireError::corrupt(offset, "the framing stores records in chunks, which have no length headers"))
            }
        }
    }

    /// Appends the head of a record of `content` bytes.
    pub fn put_head(self, content: u64, out: &mut Vec<u8>) {
        // A length of more than 32 bits was rejected before; see `Framing::fits`.
        let short = u32::try_from(content).unwrap_or(u32::MAX);
        match self {
            Self::TfRecord => {
                let length = content.to_le_bytes();
                out.extend_from_slice(&length);
                out.extend_from_slice(&masked(crc32c::crc32c(&length)).to_le_bytes());
            }
            Self::Delimited => varint::write(content, out),
            Self::U32Le => out.extend_from_slice(&short.to_le_bytes()),
            Self::U32Be => out.extend_from_slice(&short.to_be_bytes()),
            Self::U64Le => out.extend_from_slice(&content.to_le_bytes()),
            Self::U64Be => out.extend_from_slice(&content.to_be_bytes()),
            Self::Riegeli | Self::ArrayRecord | Self::TfRecordGzip | Self::TfRecordZlib => {}
        }
    }

    /// True when the head has room for the length `content`.
    pub fn fits(self, content: u64) -> bool {
        !matches!(self, Self::U32Le | Self::U32Be) || u32::try_from(content).is_ok()
    }
}

/// A CRC-32C in TensorFlow's masked form.
pub fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[inline(never)]
fn long_varint(bytes: &[u8], offset: u64) -> Result<Option<Head>> {
    match varint::read(bytes) {
        Varint::Value(content, len) => {
            Ok(Some(Head { len: len as u64, content, extra: (len - varint::len(content)) as u64 }))
        }
        Varint::Truncated => Ok(None),
        Varint::Overlong => Err(WireError::corrupt(offset, "the length of a record has more than 64 bits")),
    }
}

#[inline]
fn checked_length(bytes: &[u8], offset: u64) -> Result<Option<Head>> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
    let Some(sum) = rest.first_chunk() else { return Ok(None) };
    if masked(crc32c::crc32c(length)) != u32::from_le_bytes(*sum) {
        return Err(WireError::corrupt(offset, "the length of a record does not match its checksum"));
    }
    Ok(Some(Head::fixed(12, u64::from_le_bytes(*length))))
}
