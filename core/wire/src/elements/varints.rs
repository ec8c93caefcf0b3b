//! Varints as elements of fixed width. The ends of varints are counted once for each block, so that a read scans at
//! most one block before its first element.

use std::sync::OnceLock;

use super::fill::repeat;
use super::{Shared, Work, bytes_of, check_width, in_whole};
use crate::error::{Kind, Result, WireError};
use crate::varint::{self, Varint};

/// Most blocks with a count, which take half a megabyte, however many varints there are.
const BLOCKS: u64 = 1 << 16;

/// Bytes that are read at a time.
const WINDOW: u64 = 1 << 20;

/// The encoding of a number in a varint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    /// Two's complement, truncated to the element's width.
    Plain,
    /// ZigZag, in which the lowest bit is the sign.
    ZigZag,
    /// A bool, 0 or 1.
    Truth,
}

impl Digits {
    fn element(self, value: u64, width: usize) -> [u8; 8] {
        let value = match self {
            Self::Plain => value,
            Self::ZigZag => {
                let value = if width > 4 { value } else { value & u64::from(u32::MAX) };
                (value >> 1) ^ (value & 1).wrapping_neg()
            }
            Self::Truth => u64::from(value != 0),
        };
        value.to_le_bytes()
    }
}

pub(super) struct Varints {
    source: Shared,
    digits: Digits,
    width: usize,
    count: u64,
    repeat: bool,
    ends: OnceLock<Ends>,
}

/// The number of varints that end before each block, and the total.
struct Ends {
    block: u64,
    before: Vec<u64>,
    total: u64,
}

impl Varints {
    pub(super) fn new(source: Shared, digits: Digits, width: usize, count: u64, repeat: bool) -> Result<Self> {
        check_width(width)?;
        bytes_of(count, width)?;
        if width > 8 {
            let message = format!("elements have {width} bytes, but varint elements have at most 8");
            return Err(WireError::new(Kind::Syntax, message));
        }
        Ok(Self { source, digits, width, count, repeat, ends: OnceLock::new() })
    }

    /// Concurrent first calls may both count the ends. Neither waits for the other, because reads of the source may
    /// need a lock.
    fn ends(&self) -> Result<&Ends> {
        if let Some(ends) = self.ends.get() {
            return Ok(ends);
        }
        let ends = self.counted()?;
        let few = ends.total < self.count && !self.repeat;
        if few || ends.total > self.count {
            let message = format!("a tensor has {} varints, but its shape needs {}", ends.total, self.count);
            return Err(WireError::new(Kind::Corrupt, message));
        }
        Ok(self.ends.get_or_init(|| ends))
    }

    fn counted(&self) -> Result<Ends> {
        let size = self.source.len();
        let block = self.source.stride().max(size.div_ceil(BLOCKS)).max(1);
        let mut ends = Ends { block, before: Vec::new(), total: 0 };
        let (mut at, mut last) = (0, 0);
        while at < size {
            if at.is_multiple_of(block) {
                ends.before.push(ends.total);
            }
            let len = WINDOW.min(size - at).min(block - at % block);
            let bytes = self.window(at, len)?;
            ends.total += bytes.iter().filter(|byte| **byte < 0x80).count() as u64;
            last = bytes.last().copied().unwrap_or_default();
            at += len;
        }
        if last < 0x80 { Ok(ends) } else { Err(WireError::corrupt(size, "the last varint of a tensor is cut off")) }
    }

    fn window(&self, at: u64, len: u64) -> Result<std::borrow::Cow<'_, [u8]>> {
        self.source.read(at, usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// The offset of varint `number`.
    fn place(&self, ends: &Ends, number: u64) -> Result<u64> {
        let Some(previous) = number.checked_sub(1) else { return Ok(0) };
        let block = ends.before.partition_point(|before| *before <= previous).saturating_sub(1);
        let mut left = previous - ends.before.get(block).copied().unwrap_or_default();
        let mut at = block as u64 * ends.block;
        while at < self.source.len() {
            let bytes = self.window(at, WINDOW.min(self.source.len() - at).min(ends.block))?;
            for (byte, place) in bytes.iter().zip(at + 1..) {
                if *byte < 0x80 && left == 0 {
                    return Ok(place);
                }
                left -= u64::from(*byte < 0x80);
            }
            at += bytes.len() as u64;
        }
        Err(WireError::new(Kind::Corrupt, "the varints of a tensor have changed since they were counted"))
    }

    /// Fills `whole` with the elements from number `first` on; all of them must exist.
    fn decode(&self, ends: &Ends, first: u64, whole: &mut [u8]) -> Result<()> {
        if whole.is_empty() {
            return Ok(());
        }
        let at = self.place(ends, first)?;
        match self.width {
            1 => self.decode_from::<1>(at, whole),
            2 => self.decode_from::<2>(at, whole),
            4 => self.decode_from::<4>(at, whole),
            _ => self.decode_from::<8>(at, whole),
        }
    }

    /// Fills `whole` with the elements that begin at byte offset `at`.
    fn decode_from<const WIDTH: usize>(&self, mut at: u64, whole: &mut [u8]) -> Result<()> {
        let mut elements = whole.as_chunks_mut::<WIDTH>().0;
        while !elements.is_empty() {
            let most = (elements.len() as u64).saturating_mul(varint::MAX_LEN as u64);
            let bytes = self.window(at, most.min(1 << 16).min(self.source.len().saturating_sub(at)))?;
            let (taken, count) = decode_some(self.digits, &bytes, elements).map_err(|error| error.shifted(at))?;
            if count == 0 {
                return Err(WireError::corrupt(at, "a varint of a tensor is cut off"));
            }
            at += taken as u64;
            elements = elements.split_at_mut_checked(count).map(|(_, rest)| rest).unwrap_or_default();
        }
        Ok(())
    }
}

/// Decodes varints into `elements` while `bytes` last; returns the bytes used and the number of elements.
fn decode_some<const WIDTH: usize>(
    digits: Digits,
    bytes: &[u8],
    elements: &mut [[u8; WIDTH]],
) -> Result<(usize, usize)> {
    let mut rest = bytes;
    let mut count = 0;
    for place in elements {
        let (value, after) = match rest {
            [byte, after @ ..] if *byte < 0x80 => (u64::from(*byte), after),
            _ => match varint::read_value(rest) {
                Varint::Value(value, len) => (value, rest.get(len..).unwrap_or_default()),
                Varint::Truncated => break,
                Varint::Overlong => {
                    let at = (bytes.len() - rest.len()) as u64;
                    return Err(WireError::corrupt(at, "a varint of a tensor has more than ten bytes"));
                }
            },
        };
        if let Some(element) = digits.element(value, WIDTH).first_chunk::<WIDTH>() {
            *place = *element;
        }
        rest = after;
        count += 1;
    }
    Ok((bytes.len() - rest.len(), count))
}

impl Work for Varints {
    fn size(&self) -> u64 {
        self.count * self.width as u64
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        in_whole(self.width, offset, buffer, |first, whole| {
            let ends = self.ends()?;
            let there = ends.total.saturating_sub(first).saturating_mul(self.width as u64);
            let there = usize::try_from(there).unwrap_or(usize::MAX).min(whole.len());
            let (stored, rest) = whole.split_at_mut(there);
            self.decode(ends, first, stored)?;
            if rest.is_empty() {
                return Ok(());
            }
            let mut last = vec![0; self.width];
            if let Some(number) = ends.total.checked_sub(1) {
                self.decode(ends, number, &mut last)?;
            }
            repeat(&last, 0, rest)
        })
    }
}
