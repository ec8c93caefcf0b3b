//! The headers and trailers around deflated data.

use super::Phase;
use crate::error::{Result, WireError};

/// Most bytes of a header; a gzip header may contain names and comments.
pub(super) const MOST: usize = 4096;

/// The format around deflated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapper {
    /// RFC 1952; a file may consist of several members.
    Gzip,
    /// RFC 1950.
    Zlib,
}

impl Wrapper {
    /// Bytes of the trailer after the data.
    pub(super) fn tail(self) -> usize {
        if self == Self::Gzip { 8 } else { 4 }
    }

    pub(super) fn behind(self) -> Phase {
        if self == Self::Gzip { Phase::Head(Vec::new()) } else { Phase::Ended }
    }
}

/// The checksum of the data of one member.
pub(super) enum Sum {
    Gzip(crc32fast::Hasher),
    Zlib(adler2::Adler32),
}

impl Sum {
    pub(super) fn new(wrapper: Wrapper) -> Self {
        match wrapper {
            Wrapper::Gzip => Self::Gzip(crc32fast::Hasher::new()),
            Wrapper::Zlib => Self::Zlib(adler2::Adler32::new()),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Gzip(sum) => sum.update(bytes),
            Self::Zlib(sum) => sum.write_slice(bytes),
        }
    }

    /// True if `trailer` begins with this checksum.
    pub(super) fn agrees(&self, trailer: &[u8]) -> bool {
        match self {
            Self::Gzip(sum) => trailer.starts_with(&sum.clone().finalize().to_le_bytes()),
            Self::Zlib(sum) => trailer == sum.checksum().to_be_bytes(),
        }
    }
}

/// The length of the header at the start of `seen`; None when more bytes are needed.
pub(super) fn length(wrapper: Wrapper, seen: &[u8], offset: u64) -> Result<Option<usize>> {
    let found = match wrapper {
        Wrapper::Gzip => gzip(seen),
        Wrapper::Zlib => zlib(seen),
    };
    match found {
        Some(None) if seen.len() >= MOST => Err(WireError::corrupt(offset, "the header of a gzip member never ends")),
        Some(len) => Ok(len),
        None => Err(WireError::corrupt(offset, "invalid gzip or zlib header")),
    }
}

/// The length of a zlib header: Some(None) when more bytes are needed, None for bytes that are not a header.
fn zlib(seen: &[u8]) -> Option<Option<usize>> {
    let [method, flags, ..] = seen else { return Some(None) };
    let sound = method & 15 == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31);
    // Bit 5 means that the writer used its own dictionary.
    (sound && flags & 32 == 0).then_some(Some(2))
}

fn gzip(seen: &[u8]) -> Option<Option<usize>> {
    let magic = [0x1f, 0x8b, 8];
    if seen.iter().zip(magic).any(|(byte, wanted)| *byte != wanted) {
        return None;
    }
    let Some(flags) = seen.get(3).filter(|_| seen.len() >= 10) else { return Some(None) };
    let mut at = 10;
    if flags & 4 > 0 {
        let Some([low, high]) = seen.get(at..at + 2) else { return Some(None) };
        at += 2 + usize::from(u16::from_le_bytes([*low, *high]));
    }
    for text in [8, 16] {
        if flags & text > 0 {
            let Some(len) = seen.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0)) else {
                return Some(None);
            };
            at += len + 1;
        }
    }
    at += if flags & 2 > 0 { 2 } else { 0 };
    Some((at <= seen.len()).then_some(at))
}
