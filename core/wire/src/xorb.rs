//! Xorbs, in which Hugging Face's clients send large files. A xorb is a sequence of chunks, each uncompressed or
//! compressed with LZ4. Its name is the root hash of a Merkle tree over the chunks.

use std::fmt::Write;
use std::io::Read;

use lz4_flex::frame::FrameDecoder;

use crate::error::{Kind, Result, WireError};

/// Bytes before each chunk: version, stored length, compression scheme, length.
const HEAD: usize = 8;
/// Bytes of the largest chunk that clients make.
const MAX_CHUNK: usize = 1 << 17;
/// Most bytes of all chunks of a xorb.
const MAX_SIZE: usize = 1 << 26;
/// Most chunks of a xorb.
const MAX_CHUNKS: usize = 1 << 13;
/// The mean number of a node's children; a node has at most twice as many plus one.
const CHILDREN: usize = 4;
/// The key for hashing a chunk.
const LEAF: [u8; 32] = [
    102, 151, 245, 119, 91, 149, 80, 222, 49, 53, 203, 172, 165, 151, 24, 28, 157, 228, 33, 16, 155, 235, 43, 88, 180,
    208, 176, 75, 147, 173, 242, 41,
];
/// The key for hashing a node that has children.
const NODE: [u8; 32] = [
    1, 126, 197, 199, 165, 71, 41, 150, 253, 148, 102, 102, 180, 138, 2, 230, 93, 221, 83, 111, 55, 199, 109, 210, 248,
    99, 82, 230, 74, 83, 113, 63,
];

/// A node of the tree: its hash, and the number of bytes below it.
type Node = (blake3::Hash, usize);

/// A xorb that is unpacked while it arrives; it keeps at most one compressed chunk in memory.
#[derive(Debug, Default)]
pub struct Xorb {
    held: Vec<u8>,
    offset: u64,
    size: usize,
    leaves: Vec<Node>,
}

impl Xorb {
    /// The content of the chunks that `piece` completes.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<u8>> {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(piece);
        let (mut rest, mut out) = (held.as_slice(), Vec::new());
        while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
            let (stored, scheme, size) = self.lengths(*head)?;
            let Some((packed, next)) = after.split_at_checked(stored) else { break };
            let begin = out.len();
            unpack(packed, scheme, size, &mut out).map_err(|error| error.at(self.offset))?;
            self.leaves.push((blake3::keyed_hash(&LEAF, out.get(begin..).unwrap_or_default()), size));
            self.size += size;
            self.offset += (HEAD + stored) as u64;
            rest = next;
        }
        self.held = rest.to_vec();
        Ok(out)
    }

    /// The ends of the chunks so far.
    pub fn ends(&self) -> Vec<u64> {
        let sum = |end: &mut u64, leaf: &Node| {
            *end += leaf.1 as u64;
            Some(*end)
        };
        self.leaves.iter().scan(0, sum).collect()
    }

    /// The hash that names the xorb, written as in URLs; fails unless the xorb ends after a chunk.
    pub fn hash(&self) -> Result<String> {
        if !self.held.is_empty() || self.leaves.is_empty() {
            return Err(WireError::corrupt(self.offset, "the xorb ends inside a chunk"));
        }
        let mut nodes = self.leaves.clone();
        while nodes.len() > 1 {
            nodes = parents(&nodes);
        }
        Ok(nodes.first().map(|(hash, _)| spelled(hash)).unwrap_or_default())
    }

    /// The stored length, the compression scheme and the length of the next chunk; fails if they exceed the limits.
    fn lengths(&self, head: [u8; HEAD]) -> Result<(usize, u8, usize)> {
        let [version, a, b, c, scheme, d, e, f] = head;
        let (stored, size) = (u32::from_le_bytes([a, b, c, 0]) as usize, u32::from_le_bytes([d, e, f, 0]) as usize);
        if version != 0 {
            return Err(WireError::corrupt(
                self.offset,
                format!("a chunk of a xorb must have version 0, not {version}"),
            ));
        }
        if size == 0 || size > MAX_CHUNK || stored > size {
            let message =
                format!("a chunk of a xorb must have 1 to {MAX_CHUNK} bytes, and compression must not make it larger");
            return Err(WireError::corrupt(self.offset, message));
        }
        if self.size + size > MAX_SIZE || self.leaves.len() == MAX_CHUNKS {
            let message = format!("a xorb has at most {MAX_CHUNKS} chunks of {MAX_SIZE} bytes in total");
            return Err(WireError::new(Kind::Limit, message).at(self.offset));
        }
        Ok((stored, scheme, size))
    }
}

/// Appends the content of a chunk to `out`; the content must have `size` bytes.
fn unpack(packed: &[u8], scheme: u8, size: usize, out: &mut Vec<u8>) -> Result<()> {
    let begin = out.len();
    match scheme {
        0 => out.extend_from_slice(packed),
        1 => inflate(packed, size, out)?,
        2 => {
            let mut grouped = Vec::with_capacity(size);
            inflate(packed, size, &mut grouped)?;
            ungroup(&grouped, out);
        }
        _ => return Err(WireError::new(Kind::Unsupported, format!("unknown compression {scheme} of a xorb chunk"))),
    }
    if out.len() - begin != size {
        return Err(WireError::new(
            Kind::Corrupt,
            format!("a chunk of a xorb does not have the {size} bytes that its header gives"),
        ));
    }
    Ok(())
}

/// Appends the content of an LZ4 frame to `out`, up to one byte more than `size`.
fn inflate(packed: &[u8], size: usize, out: &mut Vec<u8>) -> Result<()> {
    let read = FrameDecoder::new(packed).take(size as u64 + 1).read_to_end(out);
    read.map(drop)
        .map_err(|error| WireError::new(Kind::Corrupt, format!("a chunk of a xorb is not an LZ4 frame: {error}")))
}

/// Appends bytes to `out` that are grouped by their position modulo 4.
fn ungroup(grouped: &[u8], out: &mut Vec<u8>) {
    let mut rest = grouped;
    let groups = [3, 2, 1, 0].map(|more| {
        let (group, after) = rest.split_at((grouped.len() + more) / 4);
        rest = after;
        group
    });
    let places = 0..grouped.len().div_ceil(4);
    out.extend(places.flat_map(|place| groups.into_iter().filter_map(move |group| group.get(place))));
}

/// The parents of `nodes`. A parent's children end with a hash that is divisible by 4, but not before the third child.
fn parents(mut nodes: &[Node]) -> Vec<Node> {
    let mut above = Vec::new();
    while !nodes.is_empty() {
        let most = nodes.len().min(2 * CHILDREN + 1);
        let ends =
            |(hash, _): &Node| hash.as_bytes().get(24).is_some_and(|byte| (*byte as usize).is_multiple_of(CHILDREN));
        let cut = nodes.iter().take(most).skip(2).position(ends).map_or(most, |place| place + 3);
        let (below, rest) = nodes.split_at(cut);
        above.push(parent(below));
        nodes = rest;
    }
    above
}

fn parent(below: &[Node]) -> Node {
    let mut lines = String::new();
    for (hash, size) in below {
        let _ = writeln!(lines, "{} : {size}", spelled(hash)); // a String takes all
    }
    (blake3::keyed_hash(&NODE, lines.as_bytes()), below.iter().map(|(_, size)| size).sum())
}

/// A hash in hexadecimal digits: four words, each of which is little-endian.
fn spelled(hash: &blake3::Hash) -> String {
    let words = hash.as_bytes().chunks_exact(8).map(|word| word.iter().rev());
    words.flatten().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::FrameEncoder;
    use proptest::prelude::*;

    use super::*;

    fn chunk(scheme: u8, stored: &[u8], size: usize) -> Vec<u8> {
        let [a, b, c, _] = (stored.len() as u32).to_le_bytes();
        let [d, e, f, _] = (size as u32).to_le_bytes();
        [&[0, a, b, c, scheme, d, e, f], stored].concat()
    }

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut frame = FrameEncoder::new(Vec::new());
        frame.write_all(data).unwrap();
        frame.finish().unwrap()
    }

    fn grouped(data: &[u8]) -> Vec<u8> {
        (0..4).flat_map(|group| data.iter().copied().skip(group).step_by(4)).collect()
    }

    proptest! {
        #[test]
        fn bytes_come_back_however_they_come(
            parts in prop::collection::vec((0u8..3, 1usize..5000, any::<u8>()), 1..8),
            step in 1usize..3000,
        ) {
            let (mut sent, mut data) = (Vec::new(), Vec::new());
            for (scheme, size, byte) in parts {
                let part: Vec<u8> = (0..size + 200).map(|n| byte.wrapping_add((n / 97) as u8)).collect();
                let stored = match scheme { 0 => part.clone(), 1 => packed(&part), _ => packed(&grouped(&part)) };
                let scheme = if stored.len() > part.len() { 0 } else { scheme };
                sent.extend(chunk(scheme, if scheme == 0 { &part } else { &stored }, part.len()));
                data.extend(part);
            }
            let mut xorb = Xorb::default();
            let mut out = Vec::new();
            for piece in sent.chunks(step) {
                out.extend(xorb.feed(piece).unwrap());
            }
            prop_assert_eq!(*xorb.ends().last().unwrap(), data.len() as u64);
            prop_assert_eq!(out, data);
            prop_assert!(xorb.hash().is_ok());
        }

        #[test]
        fn nothing_that_comes_ends_in_a_panic(sent in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Xorb::default().feed(&sent);
            let _ = Xorb::default().feed(&chunk(1, &sent, 100_000));
        }
    }

    #[test]
    fn a_chunk_that_lies_is_refused() {
        let zeros = vec![0; MAX_CHUNK];
        for (lie, kind) in [
            (chunk(0, b"abc", 4), Kind::Corrupt),
            (chunk(0, b"abcd", 3), Kind::Corrupt),
            (chunk(0, b"", 0), Kind::Corrupt),
            (chunk(1, b"abc", 4), Kind::Corrupt),
            (chunk(1, &packed(&zeros), MAX_CHUNK - 1), Kind::Corrupt),
            (chunk(1, &packed(&[zeros.clone(), zeros.clone()].concat()), MAX_CHUNK), Kind::Corrupt),
            (chunk(0, b"abc", MAX_CHUNK + 1), Kind::Corrupt),
            (chunk(3, b"abc", 3), Kind::Unsupported),
            ([b"\x01".as_slice(), &[0; 7]].concat(), Kind::Corrupt),
            (chunk(1, &packed(&zeros), MAX_CHUNK).repeat(MAX_SIZE / MAX_CHUNK + 1), Kind::Limit),
            (chunk(0, b"a", 1).repeat(MAX_CHUNKS + 1), Kind::Limit),
        ] {
            assert_eq!(Xorb::default().feed(&lie).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn a_xorb_ends_with_a_chunk() {
        let mut xorb = Xorb::default();
        assert!(xorb.hash().is_err());
        xorb.feed(&chunk(0, b"abc", 3)).unwrap();
        assert!(xorb.hash().is_ok());
        xorb.feed(b"\0").unwrap();
        assert!(xorb.hash().is_err());
    }
}
