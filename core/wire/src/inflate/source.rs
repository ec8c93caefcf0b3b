//! A source of the inflated bytes of a compressed file, at any offset.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use super::{Inflater, Points, Wrapper};
use crate::error::{Result, WireError};
use crate::source::Source;

/// Fewest and most bytes of a file that are read at a time.
const LEAST: u64 = 4 << 10;
const LARGEST: u64 = 256 << 10;

/// The inflated bytes of a file.
pub struct Inflated<'a> {
    /// The file.
    pub file: &'a dyn Source,
    /// Format of the file.
    pub wrapper: Wrapper,
    /// Points of the file.
    pub points: &'a Points,
    /// Number of inflated bytes.
    pub len: u64,
    /// The inflater of the last read, with which the next read continues if possible.
    pub last: &'a Mutex<Option<Inflater>>,
}

impl Source for Inflated<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let mut out = vec![0; len];
        self.read_into(offset, &mut out)?;
        Ok(Cow::Owned(out))
    }

    fn carry_on(&self) -> Result<()> {
        self.file.carry_on()
    }

    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut inflater = self.begin(offset);
        let end = offset.saturating_add(buffer.len() as u64);
        while inflater.made() < end {
            let left = self.file.len().saturating_sub(inflater.taken());
            // This many bytes of the file correspond to the wanted output on average.
            let share = u128::from(end - inflater.made()) * u128::from(self.file.len()) / u128::from(self.len.max(1));
            let want = u64::try_from(share).unwrap_or(LARGEST).clamp(LEAST, LARGEST).min(left);
            let input = self.file.read(inflater.taken(), usize::try_from(want).unwrap_or(0))?;
            if !fill(&mut inflater, &input, offset, buffer)? && left == want {
                return Err(WireError::corrupt(inflater.taken(), "the compressed data ends too soon"));
            }
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(inflater);
        Ok(())
    }
}

impl Inflated<'_> {
    /// An inflater whose position is at or before byte `offset` of the output.
    fn begin(&self, offset: u64) -> Inflater {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let point = self.points.before(offset);
        match last.filter(|last| last.made() <= offset && point.is_none_or(|point| point.made() <= last.made())) {
            Some(last) => last,
            None => point.map_or_else(|| Inflater::new(self.wrapper), |point| Inflater::at(self.wrapper, point)),
        }
    }
}

/// Inflates `input` and copies the bytes that belong in `buffer`; `offset` is the offset of the buffer's first byte.
/// Returns true when the buffer is full.
fn fill(inflater: &mut Inflater, mut input: &[u8], offset: u64, buffer: &mut [u8]) -> Result<bool> {
    let end = offset.saturating_add(buffer.len() as u64);
    loop {
        let (made, most) = (inflater.made(), usize::try_from(end - inflater.made()).unwrap_or(usize::MAX));
        let step = inflater.step(input, most)?;
        let passed = usize::try_from(offset.saturating_sub(made)).unwrap_or(usize::MAX).min(step.bytes.len());
        let bytes = step.bytes.get(passed..).unwrap_or_default();
        let at = usize::try_from(made.saturating_sub(offset)).unwrap_or(usize::MAX);
        let place = buffer.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
        place.ok_or_else(|| WireError::corrupt(made, "more data was inflated than requested"))?.copy_from_slice(bytes);
        let (used, more) = (step.used, step.more);
        input = input.get(used..).unwrap_or_default();
        if inflater.made() >= end {
            return Ok(true);
        }
        if input.is_empty() && !more {
            return Ok(false);
        }
    }
}
