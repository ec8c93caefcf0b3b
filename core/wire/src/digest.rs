//! SHA-256 of a stream that may be left and taken up again: its state can be kept, which the usual implementations hide.

use sha2::block_api::compress256;

use crate::error::{Result, WireError};
use crate::reader::Reader;

const BLOCK: usize = 64;
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The digest of what has come so far.
#[derive(Clone, Debug)]
pub struct Sha256 {
    state: [u32; 8],
    /// Bytes that do not fill a block yet.
    rest: Vec<u8>,
    size: u64,
}

impl Default for Sha256 {
    fn default() -> Self {
        Self { state: START, rest: Vec::with_capacity(BLOCK), size: 0 }
    }
}

impl Sha256 {
    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.size = self.size.wrapping_add(bytes.len() as u64);
        if !self.rest.is_empty() {
            let (front, behind) = bytes.split_at(bytes.len().min(BLOCK - self.rest.len()));
            self.rest.extend_from_slice(front);
            bytes = behind;
            let Ok(block) = <[u8; BLOCK]>::try_from(self.rest.as_slice()) else { return };
            compress256(&mut self.state, &[block]);
            self.rest.clear();
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        compress256(&mut self.state, blocks);
        self.rest.extend_from_slice(rest);
    }

    /// The digest, if nothing more comes.
    pub fn digest(&self) -> [u8; 32] {
        let mut tail = self.rest.clone();
        tail.push(0x80);
        let filled = (tail.len() + 8).next_multiple_of(BLOCK) - 8;
        tail.resize(filled, 0);
        tail.extend_from_slice(&self.size.wrapping_mul(8).to_be_bytes());
        let mut state = self.state;
        compress256(&mut state, tail.as_chunks::<BLOCK>().0);
        let mut digest = [0; 32];
        for (to, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *to = word.to_be_bytes();
        }
        digest
    }

    /// What [`Sha256::load`] goes on from.
    pub fn save(&self) -> Vec<u8> {
        let mut out: Vec<u8> = self.state.iter().flat_map(|word| word.to_le_bytes()).collect();
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.rest);
        out
    }

    /// The state that [`Sha256::save`] wrote.
    pub fn load(saved: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(saved, 0);
        let mut state = [0; 8];
        for word in &mut state {
            *word = reader.u32()?;
        }
        let size = reader.u64()?;
        let rest = reader.take(size % BLOCK as u64)?.to_vec();
        reader.finish("the state of a digest").map_err(|error| WireError::corrupt(0, error.message()))?;
        Ok(Self { state, rest, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::Digest;

    fn of(bytes: &[u8]) -> [u8; 32] {
        sha2::Sha256::digest(bytes).into()
    }

    #[test]
    fn every_length_around_a_block_is_right() {
        for len in 0..200u8 {
            let bytes: Vec<u8> = (0..len).collect();
            let mut sha = Sha256::default();
            sha.update(&bytes);
            assert_eq!(sha.digest(), of(&bytes), "{len}");
        }
    }

    #[test]
    fn a_state_that_is_cut_or_too_long_is_refused() {
        let mut sha = Sha256::default();
        sha.update(&[7; 70]);
        let saved = sha.save();
        assert!((0..saved.len()).all(|len| Sha256::load(&saved[..len]).is_err()));
        assert!(Sha256::load(&[saved, vec![0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn taken_up_anywhere_it_goes_on(bytes in prop::collection::vec(any::<u8>(), 0..500), cuts in prop::collection::vec(0usize..200, 0..6)) {
            let mut sha = Sha256::default();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (front, behind) = rest.split_at(cut.min(rest.len()));
                sha.update(front);
                sha = Sha256::load(&sha.save()).unwrap();
                rest = behind;
            }
            sha.update(rest);
            prop_assert_eq!(sha.digest(), of(&bytes));
        }
    }
}
