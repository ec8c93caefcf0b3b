//! Elements narrower than a byte: packed into a bit stream, or one element per byte.

use super::{Shared, Work, check_len};
use crate::error::{Kind, Result, WireError};

/// Elements that are processed at a time.
const BLOCK: usize = 1 << 17;

/// The way to extend a narrow element to a byte: with zeros or with the sign.
#[derive(Clone, Copy)]
struct Extension {
    bits: u32,
    signed: bool,
}

impl Extension {
    fn new(bits: u32, signed: bool) -> Result<Self> {
        if (1..=8).contains(&bits) {
            return Ok(Self { bits, signed });
        }
        Err(WireError::new(Kind::Syntax, format!("invalid width of packed elements: use 1 to 8 bits, not {bits}")))
    }

    /// The lowest bits of `value`, extended with zeros or with the sign.
    fn extend(self, value: u8) -> u8 {
        let free = 8 - self.bits;
        let high = value << free;
        if self.signed { (high.cast_signed() >> free).cast_unsigned() } else { high >> free }
    }
}

/// The bytes that `count` elements of `bits` bits take when packed.
fn packed_len(count: u64, bits: u32) -> Result<u64> {
    let all = count.checked_mul(u64::from(bits));
    let all = all.ok_or_else(|| WireError::new(Kind::Limit, format!("{count} elements are more than 2^61 bytes")))?;
    Ok(all.div_ceil(8))
}

pub(super) struct Unpacked {
    source: Shared,
    extension: Extension,
    count: u64,
}

impl Unpacked {
    pub(super) fn new(source: Shared, bits: u32, signed: bool, count: u64) -> Result<Self> {
        let extension = Extension::new(bits, signed)?;
        check_len(&source, packed_len(count, bits)?)?;
        Ok(Self { source, extension, count })
    }
}

impl Work for Unpacked {
    fn size(&self) -> u64 {
        self.count
    }

    fn fill(&self, mut offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bits = self.extension.bits;
        for part in buffer.chunks_mut(BLOCK) {
            let from = offset * u64::from(bits);
            offset += part.len() as u64;
            let len = (offset * u64::from(bits)).div_ceil(8) - from / 8;
            let bytes = self.source.read(from / 8, usize::try_from(len).unwrap_or(usize::MAX))?;
            match (bits, from % 8) {
                (4, 0) => take_halves(&bytes, self.extension, part),
                (_, skip) => take_bits(&bytes, u32::try_from(skip).unwrap_or_default(), self.extension, part),
            }
        }
        Ok(())
    }
}

/// Unpacks elements from `bytes`, from bit `skip` on, into `out`.
fn take_bits(bytes: &[u8], skip: u32, extension: Extension, out: &mut [u8]) {
    let mut bytes = bytes.iter();
    let (mut held, mut count) = (u32::from(bytes.next().copied().unwrap_or_default()) >> skip, 8 - skip);
    for element in out {
        if count < extension.bits {
            held |= u32::from(bytes.next().copied().unwrap_or_default()) << count;
            count += 8;
        }
        *element = extension.extend((held & 0xff) as u8);
        held >>= extension.bits;
        count -= extension.bits;
    }
}

/// Unpacks elements of four bits, by far the most common width; the first element begins a byte.
fn take_halves(bytes: &[u8], extension: Extension, out: &mut [u8]) {
    let (pairs, last) = out.as_chunks_mut::<2>();
    let halves = |byte: &u8| [byte & 15, byte >> 4];
    if extension.signed {
        let signed = |half: u8| (half ^ 8).wrapping_sub(8);
        pairs.iter_mut().zip(bytes).for_each(|(pair, byte)| *pair = halves(byte).map(signed));
    } else {
        pairs.iter_mut().zip(bytes).for_each(|(pair, byte)| *pair = halves(byte));
    }
    last.iter_mut().zip(bytes.last()).for_each(|(element, byte)| *element = extension.extend(*byte));
}

pub(super) struct Cleaned {
    source: Shared,
    extension: Extension,
}

impl Cleaned {
    pub(super) fn new(source: Shared, bits: u32, signed: bool) -> Result<Self> {
        Ok(Self { source, extension: Extension::new(bits, signed)? })
    }
}

impl Work for Cleaned {
    fn size(&self) -> u64 {
        self.source.len()
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.source.read_into(offset, buffer)?;
        buffer.iter_mut().for_each(|element| *element = self.extension.extend(*element));
        Ok(())
    }
}

pub(super) struct Packed {
    source: Shared,
    bits: u32,
    size: u64,
}

impl Packed {
    pub(super) fn new(source: Shared, bits: u32) -> Result<Self> {
        Extension::new(bits, false)?;
        let size = packed_len(source.len(), bits)?;
        Ok(Self { source, bits, size })
    }
}

impl Work for Packed {
    fn size(&self) -> u64 {
        self.size
    }

    fn fill(&self, mut offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bits = u64::from(self.bits);
        for part in buffer.chunks_mut(BLOCK) {
            let first = offset * 8 / bits;
            let skip = u32::try_from(offset * 8 % bits).unwrap_or_default();
            offset += part.len() as u64;
            let end = (offset * 8).div_ceil(bits).min(self.source.len());
            let elements = self.source.read(first, usize::try_from(end - first).unwrap_or(usize::MAX))?;
            match self.bits {
                4 => put_halves(&elements, part),
                bits => put_bits(&elements, skip, bits, part),
            }
        }
        Ok(())
    }
}

/// Packs the lowest `bits` bits of each element into `out`, but skips the first `skip` bits. After the last element,
/// zeros follow.
fn put_bits(elements: &[u8], skip: u32, bits: u32, out: &mut [u8]) {
    let mask = 0xff >> (8 - bits);
    let mut elements = elements.iter().map(|element| u32::from(*element) & mask);
    let (mut held, mut count) = (elements.next().unwrap_or_default() >> skip, bits - skip);
    for byte in out {
        while count < 8 {
            held |= elements.next().unwrap_or_default() << count;
            count += bits;
        }
        *byte = (held & 0xff) as u8;
        held >>= 8;
        count -= 8;
    }
}

/// Packs elements of four bits.
fn put_halves(elements: &[u8], out: &mut [u8]) {
    let (pairs, last) = elements.as_chunks::<2>();
    out.iter_mut().zip(pairs).for_each(|(byte, [low, high])| *byte = low & 15 | high << 4);
    out.iter_mut().skip(pairs.len()).zip(last).for_each(|(byte, element)| *byte = element & 15);
}
