//! The SHA-256 of a stream; its state can be saved and loaded, so that another process can continue an upload.

use std::iter::once;

use sha2::Digest;
use sha2::digest::common::hazmat::{SerializableState, SerializedState};

use crate::error::{Result, WireError};
use crate::reader::Reader;

/// Bytes of the chaining value, with which a saved state begins.
const CHAIN: usize = 32;
/// Bytes of the crate's state before the unfinished block: the chaining value, a count of blocks, and a length.
const COUNTED: usize = CHAIN + size_of::<u64>() + 1;
/// Bytes of a block of SHA-256.
const SHA_BLOCK: u64 = 64;
/// Most bytes for which SHA-256 is defined, because it counts bits in 64 bits.
const MAX_SIZE: u64 = u64::MAX / 8;

/// The digest of the bytes so far.
#[derive(Clone, Debug, Default)]
pub struct Sha256 {
    hash: sha2::Sha256,
    size: u64,
}

impl Sha256 {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size = self.size.saturating_add(bytes.len() as u64);
    }

    /// The digest of the bytes so far; more bytes may follow.
    pub fn digest(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }

    /// The state for [`Sha256::load`]: the chaining value, the size in bytes, and the bytes of the unfinished block.
    pub fn save(&self) -> Vec<u8> {
        // This is not the crate's own form: storages already contain states in this form, and replicas of different
        // versions share them.
        let state = self.hash.serialize();
        let rest = state.iter().skip(COUNTED).take((self.size % SHA_BLOCK) as usize);
        state.iter().take(CHAIN).chain(&self.size.to_le_bytes()).chain(rest).copied().collect()
    }

    /// Restores the hasher whose state [`Sha256::save`] returned.
    pub fn load(saved: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(saved, 0);
        let chain = reader.array::<CHAIN>()?;
        let size = reader.u64()?;
        let filled = size % SHA_BLOCK;
        let rest = reader.take(filled)?;
        let unsound = |why: &str| WireError::corrupt(0, format!("the saved state of a digest {why}"));
        if !reader.is_empty() || size > MAX_SIZE {
            return Err(unsound("is too long, or counts more bytes than SHA-256 allows"));
        }
        let blocks = (size / SHA_BLOCK).to_le_bytes();
        let mut state = SerializedState::<sha2::Sha256>::default();
        let parts = chain.into_iter().chain(blocks).chain(once(filled as u8)).chain(rest.iter().copied());
        state.iter_mut().zip(parts).for_each(|(to, byte)| *to = byte);
        let hash = sha2::Sha256::deserialize(&state).map_err(|_| unsound("is not a state of SHA-256"))?;
        Ok(Self { hash, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A state that an older version wrote, before the crate's own state was used. The hashed bytes are the first 150
    /// multiples of seven.
    const OLDER: &str = concat!(
        "d03ec7e5a0991683362cb43731d0e3d7b7fddefc39969a04ae75e0afa051f938",
        "9600000000000000",
        "80878e959ca3aab1b8bfc6cdd4dbe2e9f0f7fe050c13",
    );

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

    #[test]
    fn a_size_beyond_sha_256_is_refused() {
        let saved = [[0; CHAIN].as_slice(), &(1u64 << 61).to_le_bytes()].concat();
        assert!(Sha256::load(&saved).is_err());
    }

    #[test]
    fn a_state_of_an_older_program_is_read_and_written() {
        let bytes: Vec<u8> = (0..200u8).map(|each| each.wrapping_mul(7)).collect();
        let (front, behind) = bytes.split_at(150);
        let older: Vec<u8> = OLDER
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let mut sha = Sha256::load(&older).unwrap();
        assert_eq!((sha.digest(), sha.save()), (of(front), older));
        sha.update(behind);
        assert_eq!(sha.digest(), of(&bytes));
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
