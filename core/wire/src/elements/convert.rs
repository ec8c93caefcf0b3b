//! Conversion of numbers of any type, and of quantized blocks, to floats of another type.

use super::numbers::Numbers;
use super::quantized::Blocks;
use super::{Shared, Work, bytes_of, check_len, in_whole};
use crate::error::{Kind, Result, WireError};

/// Elements that are decoded at a time: a multiple of every block's length.
const AT_ONCE: usize = 2048;

/// A type of floats to which numbers are converted. A number is rounded to the nearest float, and ties to even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    /// 64 bits.
    F64,
    /// 32 bits.
    F32,
    /// 16 bits, as defined by IEEE 754.
    F16,
    /// The upper 16 bits of an F32.
    Bf16,
}

impl Float {
    /// The type called `name`, such as `BF16`; None for any other name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            _ => return None,
        })
    }

    fn width(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    fn encode(self, numbers: &[f64], out: &mut [u8]) {
        match self {
            Self::F64 => each(numbers, out, f64::to_le_bytes),
            Self::F32 => each(numbers, out, |number| (number as f32).to_le_bytes()),
            Self::F16 => each(numbers, out, |number| narrowed::<5, 10>(number).to_le_bytes()),
            Self::Bf16 => each(numbers, out, |number| narrowed::<8, 7>(number).to_le_bytes()),
        }
    }
}

fn each<const WIDTH: usize>(numbers: &[f64], out: &mut [u8], bytes: impl Fn(f64) -> [u8; WIDTH]) {
    for (to, number) in out.as_chunks_mut::<WIDTH>().0.iter_mut().zip(numbers) {
        *to = bytes(*number);
    }
}

/// The bits of the nearest float with these numbers of exponent and mantissa bits; with the sign, it has 16 bits.
fn narrowed<const EXPONENT: u32, const MANTISSA: u32>(number: f64) -> u16 {
    let sign = u16::from(number.is_sign_negative()) << 15;
    let infinity = ((1u16 << EXPONENT) - 1) << MANTISSA;
    let bias = (1i32 << (EXPONENT - 1)) - 1;
    let exponent = ((number.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    if number.is_nan() {
        return sign | infinity | 1 << (MANTISSA - 1);
    }
    if exponent > bias {
        return sign | infinity;
    }
    let exponent = exponent.max(1 - bias);
    // The number is converted to units of the last place. Scaling by a power of two is exact, so this rounds only once.
    let units = (number.abs() * 2f64.powi(MANTISSA.cast_signed() - exponent)).round_ties_even() as u16;
    // The leading bit of `units` increases the exponent by one, and so does a carry from rounding.
    sign | ((((exponent + bias - 1) as u16) << MANTISSA) + units)
}

enum Decoder {
    Numbers(Numbers),
    Blocks(Blocks),
}

impl Decoder {
    /// The number of elements in a block, and the bytes that the block takes.
    fn block(&self) -> (usize, usize) {
        match self {
            Self::Numbers(numbers) => (1, numbers.width()),
            Self::Blocks(blocks) => (blocks.elements(), blocks.bytes()),
        }
    }

    fn decode(&self, bytes: &[u8], out: &mut [f64]) {
        match self {
            Self::Numbers(numbers) => {
                numbers.decode(bytes, out);
            }
            Self::Blocks(blocks) => blocks.decode(bytes, out),
        }
    }
}

pub(super) struct Converted {
    source: Shared,
    decoder: Decoder,
    to: Float,
    size: u64,
}

impl Converted {
    pub(super) fn new(source: Shared, from: &str, to: Float, count: u64, big_endian: bool) -> Result<Self> {
        let decoder = Blocks::named(from, big_endian).map(Decoder::Blocks);
        let numbers = || Numbers::named(from).filter(|_| !from.starts_with('C')).map(Decoder::Numbers);
        let decoder = decoder.or_else(numbers).ok_or_else(|| {
            WireError::new(Kind::Unsupported, format!("{from} elements cannot be converted to floats"))
        })?;
        let size = bytes_of(count, to.width())?;
        let (elements, bytes) = decoder.block();
        if !count.is_multiple_of(elements as u64) {
            let message = format!("{count} elements are not a whole number of {from} blocks of {elements} elements");
            return Err(WireError::new(Kind::Corrupt, message));
        }
        check_len(&source, bytes_of(count / elements as u64, bytes)?)?;
        Ok(Self { source, decoder, to, size })
    }
}

impl Work for Converted {
    fn size(&self) -> u64 {
        self.size
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        in_whole(self.to.width(), offset, buffer, |first, out| {
            let (elements, bytes) = self.decoder.block();
            let count = out.len() / self.to.width();
            let skip = usize::try_from(first % elements as u64).unwrap_or_default();
            let blocks = skip.saturating_add(count).div_ceil(elements);
            let stored = self.source.read(first / elements as u64 * bytes as u64, blocks.saturating_mul(bytes))?;
            let mut numbers = [0.0; AT_ONCE];
            let (mut left, mut rest) = (skip, out);
            for some in stored.chunks(AT_ONCE / elements * bytes) {
                self.decoder.decode(some, &mut numbers);
                let found = numbers.get(left..some.len() / bytes * elements).unwrap_or_default();
                let here = found.len().saturating_mul(self.to.width()).min(rest.len());
                let (filled, behind) = rest.split_at_mut(here);
                self.to.encode(found, filled);
                (left, rest) = (0, behind);
            }
            Ok(())
        })
    }
}
