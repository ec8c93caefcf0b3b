//! The headers of blocks and chunks, and the hash of headers and data.

use highway::{HighwayHash, HighwayHasher, Key};

use super::layout::{BLOCK, BLOCK_HEADER, USABLE};
use crate::error::Result;
use crate::reader::Reader;

/// "Riegeli/records\n", twice.
const KEY: Key = Key([0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572, 0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572]);

/// The hash of headers and chunk data, computed piece by piece.
#[derive(Clone, Debug)]
pub struct Hasher(HighwayHasher);

impl Default for Hasher {
    fn default() -> Self {
        Self(HighwayHasher::new(KEY))
    }
}

impl Hasher {
    /// Adds `bytes` to the hashed data.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    /// The hash of all bytes added so far.
    pub fn finish(self) -> u64 {
        self.0.finalize64()
    }
}

/// The hash of `bytes`.
pub fn hash(bytes: &[u8]) -> u64 {
    HighwayHasher::new(KEY).hash64(bytes)
}

/// The kind of a chunk's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkKind {
    /// `s`: the signature with which a file begins.
    Signature,
    /// `m`: a description of the file.
    Metadata,
    /// `p`: padding, without records.
    Padding,
    /// `r`: records one after the other, which may be compressed.
    Simple,
    /// `t`: records divided into columns, field by field.
    Transposed,
    /// A newer kind; such a chunk may be skipped if it has no records.
    Unknown(u8),
}

impl ChunkKind {
    /// The kind written as `byte`.
    pub fn from_byte(byte: u8) -> Self {
        match byte {
            b's' => Self::Signature,
            b'm' => Self::Metadata,
            b'p' => Self::Padding,
            b'r' => Self::Simple,
            b't' => Self::Transposed,
            other => Self::Unknown(other),
        }
    }

    /// The letter of the kind in a header.
    pub fn byte(self) -> u8 {
        match self {
            Self::Signature => b's',
            Self::Metadata => b'm',
            Self::Padding => b'p',
            Self::Simple => b'r',
            Self::Transposed => b't',
            Self::Unknown(other) => other,
        }
    }
}

/// The 40 bytes before a chunk's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The size of the data in bytes, without block headers.
    pub data_size: u64,
    /// The hash of the data.
    pub data_hash: u64,
    /// The kind of the content.
    pub kind: ChunkKind,
    /// The number of records, which is below 2^56.
    pub records: u64,
    /// The total size of all records in bytes.
    pub decoded_size: u64,
}

impl ChunkHeader {
    /// Parses the header in `bytes`, which must have 40 bytes; returns it with the stored and the computed hash.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, u64, u64)> {
        let mut reader = Reader::new(bytes, 0);
        let stored = reader.u64()?;
        let computed = hash(reader.clone().rest());
        let (data_size, data_hash, kind_and_records) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let [kind, ..] = kind_and_records.to_le_bytes();
        let header = Self {
            data_size,
            data_hash,
            kind: ChunkKind::from_byte(kind),
            records: kind_and_records >> 8,
            decoded_size: reader.u64()?,
        };
        Ok((header, stored, computed))
    }

    /// Serializes the header to 40 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let kind_and_records = self.records << 8 | u64::from(self.kind.byte());
        sealed(&[self.data_size, self.data_hash, kind_and_records, self.decoded_size])
    }
}

/// The header of 24 bytes at the start of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The distance back to the start of the chunk that contains this header; 0 if a chunk begins with this header.
    pub previous: u64,
    /// The distance forward to the end of this chunk.
    pub next: u64,
}

impl BlockHeader {
    /// Parses the header in `bytes`, which must have 24 bytes; returns it with the stored and the computed hash.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, u64, u64)> {
        let mut reader = Reader::new(bytes, 0);
        let stored = reader.u64()?;
        let computed = hash(reader.clone().rest());
        Ok((Self { previous: reader.u64()?, next: reader.u64()? }, stored, computed))
    }

    /// True if a chunk can have these distances.
    pub fn is_plausible(&self) -> bool {
        self.previous % BLOCK < USABLE && self.next > 0 && (self.next - 1) % BLOCK >= BLOCK_HEADER
    }

    /// Serializes the header to 24 bytes.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&[self.previous, self.next])
    }
}

/// Serializes `words` after their hash.
fn sealed(words: &[u64]) -> Vec<u8> {
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut bytes = hash(&body).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

/// The 64 bytes with which every file begins.
pub fn signature() -> Vec<u8> {
    let chunk =
        ChunkHeader { data_size: 0, data_hash: hash(&[]), kind: ChunkKind::Signature, records: 0, decoded_size: 0 };
    [BlockHeader { previous: 0, next: 64 }.encode(), chunk.encode()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_known_64_bytes() {
        let expected = [
            0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x91,
            0xba, 0xc2, 0x3c, 0x92, 0x87, 0xe1, 0xa9, 0, 0, 0, 0, 0, 0, 0, 0, 0xe1, 0x9f, 0x13, 0xc0, 0xe9, 0xb1, 0xc3,
            0x72, 0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(signature(), expected);
    }

    #[test]
    fn headers_read_back() {
        let chunk = ChunkHeader {
            data_size: 5,
            data_hash: 7,
            kind: ChunkKind::Unknown(9),
            records: 1 << 40,
            decoded_size: 1 << 50,
        };
        let (read, stored, computed) = ChunkHeader::parse(&chunk.encode()).unwrap();
        assert_eq!((read, stored), (chunk, computed));
        let block = BlockHeader { previous: 3, next: 1 << 33 };
        let (read, stored, computed) = BlockHeader::parse(&block.encode()).unwrap();
        assert_eq!((read, stored), (block, computed));
    }

    #[test]
    fn feeding_in_pieces_hashes_alike() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for cut in [0, 1, 31, 32, 33, 999] {
            let mut hasher = Hasher::default();
            hasher.update(&bytes[..cut]);
            hasher.update(&bytes[cut..]);
            assert_eq!(hasher.finish(), hash(&bytes));
        }
    }
}
