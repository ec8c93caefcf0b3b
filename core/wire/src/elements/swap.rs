//! Elements with a reversed byte order.

use super::{Shared, Work, check_width, in_whole};
use crate::error::{Kind, Result, WireError};

pub(super) struct Swapped {
    source: Shared,
    width: usize,
}

impl Swapped {
    pub(super) fn new(source: Shared, width: usize) -> Result<Self> {
        check_width(width)?;
        if source.len().is_multiple_of(width as u64) {
            return Ok(Self { source, width });
        }
        let message = format!("{} bytes are not a whole number of elements of {width} bytes each", source.len());
        Err(WireError::new(Kind::Corrupt, message))
    }
}

impl Work for Swapped {
    fn size(&self) -> u64 {
        self.source.len()
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        in_whole(self.width, offset, buffer, |first, whole| {
            self.source.read_into(first * self.width as u64, whole)?;
            match self.width {
                1 => {}
                2 => reverse::<2>(whole),
                4 => reverse::<4>(whole),
                8 => reverse::<8>(whole),
                width => whole.chunks_exact_mut(width).for_each(<[u8]>::reverse),
            }
            Ok(())
        })
    }
}

fn reverse<const WIDTH: usize>(whole: &mut [u8]) {
    whole.as_chunks_mut::<WIDTH>().0.iter_mut().for_each(|element| element.reverse());
}
