//! The keys of slices: encodings of a tensor's name and a slice's extents that keep their order.

use super::Extent;

/// The key of a slice: an encoding of `name` and `slice` that sorts by bytes as the values themselves sort.
pub fn slice_key(name: &[u8], slice: &[Extent]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 8 + 4 * slice.len());
    unsigned(0, &mut out);
    for byte in name {
        match byte {
            0x00 => out.extend([0x00, 0xff]),
            0xff => out.extend([0xff, 0x00]),
            other => out.push(*other),
        }
    }
    out.extend([0x00, 0x01]);
    unsigned(slice.len() as u64, &mut out);
    for (start, len) in slice {
        signed(*start, &mut out);
        signed(len.unwrap_or(-1), &mut out);
    }
    out
}

/// Appends the number of significant bytes of `value`, followed by these bytes in big-endian order.
fn unsigned(value: u64, out: &mut Vec<u8>) {
    let zeros = value.leading_zeros() as usize / 8;
    out.push(8 - zeros as u8);
    out.extend(value.to_be_bytes().into_iter().skip(zeros));
}

/// Appends `value` in two's complement, big-endian, in as few bytes as possible. The first bits are a header: as many
/// one bits as bytes, then a zero bit. For negative numbers, all header bits are inverted.
fn signed(value: i64, out: &mut Vec<u8>) {
    let bits = 64 - (if value < 0 { !value } else { value }).leading_zeros() as usize;
    let len = bits / 7 + 1;
    // The longest form has ten bytes, and its header has eleven bits.
    let header = ((1u128 << len) - 1) << (7 * len);
    let wide = (i128::from(value) as u128 ^ header) << (128 - 8 * len);
    out.extend(wide.to_be_bytes().into_iter().take(len));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        signed(value, &mut out);
        out
    }

    #[test]
    fn keys_are_those_that_tensorflow_writes() {
        let grid = [(0, Some(4)), (0, None), (1, Some(1))];
        assert_eq!(slice_key(b"cube", &grid), b"\x00cube\x00\x01\x01\x03\x80\x84\x80\x7f\x81\x81");
        let emb = [(67, Some(67)), (0, Some(8))];
        assert_eq!(slice_key(b"model/emb", &emb), b"\x00model/emb\x00\x01\x01\x02\xc0\x43\xc0\x43\x80\x88");
        assert_eq!(slice_key(b"a\x00\xff", &[]), b"\x00a\x00\xff\xff\x00\x00\x01\x00");
    }

    #[test]
    fn numbers_sort_as_they_are_written() {
        let mut all: Vec<i64> = (0..64).flat_map(|bit| [1i64 << bit, (1i64 << bit).wrapping_sub(1)]).collect();
        all.extend(all.clone().iter().map(|value| !value));
        all.sort_unstable();
        all.dedup();
        let written: Vec<Vec<u8>> = all.iter().map(|value| of(*value)).collect();
        assert!(written.is_sorted() && written.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!([of(i64::MAX), of(i64::MIN)].map(|bytes| bytes.len()), [10, 10]);
        assert_eq!((of(-64), of(-65), of(63), of(64)), (vec![0x40], vec![0x3f, 0xbf], vec![0xbf], vec![0xc0, 0x40]));
    }
}
