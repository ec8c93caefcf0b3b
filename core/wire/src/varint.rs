//! Varints: seven bits per byte, low bits first, at most ten bytes.

/// Bytes of the longest varint.
pub const MAX_LEN: usize = 10;

/// The result of reading a varint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Varint {
    /// The value, and the number of its bytes.
    Value(u64, usize),
    /// The bytes end before the varint ends.
    Truncated,
    /// The varint has more than ten bytes or more than 64 bits.
    Overlong,
}

/// Reads the varint at the start of `bytes`. Non-minimal encodings are accepted.
#[inline]
pub fn read(bytes: &[u8]) -> Varint {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(MAX_LEN).enumerate() {
        let low = u64::from(byte & 0x7f);
        if i == MAX_LEN - 1 && byte > 1 {
            return Varint::Overlong;
        }
        value |= low << (7 * i);
        if byte < 0x80 {
            return Varint::Value(value, i + 1);
        }
    }
    if bytes.len() < MAX_LEN { Varint::Truncated } else { Varint::Overlong }
}

/// Like [`read`], for the value of a field: in a varint of ten bytes, the bits beyond the 64th are dropped, as in
/// protobuf's runtimes.
#[inline]
pub fn read_value(bytes: &[u8]) -> Varint {
    match (read(bytes), bytes.first_chunk::<MAX_LEN>()) {
        (Varint::Overlong, Some(ten @ [.., 0..0x80])) => {
            let value = ten.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
            Varint::Value(value, MAX_LEN)
        }
        (found, _) => found,
    }
}

/// The number of bytes in the shortest encoding of `value`.
#[inline]
pub fn len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_at_every_width() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                write(value, &mut bytes);
                assert_eq!(read(&bytes), Varint::Value(value, bytes.len()));
                assert_eq!(bytes.len(), len(value));
                assert_eq!(read(&bytes[..bytes.len() - 1]), Varint::Truncated);
            }
        }
    }

    #[test]
    fn takes_non_minimal_and_refuses_overlong() {
        assert_eq!(read(&[0x81, 0x80, 0x00, 7]), Varint::Value(1, 3));
        assert_eq!(read(&[0xff; 9]), Varint::Truncated);
        assert_eq!(read(&[0xff; 10]), Varint::Overlong);
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02]), Varint::Overlong);
    }

    #[test]
    fn values_lose_what_is_past_their_64_bits() {
        for (last, high) in [(1, 1 << 63), (2, 0), (0x7f, 1 << 63)] {
            let bytes = [0x83, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, last, 7];
            assert_eq!(read_value(&bytes), Varint::Value(high | 3, 10));
        }
        assert_eq!(read_value(&[0x81, 0]), Varint::Value(1, 2));
        assert_eq!(read_value(&[0xff; 9]), Varint::Truncated);
        assert_eq!(read_value(&[0xff; 11]), Varint::Overlong);
    }
}
