//! Blocks of quantized numbers in GGUF files. Arithmetic has 32 bits, as in ggml, so that the results are equal.

use super::numbers::half;

type Decode = fn(&mut Block<'_>, &mut [f32; LONGEST]);

/// Elements of the longest block.
const LONGEST: usize = 256;

/// A decoder for the blocks of one type.
pub(super) struct Blocks {
    elements: usize,
    bytes: usize,
    big_endian: bool,
    decode: Decode,
}

impl Blocks {
    pub(super) fn named(dtype: &str, big_endian: bool) -> Option<Self> {
        let (elements, bytes, decode): (_, _, Decode) = match dtype {
            "Q4_0" => (32, 18, q4_0),
            "Q4_1" => (32, 20, q4_1),
            "Q5_0" => (32, 22, q5_0),
            "Q5_1" => (32, 24, q5_1),
            "Q8_0" => (32, 34, q8_0),
            "Q2_K" => (256, 84, q2_k),
            "Q3_K" => (256, 110, q3_k),
            "Q4_K" => (256, 144, q4_k),
            "Q5_K" => (256, 176, q5_k),
            "Q6_K" => (256, 210, q6_k),
            _ => return None,
        };
        Some(Self { elements, bytes, big_endian, decode })
    }

    pub(super) fn elements(&self) -> usize {
        self.elements
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decodes all whole blocks in `bytes` into `out`.
    pub(super) fn decode(&self, bytes: &[u8], out: &mut [f64]) {
        let mut found = [0.0; LONGEST];
        for (block, out) in bytes.chunks_exact(self.bytes).zip(out.chunks_exact_mut(self.elements)) {
            (self.decode)(&mut Block { bytes: block, big_endian: self.big_endian }, &mut found);
            out.iter_mut().zip(found).for_each(|(to, number)| *to = f64::from(number));
        }
    }
}

/// The bytes of a block that have not been read yet.
struct Block<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl Block<'_> {
    fn take<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let Some((first, rest)) = self.bytes.split_first_chunk::<COUNT>() else { return [0; COUNT] };
        self.bytes = rest;
        *first
    }

    /// A scale of 16 bits.
    fn scale(&mut self) -> f32 {
        let mut bytes = self.take::<2>();
        if self.big_endian {
            bytes.reverse();
        }
        half(bytes)
    }
}

fn low(byte: u8) -> u8 {
    byte & 15
}

fn high(byte: u8) -> u8 {
    byte >> 4
}

/// The numbers of 32 elements: first from the lower halves of all bytes, then from the upper halves. `number` gets a
/// half byte and the place of the element.
fn halves(quants: [u8; 16], out: &mut [f32; LONGEST], number: impl Fn(u8, u32) -> f32) {
    let quants = || quants.into_iter();
    for ((to, quant), place) in out.iter_mut().zip(quants().map(low).chain(quants().map(high))).zip(0..) {
        *to = number(quant, place);
    }
}

fn q4_0(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let scale = block.scale();
    halves(block.take(), out, |quant, _| scale * (f32::from(quant) - 8.0));
}

fn q4_1(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (scale, least) = (block.scale(), block.scale());
    halves(block.take(), out, |quant, _| scale * f32::from(quant) + least);
}

/// The half byte `quant`, with bit `place` of `fifth` as its fifth bit.
fn with_fifth(quant: u8, fifth: u32, place: u32) -> u8 {
    quant | (((fifth >> place) & 1) as u8) << 4
}

fn q5_0(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (scale, fifth) = (block.scale(), u32::from_le_bytes(block.take()));
    halves(block.take(), out, |quant, place| scale * (f32::from(with_fifth(quant, fifth, place)) - 16.0));
}

fn q5_1(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (scale, least, fifth) = (block.scale(), block.scale(), u32::from_le_bytes(block.take()));
    halves(block.take(), out, |quant, place| scale * f32::from(with_fifth(quant, fifth, place)) + least);
}

fn q8_0(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (scale, quants) = (block.scale(), block.take::<32>());
    for (to, quant) in out.iter_mut().zip(quants) {
        *to = scale * f32::from(quant.cast_signed());
    }
}

/// Two bits per element, in groups of 32 elements. The first group is the lowest two bits of 32 bytes, and so on.
fn pairs(quants: &[u8; 64]) -> impl Iterator<Item = impl Iterator<Item = u8>> {
    let of = |bytes: &[u8; 32]| {
        let bytes = *bytes;
        [0, 2, 4, 6].into_iter().map(move |shift| bytes.into_iter().map(move |byte| (byte >> shift) & 3))
    };
    quants.as_chunks::<32>().0.iter().flat_map(of)
}

fn q2_k(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (scales, quants) = (block.take::<16>(), block.take::<64>());
    let (scale, least) = (block.scale(), block.scale());
    let quants = pairs(&quants).flatten();
    let scales = scales.iter().flat_map(|byte| [byte; 16]);
    for ((to, quant), byte) in out.iter_mut().zip(quants).zip(scales) {
        *to = scale * f32::from(low(*byte)) * f32::from(quant) - least * f32::from(high(*byte));
    }
}

fn q3_k(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (thirds, quants, packed, scale) = (block.take::<32>(), block.take::<64>(), block.take::<12>(), block.scale());
    let (lower, upper) = packed.split_at(8);
    let lower = lower.iter().map(|byte| low(*byte)).chain(lower.iter().map(|byte| high(*byte)));
    let upper = [0, 2, 4, 6].into_iter().flat_map(|shift| upper.iter().map(move |byte| (byte >> shift) & 3));
    let scales = lower.zip(upper).map(|(low, high)| scale * (f32::from(low | high << 4) - 32.0));
    let thirds = (0..8).flat_map(|bit| thirds.iter().map(move |byte| (byte >> bit) & 1));
    let quants = pairs(&quants).flatten().zip(thirds);
    for ((to, (quant, third)), scale) in out.iter_mut().zip(quants).zip(scales.flat_map(|scale| [scale; 16])) {
        *to = scale * (f32::from(quant | third << 2) - 4.0);
    }
}

/// The scales and minimums of the eight parts of a block; each has six bits.
fn sixes(packed: [u8; 12]) -> [(f32, f32); 8] {
    let mut parts = packed.as_chunks::<4>().0.iter().copied();
    let [scales, leasts, rest] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let both = scales.into_iter().zip(leasts);
    let first = both.clone().map(|(scale, least)| (scale & 63, least & 63));
    let second = both.zip(rest);
    let second = second.map(|((scale, least), rest)| (low(rest) | (scale >> 6) << 4, high(rest) | (least >> 6) << 4));
    let mut found = [(0.0, 0.0); 8];
    for (to, (scale, least)) in found.iter_mut().zip(first.chain(second)) {
        *to = (f32::from(scale), f32::from(least));
    }
    found
}

/// The numbers of a block with eight parts, each with a scale and a minimum. Every byte of `fifth` has a bit for each
/// part.
fn in_parts(
    packed: [u8; 12],
    (scale, least): (f32, f32),
    fifth: [u8; 32],
    quants: [u8; 128],
    out: &mut [f32; LONGEST],
) {
    let quants = quants.as_chunks::<32>().0.iter();
    let quants = quants.flat_map(|bytes| [bytes.map(low), bytes.map(high)]);
    let parts = out.as_chunks_mut::<32>().0.iter_mut().zip(sixes(packed)).zip(quants).zip(0..);
    for (((part, (own_scale, own_least)), quants), bit) in parts {
        let (scale, least) = (scale * own_scale, least * own_least);
        for ((to, quant), fifth) in part.iter_mut().zip(quants).zip(fifth) {
            *to = scale * f32::from(quant | ((fifth >> bit) & 1) << 4) - least;
        }
    }
}

fn q4_k(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (scales, packed) = ((block.scale(), block.scale()), block.take());
    in_parts(packed, scales, [0; 32], block.take(), out);
}

fn q5_k(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (scales, packed, fifth) = ((block.scale(), block.scale()), block.take(), block.take());
    in_parts(packed, scales, fifth, block.take(), out);
}

fn q6_k(block: &mut Block<'_>, out: &mut [f32; LONGEST]) {
    let (lower, upper, scales, scale) = (block.take::<128>(), block.take::<64>(), block.take::<16>(), block.scale());
    let lower = lower.as_chunks::<64>().0.iter().flat_map(|bytes| [bytes.map(low), bytes.map(high)]).flatten();
    let quants = lower.zip(pairs(&upper).flatten());
    let scales = scales.iter().flat_map(|own| [scale * f32::from(own.cast_signed()); 16]);
    for ((to, (low, high)), scale) in out.iter_mut().zip(quants).zip(scales) {
        *to = scale * (f32::from(low | high << 4) - 32.0);
    }
}
