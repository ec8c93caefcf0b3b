use super::*;

fn bytes(data: &[u8]) -> Shared {
    Arc::new(Held { bytes: data.to_vec(), stride: 1 << 20 })
}

struct Held {
    bytes: Vec<u8>,
    stride: u64,
}

impl Source for Held {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.bytes.as_slice().read(offset, len)
    }

    fn stride(&self) -> u64 {
        self.stride
    }
}

fn all(computed: &Computed) -> Vec<u8> {
    computed.read(0, usize::try_from(computed.len()).unwrap()).unwrap().into_owned()
}

#[test]
fn bytes_of_elements_are_turned_round() {
    let swapped = Computed::swapped(bytes(&[1, 2, 3, 4, 5, 6, 7, 8]), 4).unwrap();
    assert_eq!(all(&swapped), [4, 3, 2, 1, 8, 7, 6, 5]);
    assert_eq!(*swapped.read(3, 3).unwrap(), [1, 8, 7]);
    assert!(Computed::swapped(bytes(&[1, 2, 3]), 2).is_err());
    assert!(Computed::swapped(bytes(&[1, 2, 3]), 3).is_err());
}

#[test]
fn six_bits_straddle_bytes() {
    let stream = [0x08, 0x84, 0x00, 0x10];
    let unpacked = Computed::unpacked(bytes(&stream), 6, false, 5).unwrap();
    assert_eq!(all(&unpacked), [8, 16, 8, 0, 16]);
    assert_eq!(*unpacked.read(1, 3).unwrap(), [16, 8, 0]);
    let packed = Computed::packed(bytes(&[8, 16, 8, 0, 16]), 6).unwrap();
    assert_eq!(all(&packed), stream);
    assert_eq!(*packed.read(1, 2).unwrap(), [0x84, 0]);
}

#[test]
fn signs_are_extended() {
    let unpacked = Computed::unpacked(bytes(&[0x8f, 0x07]), 4, true, 3).unwrap();
    assert_eq!(all(&unpacked), [0xff, 0xf8, 0x07]);
    let cleaned = Computed::cleaned(bytes(&[0x0f, 0xf7, 0x13]), 2, true).unwrap();
    assert_eq!(all(&cleaned), [0xff, 0xff, 0xff]);
}

#[test]
fn the_last_element_is_repeated() {
    let filled = Computed::filled(bytes(&[1, 2, 3, 4]), 2, 1 << 61).unwrap();
    assert_eq!(filled.len(), 1 << 62);
    assert_eq!(*filled.read(1, 6).unwrap(), [2, 3, 4, 3, 4, 3]);
    assert_eq!(*filled.read((1 << 62) - 3, 3).unwrap(), [4, 3, 4]);
    assert_eq!(*Computed::filled(bytes(&[]), 8, 9).unwrap().read(60, 12).unwrap(), [0; 12]);
    assert!(Computed::filled(bytes(&[]), 8, 1 << 60).is_err());
}

#[test]
fn varints_beyond_the_first_block() {
    let mut data = Vec::new();
    let values: Vec<u64> = (0..500u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64)).collect();
    values.iter().for_each(|value| crate::varint::write(*value, &mut data));
    let whole: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let source: Shared = Arc::new(Held { bytes: data, stride: 16 });
    let varints = Computed::varints(source, Digits::Plain, 8, 500, false).unwrap();
    for offset in (0..whole.len()).rev().step_by(7) {
        let len = 11.min(whole.len() - offset);
        assert_eq!(*varints.read(offset as u64, len).unwrap(), whole[offset..offset + len]);
    }
}

#[test]
fn varints_that_are_not_as_many_as_they_should_be() {
    let varints = |data: &[u8], count, repeat| Computed::varints(bytes(data), Digits::Plain, 2, count, repeat).unwrap();
    assert_eq!(all(&varints(&[1, 0x82, 1], 4, true)), [1, 0, 130, 0, 130, 0, 130, 0]);
    assert_eq!(all(&varints(&[], 2, true)), [0; 4]);
    for (data, count, repeat) in
        [(&[1u8, 2][..], 3, false), (&[1, 2], 1, false), (&[1, 2], 1, true), (&[0x80], 1, true)]
    {
        assert_eq!(varints(data, count, repeat).read(0, 1).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn a_column_of_rows_that_lie_far_apart() {
    let (rows, columns) = (300u64, 5000u64);
    let data: Vec<u8> = (0..rows * columns).map(|i| (i % 251) as u8).collect();
    for stride in [16, 4 << 10, 1 << 20] {
        let source: Shared = Arc::new(Held { bytes: data.clone(), stride });
        let tile = Tile { start: vec![0, 0], shape: vec![rows, columns], strides: vec![columns, 1], source };
        let cut = Cut { starts: vec![1, 3], steps: vec![2, 1700], counts: vec![149, 3] };
        let gathered = Computed::gathered(vec![tile], &[rows, columns], 1, &cut).unwrap();
        let wanted = (0..149).flat_map(|i| (0..3).map(move |j| (((1 + 2 * i) * columns + 3 + 1700 * j) % 251) as u8));
        assert_eq!(all(&gathered), wanted.collect::<Vec<u8>>());
    }
}

/// Reads only the requested bytes and those between them.
#[test]
fn a_row_costs_a_row() {
    struct Counted(std::sync::atomic::AtomicU64);
    impl Source for Counted {
        fn len(&self) -> u64 {
            1 << 50
        }

        fn read(&self, _: u64, len: usize) -> Result<Cow<'_, [u8]>> {
            self.0.fetch_add(len as u64, std::sync::atomic::Ordering::Relaxed);
            Ok(Cow::Owned(vec![7; len]))
        }
    }
    let counted = Arc::new(Counted(0.into()));
    let shape = vec![1 << 25, 1 << 25];
    let tile = Tile { start: vec![0, 0], shape: shape.clone(), strides: vec![1 << 25, 1], source: counted.clone() };
    let cut = Cut { starts: vec![5, 0], steps: vec![1 << 20, 1], counts: vec![20, 1 << 12] };
    let gathered = Computed::gathered(vec![tile], &shape, 1, &cut).unwrap();
    assert_eq!(all(&gathered), vec![7; 20 << 12]);
    assert_eq!(counted.0.load(std::sync::atomic::Ordering::Relaxed), 20 << 12);
}

#[test]
fn too_much_at_once_is_no_crash() {
    let filled = Computed::filled(bytes(&[1]), 1, 1 << 62).unwrap();
    assert_eq!(filled.read(0, 1 << 62).unwrap_err().kind(), Kind::Limit);
}

fn floats(computed: &Computed) -> Vec<f32> {
    all(computed).as_chunks::<4>().0.iter().map(|element| f32::from_le_bytes(*element)).collect()
}

#[test]
fn numbers_are_rounded_to_the_nearest_float() {
    let numbers = [1.0f32, -2.5, 65519.9, 65520.0, 6e-8, 2e-8, 1.000_488_3, f32::NEG_INFINITY, -0.0, 1e-40];
    let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let count = numbers.len() as u64;
    let as_float = |to| {
        let computed = Computed::converted(bytes(&data), "F32", to, count, false).unwrap();
        all(&computed).as_chunks::<2>().0.iter().map(|element| u16::from_le_bytes(*element)).collect::<Vec<_>>()
    };
    let halves = [0x3c00, 0xc100, 0x7bff, 0x7c00, 1, 0, 0x3c00, 0xfc00, 0x8000, 0];
    assert_eq!(as_float(Float::F16), halves);
    let upper = [0x3f80, 0xc020, 0x4780, 0x4780, 0x3381, 0x32ac, 0x3f80, 0xff80, 0x8000, 1];
    assert_eq!(as_float(Float::Bf16), upper);
    let quiet = Computed::converted(bytes(&f32::NAN.to_le_bytes()), "F32", Float::Bf16, 1, false).unwrap();
    assert_eq!(all(&quiet), [0xc0, 0x7f]);
}

#[test]
fn blocks_are_decoded_from_any_element() {
    let mut data = Vec::new();
    for number in 0..200u16 {
        data.extend([0x00, 0x3c + (number % 2) as u8 * 4]); // 1 or 2
        data.extend((0..16u16).map(|at| ((at + number) % 16) as u8 | (((at * 3 + number) % 16) as u8 * 16)));
    }
    let computed = Computed::converted(bytes(&data), "Q4_0", Float::F32, 6400, false).unwrap();
    let found = floats(&computed);
    for (at, number) in found.iter().enumerate() {
        let (block, at) = (at / 32, at % 32);
        let quant = if at < 16 { (at + block) % 16 } else { ((at - 16) * 3 + block) % 16 };
        assert_eq!(*number, (quant as f32 - 8.0) * if block % 2 == 0 { 1.0 } else { 2.0 });
    }
    let whole = all(&computed);
    for (offset, len) in [(0, 1), (3, 130), (127, 20_000), (8191, 2), (8192, 17_408), (25_599, 1)] {
        assert_eq!(*computed.read(offset, len).unwrap(), whole[offset as usize..offset as usize + len]);
    }
}

#[test]
fn scales_of_either_byte_order() {
    let mut data = [1; 34];
    data[..2].copy_from_slice(&[0x3c, 0x00]);
    let big = Computed::converted(bytes(&data), "Q8_0", Float::F32, 32, true).unwrap();
    assert_eq!(floats(&big), [1.0; 32]);
}

#[test]
fn conversions_of_other_lengths_and_types_are_refused() {
    let of = |from, count| Computed::converted(bytes(&[0; 36]), from, Float::F32, count, false);
    assert_eq!(of("Q4_0", 64).unwrap().len(), 256);
    for (from, count) in [("Q4_0", 63), ("Q4_0", 32), ("F32", 8), ("F64", 1 << 61)] {
        assert!(of(from, count).is_err(), "{from}");
    }
    for from in ["C64", "C128", "STRING", "IQ2_XXS"] {
        assert_eq!(of(from, 1).err().map(|error| error.kind()), Some(Kind::Unsupported));
    }
}
