//! Tensors that only store their first elements; the last stored element repeats up to the end.

use super::{Shared, Work, bytes_of, check_width, in_whole};
use crate::error::{Kind, Result, WireError};

pub(super) struct Filled {
    source: Shared,
    width: usize,
    size: u64,
}

impl Filled {
    pub(super) fn new(source: Shared, width: usize, count: u64) -> Result<Self> {
        check_width(width)?;
        let size = bytes_of(count, width)?;
        let found = source.len();
        if found <= size && found.is_multiple_of(width as u64) {
            return Ok(Self { source, width, size });
        }
        let message = format!(
            "{found} bytes do not fit {count} elements of {width} bytes each: there are too many, or the last element is cut off"
        );
        Err(WireError::new(Kind::Corrupt, message))
    }
}

impl Work for Filled {
    fn size(&self) -> u64 {
        self.size
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let there = self.source.len().saturating_sub(offset);
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(buffer.len());
        let (stored, rest) = buffer.split_at_mut(there);
        if !stored.is_empty() {
            self.source.read_into(offset, stored)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let last = match self.source.len().checked_sub(self.width as u64) {
            Some(at) => self.source.read(at, self.width)?.into_owned(),
            None => vec![0; self.width],
        };
        repeat(&last, offset + there as u64, rest)
    }
}

/// Fills `buffer`, which begins at byte offset `offset`, with repetitions of `element`.
pub(super) fn repeat(element: &[u8], offset: u64, buffer: &mut [u8]) -> Result<()> {
    if element.iter().all(|byte| Some(byte) == element.first()) {
        buffer.fill(element.first().copied().unwrap_or_default());
        return Ok(());
    }
    in_whole(element.len(), offset, buffer, |_, whole| {
        match element.len() {
            2 => repeat_element::<2>(element, whole),
            4 => repeat_element::<4>(element, whole),
            8 => repeat_element::<8>(element, whole),
            _ => repeat_element::<16>(element, whole),
        }
        Ok(())
    })
}

fn repeat_element<const WIDTH: usize>(element: &[u8], whole: &mut [u8]) {
    if let Some(element) = element.first_chunk::<WIDTH>() {
        whole.as_chunks_mut::<WIDTH>().0.fill(*element);
    }
}
