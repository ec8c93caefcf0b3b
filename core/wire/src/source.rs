//! Where an algorithm gets the few bytes it has to look at. The caller brings it: a file, a bucket, a slice.

use std::borrow::Cow;

use crate::error::{Kind, Result, WireError};

/// Random access to bytes that do not change.
pub trait Source {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exactly the `len` bytes at `offset`, or an error.
    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>>;

    /// How many bytes to ask for at once where many are needed: less where a read costs little.
    fn stride(&self) -> u64 {
        1 << 20
    }

    /// Fills `buffer` with the bytes at `offset`, or fails.
    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.read(offset, buffer.len())?;
        if bytes.len() != buffer.len() {
            let message = format!("a source gave {} bytes where {} were asked for", bytes.len(), buffer.len());
            return Err(WireError::new(Kind::Source, message).at(offset));
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

impl Source for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.get(start..start.checked_add(len)?));
        bytes.map(Cow::Borrowed).ok_or_else(|| {
            let message = format!("{len} bytes are needed, but the source ends at byte {}", <[u8]>::len(self));
            WireError::corrupt(offset, message)
        })
    }
}
