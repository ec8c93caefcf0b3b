//! Elements of tensors, computed from their stored form. Each transformation is a source over other sources. The cost
//! of a read depends on its range, except for varints, which are counted once. Memory does not grow with the tensor.

mod bits;
mod block;
mod convert;
mod fill;
mod gather;
mod numbers;
mod quantized;
mod swap;
mod tiles;
mod varints;

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{Kind, Result, WireError};
use crate::source::Source;

pub use convert::Float;
pub(crate) use numbers::Numbers;
pub use tiles::{Cut, Tile};
pub use varints::Digits;

/// A source that several readers share.
pub type Shared = Arc<dyn Source + Send + Sync>;

/// The computation of a source's bytes; it is called only for ranges within `size`.
trait Work: Send + Sync {
    fn size(&self) -> u64;

    /// Fills `buffer` with the bytes from `offset` on.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

/// A source that computes its bytes from other sources when they are read.
pub struct Computed {
    work: Box<dyn Work>,
    stride: u64,
    stored: u64,
    distinct: u64,
}

impl Computed {
    /// Elements of `width` bytes with their byte order reversed.
    pub fn swapped(source: Shared, width: usize) -> Result<Self> {
        let (stride, stored) = (source.stride(), source.stored());
        Ok(Self::of(swap::Swapped::new(source, width)?, stride, stored))
    }

    /// `count` elements of `bits` bits each, unpacked from a bit stream to one byte each; `signed` extends the sign.
    pub fn unpacked(source: Shared, bits: u32, signed: bool, count: u64) -> Result<Self> {
        let (stride, stored) = (source.stride(), source.stored());
        Ok(Self::of(bits::Unpacked::new(source, bits, signed, count)?, stride, stored))
    }

    /// Elements of `bits` bits in one byte each, whose upper bits are undefined. They are cleared, or filled with the
    /// sign if `signed`.
    pub fn cleaned(source: Shared, bits: u32, signed: bool) -> Result<Self> {
        let (stride, stored) = (source.stride(), source.stored());
        Ok(Self::of(bits::Cleaned::new(source, bits, signed)?, stride, stored))
    }

    /// The lowest `bits` bits of every byte, packed into a bit stream.
    pub fn packed(source: Shared, bits: u32) -> Result<Self> {
        let (stride, stored) = (source.stride(), source.stored());
        Ok(Self::of(bits::Packed::new(source, bits)?, stride, stored))
    }

    /// `count` elements of `width` bytes. They are the elements of `source`, padded with its last element, or with
    /// zeros if it is empty.
    pub fn filled(source: Shared, width: usize, count: u64) -> Result<Self> {
        let (stride, stored) = (source.stride(), source.stored());
        let distinct = source.len();
        Ok(Self { distinct, ..Self::of(fill::Filled::new(source, width, count)?, stride, stored) })
    }

    /// `count` varints as elements of `width` bytes; with `repeat`, the last varint replaces missing ones. `source` is
    /// not read before the first read of the result.
    pub fn varints(source: Shared, digits: Digits, width: usize, count: u64, repeat: bool) -> Result<Self> {
        let (stride, stored) = (source.stride(), source.stored());
        // Each varint takes at least one byte, which limits their number. The exact number is not known yet.
        let most = source.len().saturating_mul(width as u64);
        let made = Self::of(varints::Varints::new(source, digits, width, count, repeat)?, stride, stored);
        Ok(if repeat { Self { distinct: made.len().min(most), ..made } } else { made })
    }

    /// The elements of the tensor that `cut` selects, in row-major order; `tiles` must cover the tensor without
    /// overlap.
    pub fn gathered(tiles: Vec<Tile>, shape: &[u64], width: usize, cut: &Cut) -> Result<Self> {
        let stride = tiles.iter().map(|tile| tile.source.stride()).min().unwrap_or(1 << 20);
        let stored = tiles.iter().map(|tile| tile.source.stored()).fold(0, u64::saturating_add);
        Ok(Self::of(tiles::Gathered::new(tiles, shape, width, cut)?, stride, stored))
    }

    /// `count` numbers as floats of type `to`. `from` is a type of numbers, such as `F16`, or a block type of GGUF,
    /// such as `Q4_K`. `big_endian` is the byte order of the scales in blocks.
    pub fn converted(source: Shared, from: &str, to: Float, count: u64, big_endian: bool) -> Result<Self> {
        let (stride, stored) = (source.stride(), source.stored());
        Ok(Self::of(convert::Converted::new(source, from, to, count, big_endian)?, stride, stored))
    }

    fn of(work: impl Work + 'static, stride: u64, stored: u64) -> Self {
        let distinct = work.size();
        Self { work: Box::new(work), stride, stored, distinct }
    }

    /// The number of bytes before the part in which one element repeats up to the end; all bytes without such a part.
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    fn check(&self, offset: u64, len: usize) -> Result<()> {
        let size = self.work.size();
        if offset.checked_add(len as u64).is_some_and(|end| end <= size) {
            return Ok(());
        }
        Err(WireError::corrupt(offset, format!("{len} bytes are needed, but only {size} are available")))
    }
}

impl Source for Computed {
    fn len(&self) -> u64 {
        self.work.size()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.check(offset, len)?;
        let mut out = zeros(len)?;
        self.work.fill(offset, &mut out)?;
        Ok(Cow::Owned(out))
    }

    fn stride(&self) -> u64 {
        self.stride
    }

    fn stored(&self) -> u64 {
        self.stored
    }

    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset, buffer.len())?;
        self.work.fill(offset, buffer)
    }
}

/// Fills `buffer` by calls of `fill`, which only gets whole elements of `width` bytes: the number of the first element,
/// and a buffer for the elements.
fn in_whole(
    width: usize,
    offset: u64,
    buffer: &mut [u8],
    fill: impl FnOnce(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let first = offset / width as u64;
    let skip = usize::try_from(offset % width as u64).unwrap_or_default();
    if skip == 0 && buffer.len().is_multiple_of(width) {
        return fill(first, buffer);
    }
    let mut whole = zeros(buffer.len().saturating_add(skip).div_ceil(width).saturating_mul(width))?;
    fill(first, &mut whole)?;
    buffer.iter_mut().zip(whole.iter().skip(skip)).for_each(|(to, from)| *to = *from);
    Ok(())
}

/// A buffer of `len` zeros; fails with a `Limit` error when memory cannot be allocated.
fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| {
        WireError::new(Kind::Limit, format!("not enough memory to read {len} bytes at once: read them in pieces"))
    })?;
    out.resize(len, 0);
    Ok(out)
}

fn check_width(width: usize) -> Result<()> {
    if [1, 2, 4, 8, 16].contains(&width) {
        return Ok(());
    }
    Err(WireError::new(Kind::Syntax, format!("invalid element width: use 1, 2, 4, 8 or 16 bytes, not {width}")))
}

/// The size of `count` elements of `width` bytes; fails with a `Limit` error from 2^63 bytes on.
fn bytes_of(count: u64, width: usize) -> Result<u64> {
    count.checked_mul(width as u64).filter(|size| i64::try_from(*size).is_ok()).ok_or_else(|| {
        WireError::new(Kind::Limit, format!("{count} elements of {width} bytes are more than 2^63 bytes"))
    })
}

/// Fails unless `source` has exactly `need` bytes.
fn check_len(source: &Shared, need: u64) -> Result<()> {
    let found = source.len();
    if found == need {
        return Ok(());
    }
    Err(WireError::new(Kind::Corrupt, format!("a tensor has {found} bytes, but its elements take {need}")))
}

#[cfg(test)]
mod tests;
